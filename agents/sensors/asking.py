"""Calls that sensors make: tools that they poll, and models that judge their signals. Every one passes the guard.

They are made under the agent's sensor session of the day, which the slice claims when the first call needs it and holds
like any runner. The guard waits for databases and servers, so calls run in threads; each closes its connection.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar

from django.db import DatabaseError, connections

from agents.conf import clock, model_for
from agents.definitions.schema import Signal
from agents.enums import Outcome, Purpose, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import (
    AutonomousBrake,
    BudgetExceeded,
    CostCapReached,
    LeaseLost,
    LqopsError,
    OutcomeUnknown,
    SessionHalted,
    ToolNotGranted,
)
from agents.guard import guarded_tool_call
from agents.guard.selftest import arm
from agents.models import Agent, AgentSession
from agents.sensors.rows import Held
from agents.sensors.sensor_sessions import DAY, day_of, sensor_session_claim, sensor_session_rest
from agents.sensors.signals import MAX_TOKENS, data_text, question, read_score
from agents.sessions.ending import session_finish, session_rest
from agents.text.blocks import nonce_of
from agents.types import ToolResult
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Params = Callable[[AgentSession], dict[str, Any]]

CLAIM_SECONDS: Final = 0.25  # between two tries to have a session that a slice before this one still holds

# Brakes that end the session; any other refuses this call alone.
_ENDS: Final[dict[type[AutonomousBrake], TerminalReason]] = {
    CostCapReached: TerminalReason.COST_CAP_REACHED,
    BudgetExceeded: TerminalReason.BUDGET_EXCEEDED,
    ToolNotGranted: TerminalReason.TOOL_NOT_GRANTED,
}


class Unable(Exception):
    """A call could not be made, or came to nothing; the text says why."""


@dataclass
class Account:
    """An agent's session in the hands of a slice. It ends, or rests, when no call of it is out."""

    session: AgentSession
    out: "set[asyncio.Future[ToolResult]]" = field(default_factory=set)
    end: Callable[..., None] | None = None


