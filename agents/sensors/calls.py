"""Calls that sensors make: tools that they poll and models that score their signals. Every one passes the guard.

Calls are made under the agent's sensor session of the day, which is claimed for the first call and held like a
runner's. The guard waits for databases and servers, so calls run in threads; each closes its connection.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from django.db import DatabaseError, connections

from agents.conf import clock
from agents.enums import Outcome, Status, TerminalReason, ToolIntent, WaitingOn
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
from agents.models import AgentSession
from agents.sensors.rows import DAY, Held, day_of, sensor_session_claim, sensor_session_rest
from agents.sessions.ending import session_finish, session_rest
from agents.types import ToolResult
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Params = Callable[[AgentSession], dict[str, Any]]
EndSession = Callable[..., object]  # takes `now`

CLAIM_SECONDS: Final = 0.25  # between two tries to claim a session that another slice still holds

# Brakes that end the session; any other refuses only the call.
_ENDING_BRAKES: Final[dict[type[AutonomousBrake], TerminalReason]] = {
    CostCapReached: TerminalReason.COST_CAP_REACHED,
    BudgetExceeded: TerminalReason.BUDGET_EXCEEDED,
    ToolNotGranted: TerminalReason.TOOL_NOT_GRANTED,
}


class CallFailed(Exception):
    """A call could not be made; the text says why."""


@dataclass
class ClaimedSession:
    """An agent's session that the slice holds. It ends, or rests, when none of its calls is running."""

    session: AgentSession
    running: "set[asyncio.Future[ToolResult]]" = field(default_factory=set)
    end: EndSession | None = None


class SensorCalls:
    """Makes the calls of all sensors of a slice."""

    def __init__(self, owner: str, threads: Executor) -> None:
        self._owner = owner
        self._threads = threads
        self._claimed: dict[int, ClaimedSession] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._closing: set[asyncio.Future[None]] = set()

    async def call(self, held: Held, loop_pk: int, key: str, params: Params) -> ToolResult:
        """Make one guarded call under the agent's session; CallFailed if it could not be made."""
        try:
            claimed = await self._session_for(held, loop_pk)
            return await self._guarded_call(claimed, params, key)
        except LqopsError as error:
            raise CallFailed(str(error)) from None
        except CallFailed:
            raise
        except Exception as error:  # noqa: BLE001 whatever a tool or the database raises, the sensor goes on
            raise CallFailed(redact_exception(error)) from None

    async def rest(self, seconds: float) -> None:
        """Put the sessions to rest at the end of a slice, after giving running calls so long to end.

        A session with a call still running is left: its lease runs out, and another slice takes it over.
        """
        if running := {call for claimed in self._claimed.values() for call in claimed.running}:
            await asyncio.wait(running, timeout=seconds)
        for claimed in list(self._claimed.values()):
            if not claimed.running and claimed.end is None:
                await self._close(claimed, partial(sensor_session_rest, claimed.session))
        if self._closing:
            await asyncio.wait(self._closing)

    async def _guarded_call(self, claimed: ClaimedSession, params: Params, key: str) -> ToolResult:
        """Run the call in a thread. A cancelled task leaves it to come to its own end."""
        session = claimed.session

        def make() -> ToolResult:
            return guarded_tool_call(session, ToolIntent.RUN_SKILL, params(session), key=key, now=clock())

        running = asyncio.ensure_future(self._in_thread(make))
        claimed.running.add(running)
        running.add_done_callback(partial(self._call_ended, claimed))
        return await asyncio.shield(running)

    def _call_ended(self, claimed: ClaimedSession, call: "asyncio.Future[ToolResult]") -> None:
        claimed.running.discard(call)
        claimed.end = claimed.end or _end_after(claimed.session, call)
        if claimed.end is not None and not claimed.running:
            self._closing.add(closing := asyncio.ensure_future(self._close(claimed, claimed.end)))
            closing.add_done_callback(self._closing.discard)

    async def _session_for(self, held: Held, loop_pk: int) -> ClaimedSession:
        """Return the session that the slice holds for the agent, or claim today's."""

        def claim() -> AgentSession | str | None:
            arm()
            return sensor_session_claim(held, loop_pk=loop_pk, owner=self._owner, now=clock())

        async with self._locks.setdefault(held.row.agent_id, asyncio.Lock()):
            claimed = self._claimed.get(held.row.agent_id)
            if claimed is not None and claimed.end is not None:
                raise CallFailed("today's sensor session is ending")
            if claimed is not None and not claimed.running and claimed.session.params[DAY] != day_of(clock()):
                await self._close(claimed, partial(sensor_session_rest, claimed.session))
                claimed = None
            if claimed is None:
                while (session := await self._in_thread(claim)) is None:  # noqa: ASYNC110 another process holds it
                    await asyncio.sleep(CLAIM_SECONDS)
                if isinstance(session, str):
                    raise CallFailed(session)
                claimed = self._claimed[held.row.agent_id] = ClaimedSession(session)
            return claimed

    async def _close(self, claimed: ClaimedSession, end: EndSession) -> None:
        self._claimed.pop(claimed.session.agent_id or 0, None)
        try:
            await self._in_thread(lambda: end(now=clock()))
        except (LeaseLost, DatabaseError) as error:
            logger.warning("sensors: session %s could not be closed: %s", claimed.session.public_id, error)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _with_connection, work)


def _with_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connections.close_all()


def _end_after(session: AgentSession, call: "asyncio.Future[ToolResult]") -> EndSession | None:
    """Return how a call ends the session, as the runner would end it; None when it goes on."""
    needs_operator = partial(session_rest, session, Status.WAITING, waiting_on=WaitingOn.OPERATOR)
    error = call.exception()
    if error is None:
        return needs_operator if call.result().outcome == Outcome.UNKNOWN else None
    match error:
        case SessionHalted():
            return partial(session_finish, session, TerminalReason(error.reason))
        case AutonomousBrake():
            reason = _ENDING_BRAKES.get(type(error))
            return partial(session_finish, session, reason) if reason else None
        case OutcomeUnknown():
            return needs_operator
        case LeaseLost():
            return lambda **_: None  # the session is another holder's to write
    return None
