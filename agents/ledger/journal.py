"""The journal of calls: opened before a call is sent, settled with its outcome, replayed to a resumed run.

A call that a crash left open is charged in full and closed: as lost if it is safe to repeat, as unknown if it may have
taken effect; then a person decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db.models import F, QuerySet

from agents.enums import HaltState, Outcome, Purpose, Status, TerminalReason
from agents.exceptions import JournalMismatch, LeaseLost, OutcomeUnknown, SessionHalted
from agents.ledger.boundary import all_work_goes_on, holder, read_for_update
from agents.ledger.budgets import budgets_book, budgets_lock_again, budgets_reserve, budgets_settle, micro
from agents.models import AgentSession, ToolCall
from agents.policy.brakes import temporal
from agents.policy.costs import cost_of
from agents.types import ZERO, Ledger, Price, ToolResult, Usage, WireForm
from audit import recorder
from audit.kinds import TOOL_CALL
from audit.models import SkillAudit
from audit.recorder import Head

RETRY_LATER = "retry_later"
KEY_REFUSED = "key_refused"  # the model's server refused the key: only another model can answer
HALTED = "halted"  # a halt ended the call while it was out


@dataclass(frozen=True)
class Place:
    """A call's place in the journal: made before (`replay`), or to be made as attempt number `attempt`."""

    attempt: int
    replay: ToolResult | None = None


def journal_place(found: dict[str, Any] | None, *, asked_digest: str, by_fallback: bool = False) -> Place:
    """Return what the journal holds for the call at this place of the run."""
    if found is None:
        return Place(1)
    if (found["asked_digest"] or found["digest"]) != asked_digest:
        raise JournalMismatch(f"Call {found['key']!r} was made with other arguments before; the run is not repeatable.")
    outcome = Outcome(found["outcome"])
    if outcome == Outcome.STARTED:
        raise JournalMismatch(f"Call {found['key']!r} is in flight already.")
    if outcome == Outcome.UNKNOWN:
        raise OutcomeUnknown(f"Call {found['key']!r} may have taken effect; say what happened before the run goes on.")
    if _comes_again(outcome, found["detail"], by_fallback=by_fallback):
        return Place(found["attempt"] + 1)
    replay = ToolResult(
        cost_usd=found["charged_usd"],
        data=found["result"],
        outcome=outcome,
        error=found["error"],
        detail=found["detail"],
        call_id=str(found["public_id"]),
        replayed=True,
    )
    return Place(found["attempt"], replay)


def is_made_again(call: ToolCall) -> bool:
    """Return whether the call says nothing yet: it is out, or is made again when the run goes on."""
    return call.outcome == Outcome.STARTED or _comes_again(call.outcome, call.detail)


def _comes_again(outcome: str, detail: str, *, by_fallback: bool = False) -> bool:
    again = {RETRY_LATER, KEY_REFUSED} if by_fallback else {RETRY_LATER}
    return outcome == Outcome.WORKER_LOST or detail in again


def journal_open(
    call: ToolCall, *, session: AgentSession, ledgers: Sequence[Ledger], now: datetime, **more: Any
) -> Head:
    """Write the intent down: reservation, journal row, `started` audit row. The caller holds the locks.

    The UPDATE tests fencing and halt once more; a passing call takes the mark of the watchdog away.
    """
    priced = bool(call.model)
    changed: dict[str, Any] = {"halt_state": HaltState.RUNNING}
    if priced:
        changed |= {
            "cost_reserved_usd": F("cost_reserved_usd") + micro(call.approved_usd),
            "cost_held_usd": F("cost_held_usd") + micro(call.held_usd),
        }
    _update_going_on(session, **changed)
    if priced:
        budgets_reserve(ledgers, estimate=call.approved_usd, held=call.held_usd)
    call.save(force_insert=True)
    return journal_record(call, now=now, **more)


def _update_going_on(session: AgentSession, **changed: Any) -> None:
    """Write the row of a session whose call begins. A halt of all work since the verdict undoes the call."""
    if holder(session).filter(all_work_goes_on()).update(**changed) != 1:
        _update_held(session, fencing=session.fencing)  # raises if another worker holds it
        raise SessionHalted(TerminalReason.EXTERNAL_HALT, "All work was halted before the call began.")


