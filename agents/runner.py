"""Run one session: claim the lease, run its engine, record its end. No transaction is open while it works.

Engines do not catch brakes; the handler here is the one place that turns them into a status. Before a process takes its
first session it, or the process that it was forked from, proves that its brakes refuse.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import InterfaceError, OperationalError, connection

from agents.conf import clock, lease_renewal_seconds, task_seconds
from agents.enums import Status, TerminalReason, WaitingOn
from agents.exceptions import (
    AutonomousBrake,
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    LeaseLost,
    ModelBusy,
    ModelSuspended,
    OpenTransaction,
    OutcomeUnknown,
    RetryLater,
    RunsAwaited,
    SessionHalted,
    SessionPaused,
    ToolNotGranted,
    UnpricedModel,
)
from agents.guard.selftest import arm
from agents.models import AgentSession
from agents.queue import in_open_transaction, worker_retire
from agents.sessions.ending import session_finish, session_rest
from agents.sessions.leases import lease_claim, lease_next, leases_renew
from agents.tracing import OUTCOME, working_on
from agents.types import Asleep, End, Finished, SliceOver, Waiting
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

Engine = Callable[[AgentSession], End]
AGAIN_SECONDS = 1.0  # after a beat that found a row locked by its own run


_PUT_ASIDE = (RetryLater, ModelSuspended, RunsAwaited, SessionPaused, OutcomeUnknown)
_BRAKE_REASONS: dict[type[AutonomousBrake], TerminalReason] = {
    CostCapReached: TerminalReason.COST_CAP_REACHED,
    BudgetExceeded: TerminalReason.BUDGET_EXCEEDED,
    ToolNotGranted: TerminalReason.TOOL_NOT_GRANTED,
    UnpricedModel: TerminalReason.UNPRICED_MODEL,
}


def run_session(session_pk: int, engine: Engine, *, owner: str, now: datetime | None = None) -> bool:
    """Work on the session until its engine ends. Return False if there was nothing to take."""
    if in_open_transaction():
        raise OpenTransaction("run_session was called inside a transaction; the runner owns the commit boundary.")
    arm()
    session = lease_claim(session_pk, owner=owner, now=now or clock())
    if session is None:
        return False
    run_claimed(session, engine)
    return True


def run_next(engines: Mapping[str, Engine], *, owner: str, only_urgent: bool = False) -> bool:
    """Work on the session that is next, by fairness. Return False if there was nothing to take."""
    arm()
    session = lease_next(owner=owner, now=clock(), only_urgent=only_urgent)
    if session is None:
        return False
    run_claimed(session, engines[session.mode])
    return True


def run_claimed(session: AgentSession, engine: Engine) -> None:
    """Work on a session whose lease is held, until its engine ends, and record the end."""
    about = {
        "gen_ai.operation.name": "invoke_agent",
        "lqops.mode": session.mode,
        "lqops.trigger_kind": session.trigger_kind,
        "lqops.fencing": session.fencing,
    }
    with working_on("invoke_agent", run=str(session.public_id), attributes=about) as span:
        with _heartbeat.of(session):
            end = _run(session, engine)
        span[OUTCOME] = type(end).__name__.lower() if not isinstance(end, Finished) else str(end.reason)
        _record(session, end)


def _record(session: AgentSession, end: End | None) -> None:
    try:
        record_end(session, end)
    except LeaseLost:
        logger.warning("session %s was taken over; this worker leaves it alone", session.public_id)
    except (OperationalError, InterfaceError) as error:
        _leave(session, error)


def _leave(session: AgentSession, error: Exception) -> None:
    """The connection to the database broke: leave the session to whoever takes it over when its lease has run out."""
    logger.warning("session %s is left to be taken over: %s", session.public_id, redact_exception(error))
    connection.close()


def _run(session: AgentSession, engine: Engine) -> End | None:  # noqa: PLR0911 one line for each way to end
    """Return how the engine ended; None if the session belongs to another worker now."""
    try:
        return engine(session)
    except LeaseLost:
        return None
    except (OperationalError, InterfaceError) as error:
        _leave(session, error)
        return None
    except SessionHalted as halted:
        return Finished(TerminalReason(halted.reason))
    except _PUT_ASIDE as wait:
        return _waiting(wait)
    except BudgetRefused as refused:
        return Finished(TerminalReason.BUDGET_EXCEEDED, redact_exception(refused), retry_at=refused.resets_at)
    except AutonomousBrake as brake:
        return Finished(_BRAKE_REASONS.get(type(brake), TerminalReason.REFUSED), error=redact_exception(brake))
    except Exception as error:  # whatever happens, the session ends with a status
        logger.exception("session %s failed", session.public_id)
        return Finished(TerminalReason.WORKER_ERROR, error=redact_exception(error))


def _waiting(wait: Exception) -> Waiting:
    """Return the wait of a session that is put aside."""
    match wait:
        case RetryLater() | ModelSuspended():
            return Waiting(WaitingOn.MODEL, model=wait.model, is_busy=isinstance(wait, ModelBusy))
        case RunsAwaited():
            return Waiting(WaitingOn.RUNS, runs=wait.runs)
        case SessionPaused():
            return Waiting(WaitingOn.RESUME)
        case _:
            return Waiting(WaitingOn.OPERATOR)


def record_end(session: AgentSession, end: End | None) -> None:
    """Write how the work on a session ended."""
    now = clock()
    match end:
        case Finished(reason, error, retry_at):
            session_finish(session, reason, now=now, error=error, retry_at=retry_at)
        case SliceOver():
            session_rest(session, Status.QUEUED, now=now)
        case Asleep(wake_at):
            session_rest(session, Status.SLEEPING, now=now, wake_at=wake_at)
        case Waiting(on, model, is_busy, runs):
            facts: dict[str, Any] = {"model": model, "is_busy": is_busy, "runs": runs}
            session_rest(session, Status.WAITING, now=now, waiting_on=on, **facts)


class Heartbeat:
    """Renews the leases of all runs that this process works on, from one thread with a connection of its own.

    A run that takes longer than a task may is given up: its lease runs out, and another worker takes it over.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], float] = {}
        self._over: threading.Event | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def of(self, session: AgentSession) -> Iterator[None]:
        """Renew the lease of a session until the block ends."""
        held = (session.pk, session.fencing)
        with self._lock:
            if self._thread is None:
                over = threading.Event()
                thread = threading.Thread(target=self._beat, args=[over], name="heartbeat-runs", daemon=True)
                thread.start()
                self._over, self._thread = over, thread
            self._held[held] = time.monotonic()
        try:
            yield
        finally:
            self._end(held)

    def _end(self, held: tuple[int, int]) -> None:
        with self._lock:
            del self._held[held]
            if self._held or self._thread is None or self._over is None:
                return
            thread, self._thread = self._thread, None
            self._over.set()
        thread.join()

    def _beat(self, over: threading.Event) -> None:
        pause = lease_renewal_seconds()
        try:
            while not over.wait(pause):
                pause = lease_renewal_seconds()
                try:
                    if not self._renew():
                        pause = min(pause, AGAIN_SECONDS)
                except Exception:
                    logger.warning("leases could not be renewed; the next try follows", exc_info=True)
                    connection.close()
        finally:
            connection.close()

    def _renew(self) -> bool:
        """Renew the leases; return whether it was done for all of them."""
        with self._lock:
            earliest = time.monotonic() - task_seconds()
            held = [one for one, since in self._held.items() if since >= earliest]
            if len(held) < len(self._held):
                worker_retire()  # a thread that is stuck ends with its process
        return not held or leases_renew(held, now=clock()) == len(held)


_heartbeat = Heartbeat()


def _after_fork() -> None:
    """Threads do not survive a fork."""
    global _heartbeat  # noqa: PLW0603 one process, one heartbeat
    _heartbeat = Heartbeat()


os.register_at_fork(after_in_child=_after_fork)