class Asking:
    def __init__(self, owner: str, threads: Executor) -> None:
        self._owner, self._threads = owner, threads
        self._accounts: dict[int, Account] = {}
        self._turns: dict[int, asyncio.Lock] = {}
        self._closing: set[asyncio.Future[None]] = set()

    async def poll(self, held: Held, loop_pk: int, key: str) -> ToolResult:
        """Calls the sensor's tool as its definition says."""
        source = held.spec.source
        params = {"skill": source.tool, "arguments": dict(source.params)}
        result = await self._call(held, loop_pk, key, lambda session: params)
        if not result.ok and result.outcome != Outcome.APPROVAL_PENDING:
            raise Unable(result.error or f"the call ended {result.outcome}")
        return result

    async def score(
        self, held: Held, loop_pk: int, signal: Signal, items: Sequence[Any], happening: str
    ) -> tuple[Decimal | None, str]:
        """What the model scores the data with, if it does, and its words. The same question is not asked twice."""
        model = signal.model or model_for("small")
        asked = hashlib.sha256(f"{model}\0{signal.prompt}\0{data_text(items)}".encode("utf-8", "replace")).hexdigest()
        key = f"signal:{held.pk}:{happening}:{asked[:24]}"

        def params(session: AgentSession) -> dict[str, Any]:
            nonce = nonce_of(session.public_id, key)
            return {
                "model": model,
                "messages": question(signal, items, sensor=held.spec.name, nonce=nonce),
                "max_tokens": MAX_TOKENS,
                "purpose": str(Purpose.SIGNAL),
            }

        result = await self._call(held, loop_pk, key, params)
        if not result.ok:
            raise Unable(result.error or f"the call ended {result.outcome}")
        said = str(result.data.get("text") or "")
        return read_score(said), said

    async def rest(self, seconds: float) -> None:
        """At the end of a slice, when calls have had so long to end. A session with one still out is left: its lease
        runs out, and it is taken over."""
        if out := {work for account in self._accounts.values() for work in account.out}:
            await asyncio.wait(out, timeout=seconds)
        for account in list(self._accounts.values()):
            if not account.out and account.end is None:
                await self._close(account, partial(sensor_session_rest, account.session))
        if self._closing:
            await asyncio.wait(self._closing)

    async def _call(self, held: Held, loop_pk: int, key: str, params: Params) -> ToolResult:
        try:
            account = await self._account(held, loop_pk)
            return await self._made(account, params, key)
        except LqopsError as error:
            raise Unable(str(error)) from None
        except Unable:
            raise
        except Exception as error:  # noqa: BLE001 whatever a tool or the database raises, the sensor goes on
            raise Unable(redact_exception(error)) from None

    async def _made(self, account: Account, params: Params, key: str) -> ToolResult:
        """A thread cannot be called back: a task that is cancelled leaves its call to come to its own end."""
        work = asyncio.ensure_future(self._in_thread(partial(_guarded, account.session, params, key)))
        account.out.add(work)
        work.add_done_callback(partial(self._came_back, account))
        return await asyncio.shield(work)

    def _came_back(self, account: Account, work: "asyncio.Future[ToolResult]") -> None:
        account.out.discard(work)
        account.end = account.end or _ending(account.session, work)
        if account.end is not None and not account.out:
            self._closing.add(closing := asyncio.ensure_future(self._close(account, account.end)))
            closing.add_done_callback(self._closing.discard)

    async def _account(self, held: Held, loop_pk: int) -> Account:
        """The agent's session: the one at hand, or today's, claimed now."""
        async with self._turns.setdefault(held.agent_id, asyncio.Lock()):
            account = self._accounts.get(held.agent_id)
            if account is not None and account.end is not None:
                raise Unable("the sensors' run of today is ending")
            if account is not None and not account.out and account.session.params[DAY] != day_of(clock()):
                await self._close(account, partial(sensor_session_rest, account.session))
                account = None
            if account is None:
                claim = partial(_claimed, held, loop_pk, self._owner)
                while (claimed := await self._in_thread(claim)) is None:  # noqa: ASYNC110 another process lets go
                    await asyncio.sleep(CLAIM_SECONDS)
                if isinstance(claimed, str):
                    raise Unable(claimed)
                account = self._accounts[held.agent_id] = Account(claimed)
            return account

    async def _close(self, account: Account, how: Callable[..., None]) -> None:
        self._accounts.pop(account.session.agent_id or 0, None)
        try:
            await self._in_thread(partial(how, now=clock()))
        except (LeaseLost, DatabaseError) as error:
            logger.warning("sensors: session %s is left to others: %s", account.session.public_id, error)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(_with_connection, work))


def _with_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connections.close_all()


def _claimed(held: Held, loop_pk: int, owner: str) -> AgentSession | str | None:
    arm()
    return sensor_session_claim(
        agent=Agent.objects.select_related("owner").get(pk=held.agent_id),
        loop_pk=loop_pk,
        sensor_pk=held.pk,
        fencing=held.fencing,
        owner=owner,
        cap=held.definition.max_cost_usd,
        now=clock(),
    )


def _guarded(session: AgentSession, params: Params, key: str) -> ToolResult:
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params(session), key=key, now=clock())


def _ending(session: AgentSession, work: "asyncio.Future[ToolResult]") -> Callable[..., None] | None:
    """How what came of a call ends the session, as the runner would end it; None when the next call may be made."""
    stop = work.exception()
    if stop is None:
        return _parked(session) if work.result().outcome == Outcome.UNKNOWN else None
    match stop:
        case SessionHalted():
            return partial(_finish, session, TerminalReason(stop.reason))
        case AutonomousBrake():
            reason = _ENDS.get(type(stop))
            return partial(_finish, session, reason) if reason else None
        case OutcomeUnknown():
            return _parked(session)
        case LeaseLost():
            return _leave
    return None


def _parked(session: AgentSession) -> Callable[..., None]:
    """Nobody knows whether a call took effect; a person says so before the next is made."""
    return partial(session_rest, session, Status.WAITING, waiting_on=WaitingOn.OPERATOR)


def _finish(session: AgentSession, reason: TerminalReason, *, now: datetime) -> None:
    session_finish(session, reason, now=now)


def _leave(*, now: datetime) -> None:
    """The lease is lost: nothing of the session is ours to write."""