def _update_held(session: AgentSession, **changed: Any) -> None:
    if holder(session).update(**changed) != 1:
        raise LeaseLost(f"Session {session.public_id} is not running under number {session.fencing} any more.")


def journal_retry(call: ToolCall, *, session: AgentSession, booked: Decimal, tokens: int) -> bool:
    """Book a failed attempt and keep its worst case held for the next one.

    Return False, writing nothing, if the session is stopped, a budget has no room for both, or the attempt cost more
    than its bound.
    """
    locked = read_for_update(session)
    ledgers = (locked.ledger, *budgets_lock_again(call.budget_ids))
    room = all(ledger.cap is None or ledger.exposed + booked <= ledger.cap for ledger in ledgers)
    if temporal(locked.boundary) is not None or not room or booked > call.held_usd:
        return False
    actual = {"cost_actual_usd": F("cost_actual_usd") + micro(booked), "total_tokens": F("total_tokens") + tokens}
    _update_held(session, **actual)
    budgets_book(call.budget_ids, actual=booked)
    ToolCall.objects.filter(pk=call.pk).update(actual_usd=F("actual_usd") + micro(booked), tokens=F("tokens") + tokens)
    return True


def journal_settle(
    call: ToolCall,
    *,
    session: AgentSession,
    booked: Decimal,
    tokens: int,
    after: Head | None,
    now: datetime,
    skill_call: SkillAudit | None = None,
) -> None:
    """Close an open call in the ledgers, the journal and the audit log.

    The caller has filled in the outcome; `booked` and `tokens` are those of the last attempt. A call in flight when a
    halt was requested is settled too. One that recovery has closed is not: its worker no longer holds the session.
    """
    held = AgentSession.objects.filter(pk=session.pk, fencing=session.fencing, status=Status.RUNNING)
    _close(call, held, booked=booked, tokens=tokens, now=now, last_activity_at=now)
    journal_record(call, now=now, after=after, skill_call=skill_call)


# The columns in which a call has its end
END: Final = (
    "outcome",
    "detail",
    "result",
    "error",
    "charged_usd",
    "actual_usd",
    "tokens",
    "settled_at",
    "unknown_since",
)


def _close(
    call: ToolCall, rows: QuerySet[AgentSession], *, booked: Decimal, tokens: int, now: datetime, **changed: Any
) -> None:
    """Move a call's money from reserved to charged and from held to actual: in session, budgets and journal."""
    if call.model:
        changed |= {
            "cost_reserved_usd": F("cost_reserved_usd") - micro(call.approved_usd),
            "cost_held_usd": F("cost_held_usd") - micro(call.held_usd),
            "cost_total_usd": F("cost_total_usd") + micro(call.charged_usd),
            "cost_actual_usd": F("cost_actual_usd") + micro(booked),
            "total_tokens": F("total_tokens") + tokens,
        }
    if changed and rows.update(**changed) != 1:
        raise LeaseLost(f"Call {call.public_id} is settled too late: another worker has taken its session.")
    if call.model:
        budgets_settle(
            call.budget_ids,
            approved=call.approved_usd,
            held=call.held_usd,
            charged=call.charged_usd,
            actual=booked,
        )
    call.settle(now)
    call.actual_usd = call.actual_usd + booked
    call.tokens = call.tokens + tokens
    call.save(update_fields=END)


def journal_local(
    call: ToolCall, *, session: AgentSession, after: Head | None, now: datetime, skill_call: SkillAudit | None
) -> None:
    """Write a local call whole, in the transaction of its effect: it is never seen open."""
    _update_going_on(session, halt_state=HaltState.RUNNING, last_activity_at=now)
    call.settle(now)
    call.save(force_insert=True)
    journal_record(call, now=now, after=after, skill_call=skill_call)


def journal_holds(session: AgentSession, keys: Sequence[str]) -> bool:
    """Return whether a call was made at one of these places of the run."""
    return ToolCall.objects.filter(session_id=session.pk, key__in=keys).exists()


def journal_local_all(calls: Sequence[ToolCall], *, session: AgentSession, after: Head, now: datetime) -> Head | None:
    """Write local calls whole, in the transaction of their effects. None: another writer was faster; undo it."""
    _update_going_on(session, halt_state=HaltState.RUNNING, last_activity_at=now)
    for call in calls:
        call.settle(now)
    ToolCall.objects.bulk_create(calls)
    return journal_record_all(calls, session=session, now=now, after=after)


