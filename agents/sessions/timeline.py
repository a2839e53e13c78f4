"""What happened in a session, in order, for people: phases, calls with their cost, approvals, halts, the end.

Folded from the last rows of the session's chain; what the record does not hold (reasons of halts, errors) comes from
the rows that it names. Bounded: a long session shows its latest part, and says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from agents.enums import Outcome, ToolIntent
from agents.models import AgentSession, Approval, Halt, Question, ToolCall
from audit.kinds import TERMINAL_KINDS, usernames
from audit.models import AuditEvent
from audit.receipt_text import with_names
from audit.receipts import Approvals, called

SHOWN_EVENTS: Final = 600
CALL: Final = "autonomous_session.tool_call"
PHASE: Final = "autonomous_session.phase_transition"
HALT: Final = "autonomous_session.halt_requested"
_GOOD: Final = frozenset({Outcome.SUCCESS})
_PENDING: Final = frozenset({Outcome.STARTED, Outcome.APPROVAL_PENDING, Outcome.UNKNOWN, Outcome.WORKER_LOST})
_QUESTIONS: Final = {
    "question.asked": "The run asked a person.",
    "question.closed": "Its question was {status}.",
    "question.reminded": "The owner was reminded of its question.",
}
_END_LOOKS: Final = {"autonomous_session.completed": "good", "autonomous_session.failed": "bad"}


@dataclass(frozen=True)
class Moment:
    """One line: `sort` is phase, call, approval, question, halt, end or note; `look` says how grave it is."""

    at: datetime
    sort: str
    title: str
    look: str = ""
    actor: str = ""
    phase: str = ""
    outcome: str = ""
    detail: str = ""
    model: str = ""
    cost_usd: str = ""
    actual_usd: str = ""
    took_ms: int | None = None
    error: str = ""
    call_pk: int | None = None


@dataclass(frozen=True)
class Timeline:
    moments: tuple[Moment, ...]
    left_out: bool


@dataclass(frozen=True)
class Found:
    """What the record does not hold: rows of calls, reasons of halts, texts of questions, and by the way in which it
    was not allowed the one skill that was not."""

    calls: dict[str, ToolCall]
    halts: dict[int, str]
    questions: dict[str, str]
    refused: dict[str, str]


def timeline(session: AgentSession) -> Timeline:
    newest = list(AuditEvent.objects.filter(chain=session.chain).order_by("-seq")[: SHOWN_EVENTS + 1])
    events = newest[:SHOWN_EVENTS][::-1]
    found = Found(_calls(session, events), _halt_reasons(session, events), _asked(session, events), _refused(session))
    names, about = usernames(event.actor for event in events), Approvals(_actions(session, events))
    moments: list[Moment] = []
    places: dict[str, int] = {}
    for event in events:
        about.take(event.kind, event.actor, event.details)
        said = with_names(about.told(event.kind, event.details), names)
        moment = _moment(event, found, said, action=about.action(event.details) or "")
        moment = replace(moment, actor=names.get(moment.actor, moment.actor))
        call_id = event.details.get("call_id") if event.kind == CALL else None
        if call_id in places:
            begun = moments[places[call_id]]
            moments[places[call_id]] = replace(moment, at=begun.at, took_ms=_milliseconds(begun.at, event.at))
            continue
        if call_id is not None:
            places[call_id] = len(moments)
        moments.append(moment)
    return Timeline(tuple(moments), left_out=len(newest) > SHOWN_EVENTS)


def _moment(event: AuditEvent, found: Found, said: str, *, action: str) -> Moment:
    actor = "" if event.actor == "system" else event.actor
    if event.kind == CALL:
        skill = action or found.refused.get(str(event.details.get("detail")), "")
        return _call_moment(event, found.calls.get(str(event.details.get("call_id"))), skill)
    if event.kind == PHASE:
        return Moment(event.at, "phase", str(event.details.get("to_phase", "")), "info")
    if event.kind == HALT:
        why = found.halts.get(event.details.get("halt_id", 0), "")
        return Moment(event.at, "halt", said, "bad", actor=actor, detail=why)
    if event.kind in TERMINAL_KINDS:
        return Moment(event.at, "end", said, _END_LOOKS.get(event.kind, "warn"), actor=actor)
    if (text := found.questions.get(str(event.details.get("question_id")))) and event.kind in _QUESTIONS:
        title = _QUESTIONS[event.kind].format(status=event.details.get("status"))
        return Moment(event.at, "question", title, actor=actor, detail=text)
    sort = "approval" if event.kind.startswith("approval.") else "note"
    look = "warn" if event.kind in {"approval.requested", "budget.warned", "model.suspended"} else ""
    return Moment(event.at, sort, said, look, actor=actor)


def _call_moment(event: AuditEvent, call: ToolCall | None, skill: str) -> Moment:
    """`skill` names a call that went no further than asking for leave: its row has no name."""
    details = event.details
    outcome = str(details.get("outcome", ""))
    look = "good" if outcome in _GOOD else "warn" if outcome in _PENDING else "bad"
    nameless = details.get("tool") == ToolIntent.RUN_SKILL and not details.get("budget")
    what = called({"name": skill, **details} if nameless else details)
    return Moment(
        event.at,
        "call",
        what[:1].upper() + what[1:],
        look,
        phase=str(details.get("phase", "")),
        outcome=outcome,
        detail=str(details.get("detail", "")),
        model=str(details.get("model", "")),
        cost_usd=str(details.get("cost_usd", "")),
        actual_usd=str(details.get("actual_usd", "")),
        error=call.error if call else "",
        call_pk=call.pk if call else None,
    )


def _actions(session: AgentSession, events: Iterable[AuditEvent]) -> dict[str, str]:
    """What the approvals of these rows are about: the row that says so may be older than what is shown."""
    ids = {str(event.details["approval_id"]) for event in events if event.details.get("approval_id")}
    rows = Approval.objects.filter(session=session, public_id__in=ids).values_list("public_id", "action")
    return {str(public_id): action for public_id, action in rows} if ids else {}


def _refused(session: AgentSession) -> dict[str, str]:
    """The skill that was rejected, or whose request expired; none where there are several: rows do not say which."""
    rows = Approval.objects.filter(session=session, intent=ToolIntent.RUN_SKILL).values_list("status", "action")
    known = set(rows.distinct())
    statuses = [status for status, _ in known]
    return {status: action for status, action in known if statuses.count(status) == 1}


def _asked(session: AgentSession, events: Iterable[AuditEvent]) -> dict[str, str]:
    ids = {str(event.details["question_id"]) for event in events if event.details.get("question_id")}
    rows = Question.objects.filter(session=session, public_id__in=ids).values_list("public_id", "text")
    return {str(public_id): text for public_id, text in rows} if ids else {}


def _calls(session: AgentSession, events: Iterable[AuditEvent]) -> dict[str, ToolCall]:
    wanted = {event.details["call_id"] for event in events if event.kind == CALL and event.details.get("call_id")}
    rows = ToolCall.objects.filter(session=session, public_id__in=wanted).only("public_id", "error", "session_id")
    return {str(row.public_id): row for row in rows}


def _halt_reasons(session: AgentSession, events: Iterable[AuditEvent]) -> dict[int, str]:
    ids: set[Any] = {event.details.get("halt_id") for event in events if event.kind == HALT}
    return dict(Halt.objects.filter(pk__in=[pk for pk in ids if pk]).values_list("pk", "reason"))


def _milliseconds(start: datetime, end: datetime) -> int:
    return int((end - start).total_seconds() * 1000)
