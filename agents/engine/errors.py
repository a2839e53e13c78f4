"""Errors of runs of steps, for those who watch: each end that is no answer is told once, and being near the budget.

What decides about a run stands in its row and in the record; these events only tell of it.
"""

from typing import Final

from agents.conf import clock
from agents.enums import EventKind, Mode, TerminalReason
from agents.exceptions import BudgetRefused, LeaseLost, LqopsError, OutcomeUnknown, RetryLater
from agents.models import AgentEvent, AgentSession
from agents.people.activity import event_emit
from agents.types import Finished
from audit.redaction import redact_exception

_GOES_ON: Final = (LeaseLost, OutcomeUnknown, RetryLater)  # somebody else goes on with it, or it goes on later


def tell_end(session: AgentSession, end: Finished, *, run: str) -> None:
    if session.mode == Mode.LOOP and end.reason == TerminalReason.MAX_STEPS:
        return  # a turn that has used up its rounds is over; the loop is not
    message = end.error or f"The run of steps ended: {end.reason.label.lower()}."
    _tell_once(session, run=run, reason=str(end.reason), message=message)


def tell_failure(session: AgentSession, error: Exception, *, run: str) -> None:
    """Of a brake, or a fault. What the run goes on from is neither."""
    if isinstance(error, _GOES_ON) or (session.mode == Mode.LOOP and isinstance(error, BudgetRefused)):
        return
    reason = error.code if isinstance(error, LqopsError) else str(TerminalReason.WORKER_ERROR)
    _tell_once(session, run=run, reason=reason, message=redact_exception(error))


def tell_near_budget(session: AgentSession, message: str, *, run: str) -> None:
    event_emit(EventKind.ERROR, session=session, now=clock(), run=run, message=message, recoverable=True)


def _tell_once(session: AgentSession, *, run: str, reason: str, message: str) -> None:
    """A worker that takes over what another has ended, and not recorded, ends it again: that is no second error."""
    told = AgentEvent.objects.filter(session=session, kind=EventKind.ERROR, data__run=run, data__recoverable=False)
    if not told.exists():
        event_emit(
            EventKind.ERROR, session=session, now=clock(), run=run, reason=reason, message=message, recoverable=False
        )