def journal_record_all(
    calls: Sequence[ToolCall], *, session: AgentSession, now: datetime, after: Head | None = None
) -> Head | None:
    """Write one `tool_call` audit row for each call. None: another writer was faster; undo it."""
    return recorder.append_all(
        session.chain,
        TOOL_CALL,
        now=now,
        details=[call_details(one) for one in calls],
        after=after,
    )


def journal_record(
    call: ToolCall, *, now: datetime, after: Head | None = None, skill_call: SkillAudit | None = None, **more: Any
) -> Head:
    """Write one `tool_call` audit row with the call's outcome so far."""
    return recorder.append(
        str(call.session.public_id),
        TOOL_CALL,
        now=now,
        details={**call_details(call), **more},
        after=after,
        skill_call=skill_call,
    )


def journal_recover(row: AgentSession, *, now: datetime) -> bool:
    """Close every call that a lost worker left open, charging it in full.

    Return True if one of them may have taken effect. The caller holds the session's row. Local calls are never found
    here: their effect and their end are one commit.
    """
    unknown = False
    calls = list(ToolCall.objects.filter(session=row, outcome=Outcome.STARTED).order_by("pk"))
    for call in calls:
        outcome = Outcome.WORKER_LOST if call.repeatable else Outcome.UNKNOWN
        unknown = unknown or outcome == Outcome.UNKNOWN
        call.outcome = outcome
        call.charged_usd = call.approved_usd
        _close(call, AgentSession.objects.filter(pk=row.pk), booked=call.held_usd, tokens=0, now=now)
        journal_record(call, now=now)
    if calls:
        row.refresh_from_db()
    return unknown


def call_details(call: ToolCall) -> dict[str, Any]:
    """Return what the audit log holds of a call: ids, labels and amounts."""
    details: dict[str, Any] = {
        "call_id": call.call_id,
        "tool": call.intent,
        "phase": call.phase,
        "outcome": call.outcome,
        "cost_usd": str(call.approved_usd if call.outcome == Outcome.STARTED else call.charged_usd),
    }
    if call.name != call.intent:
        details["name"] = call.name
    if call.model:
        details |= {"model": call.model, "actual_usd": str(call.actual_usd)}
        asked = call.arguments.get("model", call.model)
        details |= {"instead_of": asked} if asked != call.model else {}
    if call.detail:
        details["detail"] = call.detail
    return details


# --- The log of model calls, from which estimates are made ---


@dataclass(frozen=True)
class Attempt:
    """One request to a provider, with what it reported."""

    number: int
    provider: str = ""
    usage: Usage | None = None
    contacted: bool = False
    refused: bool = False
    latency_ms: int = 0
    request_id: str = ""
    outcome: Outcome = Outcome.GATEWAY_ERROR
    stopped_after: int | None = None  # bytes of the reply that came in before it was ended, if they bound its cost
    form: WireForm | None = None  # in which a server took it
    streamed: bool = True

    def booked(self, price: Price, *, worst: Decimal) -> Decimal:
        """Return the cost of the reported tokens, or the worst case if the server was reached and reported none."""
        if not self.contacted:
            return ZERO
        return worst if self.usage is None else cost_of(price, self.usage)

    @property
    def tokens(self) -> int:
        return self.usage.total if self.usage else 0


def inference_log(
    call: ToolCall, attempt: Attempt, *, purpose: Purpose, booked: Decimal, now: datetime
) -> dict[str, Any]:
    """Return the columns of an attempt's row in the log of model calls.

    Without a report `cost_estimate` stays empty: a guess must not calibrate.
    """
    usage = attempt.usage or Usage(0, 0)
    return {
        "session_id": call.session_id,
        "provider": attempt.provider,
        "model": call.model,
        "purpose": purpose,
        "attempt": attempt.number,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "approved_usd": call.approved_usd,
        "cost_estimate": booked if attempt.usage is not None else None,
        "latency_ms": attempt.latency_ms,
        "request_id": attempt.request_id,
        "refused": attempt.refused,
        "outcome": attempt.outcome,
        "created_at": now,
    }
