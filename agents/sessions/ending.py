"""How a session rests and ends, and what its end closes: open calls, tickets, questions, turns, its chain.

Stands above approvals, questions and loops, which an end has to close. The owner is notified of runs that others
stopped, with counts, cost and a link to the receipt, but no content.
"""

import logging
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, QuerySet, Sum

from agents.enums import (
    HaltScope,
    HaltState,
    InputState,
    Mode,
    NoticeKind,
    Outcome,
    RunResult,
    Status,
    TerminalReason,
    TurnState,
    WaitingOn,
)
from agents.ledger.inputs import input_note_end
from agents.ledger.journal import journal_recover
from agents.ledger.loans import loan_text, runs_wait_note
from agents.ledger.outages import model_wait_note
from agents.ledger.trigger_health import trigger_note_end
from agents.models import AgentSession, Halt, Installation, Pause, ToolCall, Turn, UnreadInput
from agents.models.expressions import CountOf
from agents.people.notifications import notification_create, wants_successes
from agents.people.outbox import receipt_path
from agents.policy.transitions import REASON_STATUS
from agents.sessions.approvals import tickets_cancel, tickets_unused
from agents.sessions.lifecycle import (
    HEARD,
    check_move,
    early_wake_at,
    halt_reason,
    held,
    log_run,
    session_enqueue,
    still_pending,
    totals,
)
from agents.sessions.questions import questions_cancel, questions_open
from agents.sessions.reads import by_severity, counted, purposes
from agents.sessions.restarts import loop_due_at
from agents.types import ZERO
from audit import recorder
from audit.kinds import LABEL
from audit.receipts import build_receipt, label_of, usd
from audit.redaction import redact

logger = logging.getLogger(__name__)


# --- Loops: close the open turn and forget pending events ---
#
# Sensors release themselves (agents/sensors/rows.py), so whoever ends a loop waits for no writer of its hot state.


def close_loop(row: AgentSession, *, reason: TerminalReason, now: datetime) -> None:
    """Close the turn that was open, with its cost so far, and drop the events that were kept for it."""
    if row.metadata.pop(HEARD, None):
        row.save(update_fields=["metadata"])
    turn = Turn.objects.filter(session=row, state=TurnState.OPEN).first()
    if turn is not None:
        before = (row.metadata.get("loop") or {}).get("last_call", 0)
        spent = ToolCall.objects.filter(session=row, pk__gt=before).aggregate(
            tokens=Sum("tokens", default=0), charged=Sum("charged_usd"), actual=Sum("actual_usd")
        )
        turn.state = TurnState.FAILED
        turn.ended_at = now
        turn.reason = str(reason)
        turn.tokens = spent["tokens"]
        turn.cost_usd = max(spent["charged"] or ZERO, spent["actual"] or ZERO)
        turn.definition = ""
        turn.save()


# Ends that somebody requested.
_REQUESTED: Final = frozenset({TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT})


def notify_end(
    row: AgentSession, *, reason: TerminalReason, unread: UnreadInput | None, is_notified: bool, now: datetime
) -> None:
    """Notify the owner of a run that was halted or failed, or whose input is given up. No brake applies.

    Of an input that is tried several times the owner hears after the first run and after the last.
    """
    given_up = unread is not None and unread.state == InputState.GIVEN_UP and unread.tries > 1
    is_between = unread is not None and unread.state == InputState.RETRYING and unread.tries > 1
    if row.status == Status.COMPLETED and not given_up:  # the run itself has notified its owner if it found anything
        if not is_notified:
            _notify_success(row, now=now)
        return
    if is_between or (reason in _REQUESTED and _is_own_halt(row)):
        return
    title = f"Given up after {unread.tries} runs" if unread is not None and given_up else f"Run {row.status}"
    notification_create(
        owner_id=row.owner_id,
        kind=NoticeKind.INPUT_GIVEN_UP if given_up else NoticeKind.RUN_STOPPED,
        title=f"{title}: {label_of('reason', str(reason))}, {purposes([row])[row.pk]}",
        body="\n".join(_end_lines(row, unread)),
        session_id=row.pk,
        now=now,
    )


def _notify_success(row: AgentSession, *, now: datetime) -> None:
    """Notify an owner who has asked for it of a run that completed and had nothing to say."""
    if row.mode != Mode.PHASED or not wants_successes(row.owner_id):
        return
    notification_create(
        owner_id=row.owner_id,
        kind=NoticeKind.RUN_COMPLETED,
        title=f"Run completed: {purposes([row])[row.pk]}",
        body="\n".join(_end_lines(row, None)),
        session_id=row.pk,
        now=now,
    )


def _end_lines(row: AgentSession, unread: UnreadInput | None) -> list[str]:
    found = by_severity(row.findings.values_list("severity", flat=True))
    lines = [f"Result: {row.run_result}."]
    lines += [f"Findings: {counted(found)}."] if row.mode == Mode.PHASED else []
    lines += [f"Calls: {row.tool_calls.count()}. Spent: {usd(row.spent_usd)}."]
    lines += [text] if (text := loan_text(row)) else []
    if row.mode == Mode.LOOP:
        due = loop_due_at(row)
        lines += [f"It starts again at {due:%Y-%m-%d %H:%M:%S} UTC." if due else "It does not start again by itself."]
    if unread is not None and unread.due_at is not None:
        lines += [f"Its input is read again at {unread.due_at:%Y-%m-%d %H:%M} UTC."]
    elif unread is not None:
        lines += ["Its input is given up. Retry it, or dismiss it, under Unread inputs."]
    return [*lines, f"Receipt: {receipt_path(row)}"]


