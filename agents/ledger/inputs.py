"""Inputs of triggers' runs: what a run was to read counts as read only when a run has ended with a result.

Every firing of a trigger stands for an input: documents or an event. A run that fails to read it leaves a row
(UnreadInput), written in the transaction of its end. The row names the last run that tried and says what comes next:
another run when it is due, or, once the tries are used up or another run would end in the same way, a person. So every
input is in one of these places: read, queued (a run that is not over), retrying, given up, dismissed by a person.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User

from agents.conf import input_tries
from agents.enums import InputState, Mode, TerminalReason
from agents.ledger.trigger_health import UNANSWERED_RUN, UNREAD_RUN, trigger_record
from agents.models import AgentSession, UnreadInput

# Pauses before the second run, the third, and so on.
PAUSES: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 360))
# Ends after which another run can succeed where this one did not. The others would come again, or a person decided.
_PASSING: Final = frozenset(
    {
        TerminalReason.PROVIDER_ERROR,
        TerminalReason.WORKER_ERROR,
        TerminalReason.WORKER_LOST,
        UNANSWERED_RUN,
        UNREAD_RUN,
    }
)


def input_note_end(
    session: AgentSession, reason: TerminalReason, *, now: datetime, retry_at: datetime | None = None
) -> UnreadInput | None:
    """Note what became of the input of a run that has just ended; return it if it was not read.

    `retry_at` is when the cause of the failure is over, if that is known: a day's budget that is used up.
    """
    row = UnreadInput.objects.filter(session=session).first() if session.restarted_from_id else None
    if row is None and not answers_input(session):
        return None
    fault = str(session.metadata.get("fault") or "")
    if reason == TerminalReason.COMPLETED and not fault:
        if row is not None:
            row.delete()
        return None
    if row is None:
        assert session.trigger_id is not None  # noqa: S101 answers_input has looked
        row = UnreadInput(owner_id=session.owner_id, trigger_id=session.trigger_id, session=session)
    row.tries += 1
    row.reason = fault or reason
    row.failed_at = now
    may_pass = fault in _PASSING or reason in _PASSING or retry_at is not None
    if may_pass and row.tries < input_tries():
        row.state = InputState.RETRYING
        row.due_at = max(retry_at or now, now + PAUSES[min(row.tries, len(PAUSES)) - 1])
    else:
        row.state = InputState.GIVEN_UP
        row.due_at = None
    row.save()
    if row.state == InputState.GIVEN_UP:
        input_record(row, "input.given_up", now=now, reason=row.reason)
    return row


def answers_input(session: AgentSession) -> bool:
    """Return whether a firing of a trigger started the session. Who starts a run by hand looks at its result."""
    return session.mode == Mode.PHASED and bool(session.slot) and session.trigger_id is not None


def input_lock(session: AgentSession) -> None:
    """Lock the input that a session did not read, until the transaction ends."""
    UnreadInput.objects.select_for_update().filter(session=session).first()


def input_taken(before: AgentSession, again: AgentSession) -> None:
    """Note that another session reads now what one that is over did not."""
    unread = UnreadInput.objects.filter(session=before).exclude(state=InputState.QUEUED)
    unread.update(session=again, state=InputState.QUEUED, due_at=None)


def input_record(row: UnreadInput, kind: str, /, *, now: datetime, by: User | None = None, **more: Any) -> None:
    trigger_record(row.trigger, kind, now=now, by=by, session_id=str(row.session.public_id), tries=row.tries, **more)
