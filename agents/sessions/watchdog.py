"""Ends what hangs: a session that is running and does nothing is paused, and halted when it stays idle as long again.

A call that is out counts as activity, however long it takes. Sessions that sleep, wait or queue are at rest, not idle;
their own limits apply. A guarded call that passes un-pauses its session (ledger/journal.py).
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, QuerySet

from agents.enums import HaltState, Status, TerminalReason
from agents.models import AgentSession, ToolCall
from agents.sessions.ending import session_end_unheld
from agents.sessions.lifecycle import session_lock
from audit import recorder

logger = logging.getLogger(__name__)


def idle_sweep(now: datetime) -> int:
    """Halts the paused ones first, then pauses, so that no session is paused and halted in one sweep.

    Each in a transaction of its own; one that fails is found again by the next sweep.
    """
    halted = [pk for pk in _candidates(HaltState.PAUSED, now) if _done(_halt, pk, now)]
    paused = [pk for pk in _candidates(HaltState.RUNNING, now) if _done(_pause, pk, now)]
    return len(halted) + len(paused)


def _candidates(state: HaltState, now: datetime) -> list[int]:
    rows = _silent().filter(halt_state=state).only("last_activity_at", "idle_halt_minutes")
    return [row.pk for row in rows if _is_idle(row, state, now)]


def _silent() -> QuerySet[AgentSession]:
    """Running sessions with no call out."""
    out = ToolCall.objects.open().filter(session=OuterRef("pk"))
    return AgentSession.objects.filter(~Exists(out), status=Status.RUNNING).order_by("pk")


def _is_idle(row: AgentSession, state: HaltState, now: datetime) -> bool:
    """Idle for long enough to leave the state that it is in."""
    limits = {HaltState.RUNNING: 1, HaltState.PAUSED: 2}
    return now - row.last_activity_at >= limits[state] * timedelta(minutes=row.idle_halt_minutes)


def _done(step: Callable[[AgentSession, datetime], None], pk: int, now: datetime) -> bool:
    """Takes the step if the session, now locked, is still as idle as it was when it was found."""
    state = HaltState.PAUSED if step is _halt else HaltState.RUNNING
    try:
        with transaction.atomic():
            session_lock(pk)  # a call opens and settles under this lock: none can begin before the step is committed
            row = _silent().filter(pk=pk, halt_state=state).first()
            if row is None or not _is_idle(row, state, now):
                return False
            step(row, now)
    except DatabaseError:
        logger.exception("session %s could not be looked after; it is tried again", pk)
        return False
    return True


def _pause(row: AgentSession, now: datetime) -> None:
    row.halt_state = HaltState.PAUSED
    row.save(update_fields=["halt_state"])
    idle = int((now - row.last_activity_at).total_seconds())
    recorder.append(row.chain, "session.paused", now=now, details={"idle_seconds": idle})


def _halt(row: AgentSession, now: datetime) -> None:
    """The worker that holds it may be alive and hang: its number is taken, so that it can write nothing any more."""
    row.fencing += 1
    row.save(update_fields=["fencing"])
    session_end_unheld(row, TerminalReason.IDLE_TIMEOUT, now=now, actor="system")