def _is_own_halt(row: AgentSession) -> bool:
    """Return whether the owner halted it, alone or with all work.

    A halt of its own came before the halt of all work.
    """
    everything = Halt.objects.filter(scope=HaltScope.ORGANISATION, requested_at__gte=row.created_at)
    halt = Halt.objects.filter(session=row).order_by("-pk").first() or everything.order_by("-pk").first()
    return halt is not None and halt.requested_by_id == row.owner_id


ERROR_CHARS = 2_000

_TERMINAL_KIND = {
    Status.COMPLETED: "autonomous_session.completed",
    Status.HALTED: "autonomous_session.halted",
    Status.FAILED: "autonomous_session.failed",
}


@transaction.atomic
def session_rest(
    session: AgentSession,
    status: Status,
    *,
    now: datetime,
    waiting_on: WaitingOn | None = None,
    wake_at: datetime | None = None,
    model: str = "",
    is_busy: bool = False,
    runs: frozenset[int] = frozenset(),
) -> None:
    """Give a held session back: queued, sleeping until `wake_at`, or waiting on a person, a model or started runs.

    Work that came this far is progress, so the count of recoveries starts at zero. A session whose halt was requested
    meanwhile ends instead.
    """
    row = held(session)
    if row.halt_state in {HaltState.HALT_REQUESTED, HaltState.HALTED}:
        _end(row, halt_reason(row), _unfinished_of(row), now=now)
        return
    if waiting_on == WaitingOn.MODEL:
        wake_at = model_wait_note(row, model, is_busy=is_busy, now=now)
        if wake_at <= now:
            error = f"Model {model} did not answer. The run waited {settings.LQOPS_MODEL_WAIT_HOURS} hours for it."
            _end(row, TerminalReason.PROVIDER_ERROR, _unfinished_of(row), now=now, error=error)
            return
    if waiting_on == WaitingOn.RUNS:
        wake_at = runs_wait_note(row, now=now)
    if waiting_on is not None and not still_pending(row, waiting_on, runs):
        status, waiting_on, wake_at = (
            Status.QUEUED,
            None,
            None,
        )  # the decision came, or a run was over, before it rested
    if status == Status.SLEEPING and (early := early_wake_at(row, now=now)) is not None:
        if early <= now:
            status, wake_at = Status.QUEUED, None  # the alert came before the session slept
        else:
            wake_at = min(early, wake_at or early)
    check_move(row.status, status)
    row.status = status
    row.waiting_on = waiting_on or ""
    row.next_wake_at = wake_at
    row.lease_owner = ""
    row.lease_until = None
    row.recoveries = 0
    row.fencing += 1  # whatever of this slice still runs can no longer write
    row.save(
        update_fields=[
            "status",
            "waiting_on",
            "next_wake_at",
            "lease_owner",
            "lease_until",
            "recoveries",
            "fencing",
            "metadata",
        ]
    )
    if status == Status.QUEUED:
        session_enqueue(row.pk, now=now)


def session_finish(
    session: AgentSession,
    reason: TerminalReason,
    *,
    now: datetime,
    error: str = "",
    retry_at: datetime | None = None,
) -> AgentSession:
    """End a held session. What a brake recorded stands; whatever ends during a requested halt ends as halted.

    The halt of all work waits for nobody, so it is looked for again when everything is written.
    """
    try:
        return _finish(session, reason, now=now, error=error, retry_at=retry_at)
    except _HaltedMeanwhile:
        return _finish(session, reason, now=now, error=error)


class _HaltedMeanwhile(Exception):
    """All work was halted while a session was ending as completed."""


@transaction.atomic
def _finish(
    session: AgentSession, reason: TerminalReason, *, now: datetime, error: str, retry_at: datetime | None = None
) -> AgentSession:
    row = held(session)
    left = _unfinished_of(row)
    is_halted = row.halt_state == HaltState.HALT_REQUESTED or left.is_halted_with_all
    ended = _end(row, halt_reason(row) if is_halted else reason, left, now=now, error=error, retry_at=retry_at)
    if ended.status == Status.COMPLETED and _halts_of_all_work(row).exists():
        raise _HaltedMeanwhile
    return ended


class _Unfinished(NamedTuple):
    """Rows that the end of a session has to close, and counts that it records."""

    is_halted_with_all: bool
    has_open_calls: bool
    has_tickets: bool
    has_questions: bool
    has_notifications: bool
    calls: int


