"""Reading sessions: purposes, inputs, results so far, the timeline, names for receipts.

For many sessions at once each function runs a fixed number of statements.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.db.models import Q

from agents.enums import Mode, Outcome, ToolIntent, TriggerKind
from agents.models import AgentSession, Approval, Collection, Document, Halt, InboundEvent, Playbook, Question, ToolCall
from audit.kinds import TERMINAL_KINDS, usernames
from audit.models import AuditEvent
from audit.receipts import ApprovalSentences, call_label, with_names

SHOWN_DOCUMENTS: Final = 20
MESSAGE_CHARS: Final = 100
EVENT_CHARS: Final = 80
MOST_NAMED: Final = 200
PURPOSES: Final = ("trigger", "run_now", "goal", "chat", "loop", "heartbeat", "sensor")
_BY_ITSELF: Final[dict[str, str]] = {Mode.LOOP: "loop", Mode.SENSOR: "sensors", Mode.HEARTBEAT: "heartbeat"}


@dataclass(frozen=True)
class Read:
    """What a run was given to read: its collection, the first documents, and how many more there are."""

    collection: Collection | None
    documents: tuple[Document, ...]
    more: int
    left_out: int


def read_by(session: AgentSession) -> Read:
    """Return what a run read by its journal, or, before there is an entry, the document it was given."""
    calls = ToolCall.objects.filter(session=session, intent=ToolIntent.RETRIEVE_CHUNKS, outcome=Outcome.SUCCESS)
    summaries = [found or {} for found in calls.order_by("pk").values_list("result__summary", flat=True)]
    places = [place for summary in summaries for place in summary.get("passages", ())]
    given = [session.spec.document, *(place.get("document_id") for place in places)]
    ids = list(dict.fromkeys(filter(None, map(as_uuid, given))))
    known = {row.public_id: row for row in _rows(Document, ids[:SHOWN_DOCUMENTS]).defer("text")}
    return Read(
        collection=_rows(Collection, [as_uuid(session.spec.collection)]).first(),
        documents=tuple(known[one] for one in ids[:SHOWN_DOCUMENTS] if one in known),
        more=max(len(ids) - SHOWN_DOCUMENTS, 0),
        left_out=sum(summary.get("left_out", 0) for summary in summaries),
    )


def _rows(model: Any, public_ids: Sequence[uuid.UUID | None]) -> Any:
    return model._meta.default_manager.filter(public_id__in=[one for one in public_ids if one is not None])


def purposes(sessions: Sequence[AgentSession]) -> dict[int, str]:
    """Return by primary key what each session is for: what is checked, and by what."""
    playbooks = _names(Playbook, (session.spec.playbook for session in sessions))
    documents = _names(Document, (session.spec.document for session in sessions))
    collections = _names(Collection, (session.spec.collection for session in sessions))
    told = {session.pk: _purpose(session, playbooks, documents, collections) for session in sessions}
    return told | _purposes_of_events(sessions)


def _purposes_of_events(sessions: Sequence[AgentSession]) -> dict[int, str]:
    """Tell runs of one event trigger apart by their event. Events were redacted when they came in."""
    ids = {session.pk: found for session in sessions if (found := as_uuid(_event_id(session))) is not None}
    events = InboundEvent.objects.only("public_id", "title", "source", "event_type")
    rows = events.filter(public_id__in=set(ids.values())) if ids else ()
    said = {event.public_id: _cut(str(event).strip() or "an event", EVENT_CHARS) for event in rows}
    named = {session.pk: session.trigger.name for session in sessions if session.trigger}
    return {pk: f"{named.get(pk, 'event')}: {said[one]}" for pk, one in ids.items() if one in said}


def _event_id(session: AgentSession) -> object:
    """Return the event of a run, unless it was asked for in words."""
    spec = session.spec
    return None if session.params.get("message") or spec.goal else spec.event


def _cut(words: str, limit: int) -> str:
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def _purpose(
    session: AgentSession, playbooks: dict[str, str], documents: dict[str, str], collections: dict[str, str]
) -> str:
    spec = session.spec
    read = documents.get(spec.document) or collections.get(spec.collection)
    if read is None and spec.query:
        read = f"“{spec.query}”"
    if words := session.params.get("message") or spec.goal:
        return f"“{_cut(str(words), MESSAGE_CHARS)}”"
    by = spec.skill or playbooks.get(spec.playbook)
    if read and by:
        return f"{read} by {by}"
    return str(read or by or (session.trigger.name if session.trigger else _of_agent(session)))


def titled(words: str) -> Q:
    """Match sessions whose purpose contains these words: inputs, target, message, agent, trigger or event."""
    found = Q(agent__name__icontains=words) | Q(trigger__name__icontains=words)
    for name in ("message", "goal", "skill", "query"):
        found |= Q(**{f"params__{name}__icontains": words})
    models: dict[str, Any] = {"playbook": Playbook, "document": Document, "collection": Collection}
    for name, model in models.items():
        rows = model._meta.default_manager.filter(name__icontains=words).order_by("-pk")
        ids = [str(one) for one in rows.values_list("public_id", flat=True)[:MOST_NAMED]]
        found |= Q(**{f"params__{name}__in": ids})
    events = InboundEvent.objects.filter(title__icontains=words).order_by("-pk")
    ids = [str(one) for one in events.values_list("public_id", flat=True)[:MOST_NAMED]]
    return found | Q(params__event__id__in=ids)


def _of_agent(session: AgentSession) -> str:
    """Describe a session that has nothing but its agent."""
    kind = _BY_ITSELF.get(session.mode)
    return f"{kind} of {session.agent.name}" if kind and session.agent else f"{session.mode} run"


def purpose_kind(session: AgentSession) -> str:
    """Return in one word why it exists: loop, sensor, heartbeat, goal, chat, trigger or run_now."""
    if session.mode in _BY_ITSELF:
        return str(session.mode)
    if session.spec.goal or session.params.get("way") == "goal":
        return "goal"
    if session.mode == Mode.CHAT:
        return "chat"
    return "run_now" if session.trigger_kind == TriggerKind.MANUAL else "trigger"


def asked_by(session: AgentSession) -> str:
    """Return what started it: its trigger, its agent, or a person."""
    if session.trigger:
        return session.trigger.name
    if session.mode in _BY_ITSELF and session.agent:
        return f"{session.agent.name}, by itself"
    return "a chat" if session.mode == Mode.CHAT else "run by hand"


def _names(model: Any, public_ids: Iterable[object]) -> dict[str, str]:
    wanted = {found for given in public_ids if (found := as_uuid(given)) is not None}
    if not wanted:
        return {}
    rows = model._meta.default_manager.filter(public_id__in=wanted).values_list("public_id", "name")
    return {str(public_id): name for public_id, name in rows}


def as_uuid(given: object) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(given))
    except ValueError:
        return None


# --- Names beside the ids of a receipt: as of today, and not part of the receipt itself ---
#
# Who may read the audit log need not be allowed to see what it refers to: a name is shown to the session's owner and
# to those who may see the row itself.


def receipt_names(receipt: Mapping[str, Any], user: AbstractBaseUser | AnonymousUser) -> dict[str, Any]:
    """Return the names of its agent and trigger, and of the documents that it read."""
    public_id = as_uuid(receipt["session_id"])
    rows = AgentSession.objects.select_related("agent", "trigger")
    session = rows.filter(public_id=public_id).first() if public_id else None
    if session is None:
        return {}

    def may_see(thing: str) -> bool:
        return session.owner_id == user.pk or (isinstance(user, PermissionsMixin) and user.has_perm(f"agents.{thing}"))

    told: dict[str, Any] = {}
    if session.agent and may_see("view_agent"):
        told["agent_name"] = session.agent.name
    if session.trigger and may_see("view_trigger"):
        told["trigger_name"] = session.trigger.name
    if may_see("view_document"):
        read = read_by(session)
        told |= {"documents": read.documents, "more_documents": read.more}
    return told


# --- What a run has done so far, read from its journal; a resumed run knows nothing else of earlier slices ---


SEVERITIES: Final = ("critical", "warn", "info")
OTHER: Final = "other"


@dataclass(frozen=True)
class StoredResult:
    """A result of a run: the call, its key and, for a finding, its severity."""

    key: str
    intent: str
    severity: str


def by_severity(severities: Iterable[str]) -> Counter[str]:
    """Count by known severities. A severity is free text of a model; notifications show known words only."""
    return Counter(one if one in SEVERITIES else OTHER for one in severities)


def counted(found: Counter[str]) -> str:
    """Format counts, such as `1 critical, 2 warn`."""
    return ", ".join(f"{found[name]} {name}" for name in (*SEVERITIES, OTHER) if found[name]) or "none"


def call_latest(session: AgentSession, key: str) -> ToolCall | None:
    """Return the last attempt at the call with this key."""
    return ToolCall.objects.filter(session_id=session.pk, key=key).order_by("-attempt").first()


def arguments_asked(session: AgentSession, key: str) -> dict[str, Any] | None:
    """Return the arguments of that attempt, unless a person changed them.

    In SQL: it is read at every call.
    """
    rows = ToolCall.objects.raw(
        f"SELECT id, arguments, digest, asked_digest FROM {ToolCall._meta.db_table} "  # noqa: S608
        "WHERE session_id = %s AND key = %s ORDER BY attempt DESC LIMIT 1",
        [session.pk, key],
    )
    for made in rows:
        return made.arguments if made.digest == made.asked_digest else None
    return None


def calls_latest(session: AgentSession, *, under: str = "") -> dict[str, ToolCall]:
    """Return the last attempt at each call whose key begins with `under`, by key, in order of creation."""
    rows = ToolCall.objects.filter(session_id=session.pk, key__startswith=under)
    return {row.key: row for row in rows.order_by("pk")}


def stored_results(session: AgentSession) -> list[StoredResult]:
    """Return what the run has stored for its owner, in order: labels only, no content.

    A draft may not have been stored.
    """
    intents = (
        ToolIntent.EMIT_FINDING,
        ToolIntent.PROPOSE_MEMORY,
        ToolIntent.PROPOSE_PRECEDENT,
        ToolIntent.EMIT_ARTIFACT,
    )
    rows = ToolCall.objects.filter(session_id=session.pk, intent__in=intents, outcome=Outcome.SUCCESS).order_by("pk")
    return [
        StoredResult(key, intent, str(severity or ""))
        for key, intent, severity, stored in rows.values_list("key", "intent", "arguments__severity", "result__stored")
        if stored is not False
    ]


# --- Timeline: phases, calls with their cost, approvals, halts, the end, for people ---
#
# Built from the last rows of the session's chain; what those do not hold (reasons of halts, errors) is read from the
# rows they name. Bounded: a long session shows its latest part, and says so.


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
    """One line of the timeline. `sort` is phase, call, approval, question, halt, end or note; `look` its colour."""

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
    """What the audit log does not hold: calls, reasons of halts, texts of questions, names of refused skills."""

    calls: dict[str, ToolCall]
    halts: dict[int, str]
    questions: dict[str, str]
    refused: dict[str, str]


def timeline(session: AgentSession) -> Timeline:
    newest = list(AuditEvent.objects.filter(chain=session.chain).order_by("-seq")[: SHOWN_EVENTS + 1])
    events = newest[:SHOWN_EVENTS][::-1]
    found = Found(_calls(session, events), _halt_reasons(session, events), _asked(session, events), _refused(session))
    names = usernames(event.actor for event in events)
    about = ApprovalSentences(_actions(session, events))
    moments: list[Moment] = []
    places: dict[str, int] = {}
    for event in events:
        about.take(event.kind, event.actor, event.details)
        said = with_names(about.sentence(event.kind, event.details), names)
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
    """Build the moment of a call. `skill` names a call that got no further than requesting approval."""
    details = event.details
    outcome = str(details.get("outcome", ""))
    look = "good" if outcome in _GOOD else "warn" if outcome in _PENDING else "bad"
    nameless = details.get("tool") == ToolIntent.RUN_SKILL and not details.get("budget")
    what = call_label({"name": skill, **details} if nameless else details)
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
    """Return what the approvals of these rows are about; the row that says so may be older than the timeline."""
    ids = {str(event.details["approval_id"]) for event in events if event.details.get("approval_id")}
    rows = Approval.objects.filter(session=session, public_id__in=ids).values_list("public_id", "action")
    return {str(public_id): action for public_id, action in rows} if ids else {}


def _refused(session: AgentSession) -> dict[str, str]:
    """Return the skill that was denied or expired; none if there are several, since rows do not say which."""
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