def _unfinished_of(row: AgentSession) -> _Unfinished:
    """Look for all of it by one statement. The caller holds the row."""
    calls = ToolCall.objects.filter(session=row)
    found = AgentSession.objects.filter(pk=row.pk).values_list(
        Exists(_halts_of_all_work(row)),
        Exists(calls.filter(outcome=Outcome.STARTED)),
        Exists(tickets_unused(row)),
        Exists(questions_open(row)),
        Exists(row.notifications.all()),
        CountOf(calls),
    )
    return _Unfinished(*found.get())


def _halts_of_all_work(row: AgentSession) -> QuerySet[Installation]:
    """Return the halt of all work since the session was created. Chats without a model go on under a halt."""
    return Installation.objects.filter(pk=1, halt__requested_at__gt=row.created_at)


def session_end_unheld(session: AgentSession, reason: TerminalReason, *, now: datetime, actor: str) -> AgentSession:
    """End a session that no worker holds. The caller has locked the row."""
    return _end(session, reason, _unfinished_of(session), now=now, actor=actor)


def _end(
    row: AgentSession,
    reason: TerminalReason,
    left: _Unfinished,
    *,
    now: datetime,
    error: str = "",
    actor: str = "system",
    retry_at: datetime | None = None,
) -> AgentSession:
    if left.has_open_calls:
        journal_recover(row, now=now)  # a call that is still open is charged and closed with the session
    if left.has_tickets:
        tickets_cancel(row, now=now, cause=reason, actor=actor)
    if left.has_questions:
        questions_cancel(row, now=now, actor=actor)
    braked = row.halt_state == HaltState.HALTED and row.terminal_reason is not None
    ended_for = TerminalReason(row.terminal_reason) if braked and row.terminal_reason else reason
    status = REASON_STATUS[ended_for]
    check_move(row.status, status)
    head = None
    if not braked:
        details = {"reason": ended_for, "result": result_of(row, ended_for)[0], **totals(row, calls=left.calls)}
        if status == Status.FAILED and error:
            named = error.partition(":")[0][:64]
            details["error_type"] = named if LABEL.fullmatch(named) else "error"
        head = recorder.append(row.chain, _TERMINAL_KIND[status], now=now, actor=actor, details=details)
    row.status = status
    row.terminal_reason = ended_for
    row.waiting_on = ""
    if row.paused_at is not None:
        row.paused_at = None
        Pause.objects.open().filter(session=row).update(resumed_at=now)  # there is nothing left to resume
    row.halt_state = HaltState.HALTED if status == Status.HALTED else row.halt_state
    row.completed_at = now
    row.next_wake_at = None
    row.lease_owner = ""
    row.lease_until = None
    row.error = redact(error)[:ERROR_CHARS]
    row.run_result, row.result_reason = result_of(row, ended_for)
    row.result = _receipt(row)
    row.save()
    recorder.close_chain(row.chain, now=now, after=head)
    unread = input_note_end(row, ended_for, retry_at=retry_at, now=now)
    _aftermath(row, ended_for, unread, is_notified=left.has_notifications, now=now)
    is_short = row.run_result in {RunResult.PARTIAL, RunResult.FAILED} and ended_for not in _REQUESTED
    level = logging.WARNING if is_short else logging.INFO
    log_run(row, "ended", level, status=status, reason=ended_for, result=row.run_result, spent_usd=row.spent_usd)
    return row


def result_of(row: AgentSession, reason: TerminalReason) -> tuple[RunResult, str]:
    """Return the result of a run that ends for this reason, and why, in words.

    A five-phase run has noted it. One that something stopped is partial if it has left findings behind.
    """
    if REASON_STATUS[reason] == Status.COMPLETED:
        noted = row.metadata.get("result")
        return (RunResult(noted), str(row.metadata.get("reason") or "")) if noted else (RunResult.OK, "")
    why = label_of("reason", str(reason))
    why = f"{why[:1].upper()}{why[1:]}."
    return (RunResult.PARTIAL if row.findings.exists() else RunResult.FAILED), why


def _aftermath(
    row: AgentSession, reason: TerminalReason, unread: UnreadInput | None, *, is_notified: bool, now: datetime
) -> None:
    """Notify the owner of a stopped run, close the loop's turn, count the run for its trigger.

    None of it keeps a session from ending.
    """
    try:
        with transaction.atomic():
            notify_end(row, reason=reason, unread=unread, is_notified=is_notified, now=now)
            if row.mode == Mode.LOOP:
                close_loop(row, reason=reason, now=now)
            # A further run for the same input says nothing new about its trigger, unless it has read it.
            if row.trigger_id is not None and (unread is None or unread.tries == 1):
                empty = bool(row.metadata.get("empty"))
                fault = str(row.metadata.get("fault") or "")
                trigger_note_end(row.trigger_id, reason=reason, empty=empty, fault=fault, now=now)
    except Exception:  # the session ends whether or not anybody can be notified
        logger.exception("the end of session %s could not be reported", row.public_id)


def _receipt(row: AgentSession) -> dict[str, Any] | None:
    """Build the receipt. One that cannot be built does not keep the session from ending; it can be built later."""
    try:
        with transaction.atomic():
            return build_receipt(row.chain)
    except Exception:  # the session ends with or without a stored receipt
        logger.exception("the receipt of session %s could not be built", row.public_id)
        return None
