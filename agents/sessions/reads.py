"""Reading sessions: purposes, inputs, progress, results so far, the timeline, names for receipts.

For many sessions at once each function runs a fixed number of statements.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import groupby
from typing import Any, Final

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin, User
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from agents.enums import Mode, Outcome, Phase, RunResult, Status, ToolIntent, TriggerKind
from agents.models import AgentSession, Collection, Document, Halt, InboundEvent, Playbook, ToolCall
from agents.policy.outcomes import REASONS, REFUSED, outcome_code, outcome_text
from agents.policy.transitions import TERMINAL
from audit.kinds import TERMINAL_KINDS, TOOL_CALL, usernames
from audit.models import AuditEvent, SkillAudit
from audit.receipts import ApprovalSentences, call_label, with_names

SHOWN_DOCUMENTS: Final = 20
MESSAGE_CHARS: Final = 100
EVENT_CHARS: Final = 80
MOST_NAMED: Final = 200
MOST_SEARCHED: Final = 10_000
PURPOSES: Final = ("trigger", "run_now", "goal", "chat", "loop", "heartbeat", "sensor", "index")
_NAMED: Final[dict[Any, str]] = {Playbook: "playbook", Document: "document", Collection: "collection"}
_BY_ITSELF: Final[dict[str, str]] = {
    Mode.LOOP: "loop",
    Mode.SENSOR: "sensors",
    Mode.HEARTBEAT: "heartbeat",
    Mode.INDEX: "index",
}


@dataclass(frozen=True)
class Read:
    """The inputs of a run: its collection, the first documents, and how many more there are."""

    collection: Collection | None
    documents: tuple[Document, ...]
    more: int
    left_out: int
    words_only: str = ""  # why it did not search by meaning, if it should have


def read_by(session: AgentSession) -> Read:
    """Return what a run read by its journal, or, before there is an entry, the document it was given."""
    calls = ToolCall.objects.filter(session=session, intent=ToolIntent.RETRIEVE_CHUNKS, outcome=Outcome.SUCCESS)
    summaries = [found or {} for found in calls.order_by("pk").values_list("result__summary", flat=True)]
    places = [place for summary in summaries for place in summary.get("passages", ())]
    given = [session.spec.document, *(place.get("document_id") for place in places)]
    ids = list(dict.fromkeys(filter(None, map(as_uuid, given))))
    known = {row.public_id: row for row in _rows(Document, ids[:SHOWN_DOCUMENTS]).defer("text")}
    return Read(
        collection=_rows(Collection, [session.spec.collection]).first(),
        documents=tuple(known[one] for one in ids[:SHOWN_DOCUMENTS] if one in known),
        more=max(len(ids) - SHOWN_DOCUMENTS, 0),
        left_out=sum(summary.get("left_out", 0) for summary in summaries),
        words_only=next((str(one["words_only"]) for one in summaries if one.get("words_only")), ""),
    )


def _rows(model: Any, public_ids: Iterable[object]) -> Any:
    wanted = {found for given in public_ids if (found := as_uuid(given)) is not None}
    return model._meta.default_manager.filter(public_id__in=wanted)


def purposes(sessions: Sequence[AgentSession]) -> dict[int, str]:
    """Return by primary key what each session is for: what is checked, and by what.

    Runs of one event trigger are told apart by their event, which was redacted when it came in.
    """
    specs = [session.spec for session in sessions]
    names: dict[str, str] = {}
    if ids := [spec.event for spec in specs if spec.event]:
        events = _rows(InboundEvent, ids).only("public_id", "title", "source", "event_type")
        names = {str(event.public_id): _cut(str(event).strip() or "an event", EVENT_CHARS) for event in events}
    wanted = {model: [one for spec in specs if (one := getattr(spec, field))] for model, field in _NAMED.items()}
    # A part for each kind of input that a run has, for each part takes longer to compose than to run.
    parts = [_rows(model, ids).values_list("public_id", "name") for model, ids in wanted.items() if ids]
    if parts:
        names |= {str(public_id): name for public_id, name in parts[0].union(*parts[1:], all=True)}
    return {session.pk: _purpose(session, names) for session in sessions}


def _cut(words: str, limit: int) -> str:
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def _purpose(session: AgentSession, names: Mapping[str, str]) -> str:
    spec = session.spec
    trigger = session.trigger.name if session.trigger else ""
    if own := session.metadata.get("purpose"):
        return str(own)
    if words := session.params.get("message") or spec.goal:
        return f"“{_cut(str(words), MESSAGE_CHARS)}”"
    if event := names.get(str(spec.event)):
        return f"{trigger or 'event'}: {event}"
    read = names.get(spec.document) or names.get(spec.collection) or (f"“{spec.query}”" if spec.query else "")
    by = spec.skill or names.get(spec.playbook)
    if read and by:
        return f"{read} by {by}"
    return read or by or trigger or _of_agent(session)


def newest(model: type[Model]) -> Q:
    """Select the newest rows of a table: what no index serves looks at no more than MOST_SEARCHED of them."""
    pks: Any = QuerySet(model).order_by("-pk").values_list("pk", flat=True)
    oldest = list(pks[MOST_SEARCHED - 1 : MOST_SEARCHED])
    return Q(pk__gte=oldest[0]) if oldest else Q()


def titled(words: str, *, owner: User | None = None) -> Q:
    """Match sessions whose purpose contains these words: inputs, target, message, agent, trigger or event.

    With an owner, inputs and events of others are left out: they would take the places of one's own.
    """
    own = Q() if owner is None else Q(owner=owner)
    found = Q(agent__name__icontains=words) | Q(trigger__name__icontains=words)
    for name in ("message", "goal", "skill", "query"):
        found |= Q(**{f"params__{name}__icontains": words})
    for model, name in _NAMED.items():
        rows = model._meta.default_manager.filter(own, newest(model), name__icontains=words).order_by("-pk")
        ids = [str(one) for one in rows.values_list("public_id", flat=True)[:MOST_NAMED]]
        found |= Q(**{f"params__{name}__in": ids})
    events = InboundEvent.objects.filter(own, newest(InboundEvent), title__icontains=words).order_by("-pk")
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


_SESSION: Final = "session:"


def asked_by(session: AgentSession) -> str:
    """Return what started it: its trigger, its agent, or a person."""
    if session.trigger:
        return session.trigger.name
    if session.mode in _BY_ITSELF and session.agent:
        return f"{session.agent.name}, by itself"
    if str(session.metadata.get("asked_by", "")).startswith(_SESSION):
        return f"another run of {session.agent.name}" if session.agent else "another run"
    return "a chat" if session.mode == Mode.CHAT else "run by hand"


def started_by(session: AgentSession) -> str:
    """Return how the runs that a session starts name it."""
    return f"{_SESSION}{session.public_id}"


def parent_of(session: AgentSession) -> uuid.UUID | None:
    """Return the public id of the session that started this one; None if none did."""
    actor = str(session.metadata.get("asked_by", ""))
    return as_uuid(actor.removeprefix(_SESSION)) if actor.startswith(_SESSION) else None


def as_uuid(given: object) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(given))
    except ValueError:
        return None


# --- How far a run has read ---


@dataclass(frozen=True)
class Progress:
    """The section that a run reads now, how many there are, and about what all of them cost."""

    section: int
    sections: int
    estimate_usd: Decimal

    def __str__(self) -> str:
        return f"section {self.section} of {self.sections}"


def progress_of(session: AgentSession) -> Progress | None:
    """Return how far a run has read; None unless it is reading in more than one section."""
    noted = session.metadata.get("reading") or {}
    sections = noted.get("sections") or 1
    is_reading = session.current_phase == Phase.ANALYSIS and session.status not in TERMINAL
    if not is_reading or sections == 1 or noted.get("stopped"):
        return None
    return Progress(min(noted["read"] + 1, sections), sections, Decimal(noted["estimate_usd"]))


# --- Names beside the ids of a receipt: as of today, and not part of the receipt itself ---
#
# Who may read the audit log need not be allowed to see what it refers to: a name is shown to the session's owner and
# to those who may see the row itself.


def halt_reasons(ids: Iterable[int]) -> dict[int, str]:
    """Return the reasons of halts by their ids, for receipts."""
    return dict(Halt.objects.filter(pk__in=ids).values_list("pk", "reason"))


def kept_receipt(chain: str) -> dict[str, Any] | None:
    """Return the short receipt that an archived run has left."""
    public_id = as_uuid(chain)
    rows = AgentSession.objects.filter(public_id=public_id, archived_at__isnull=False) if public_id else None
    return None if rows is None else rows.values_list("result", flat=True).first()


def receipt_names(receipt: Mapping[str, Any], user: AbstractBaseUser | AnonymousUser) -> dict[str, Any]:
    """Return the names of its agent and trigger, and of the documents that it read."""
    public_id = as_uuid(receipt["session_id"])
    rows = AgentSession.objects.select_related("agent", "trigger")
    session = rows.filter(public_id=public_id).first() if public_id else None
    if session is None:
        return {}

    def may_see(thing: str) -> bool:
        return session.owner_id == user.pk or (isinstance(user, PermissionsMixin) and user.has_perm(f"agents.{thing}"))

    names: dict[str, Any] = {}
    if session.agent and may_see("view_agent"):
        names["agent_name"] = session.agent.name
    if session.trigger and may_see("view_trigger"):
        names["trigger_name"] = session.trigger.name
    if may_see("view_document"):
        read = read_by(session)
        names |= {"documents": read.documents, "more_documents": read.more}
    return names


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
    """Return the arguments of that attempt, unless a person changed them."""
    if not _may_hold(session, [key]):
        return None
    rows = ToolCall.objects.filter(session_id=session.pk, key=key).order_by("-attempt")
    made = rows.values_list("arguments", "digest", "asked_digest").first()
    return made[0] if made and made[2] in ("", made[1]) else None


def _may_hold(session: AgentSession, keys: Sequence[str]) -> bool:
    """Return whether the journal may hold one of these keys: of a run's first worker only those of its own calls."""
    return session.called_keys is None or not session.called_keys.isdisjoint(keys)


def all_arguments_asked(session: AgentSession, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the arguments of the last attempt at each of these calls, by key, unless a person changed them."""
    if not _may_hold(session, keys):
        return {}
    rows = ToolCall.objects.filter(session_id=session.pk, key__in=keys).order_by("attempt")
    made = {key: found for key, *found in rows.values_list("key", "arguments", "digest", "asked_digest")}
    return {key: arguments for key, (arguments, digest, asked) in made.items() if asked in ("", digest)}


def calls_latest(session: AgentSession, *, under: Iterable[str] = ("",)) -> dict[str, ToolCall]:
    """Return the last attempt at each call whose key begins with one of `under`, by key, in order of creation."""
    under = tuple(under)
    if session.called_keys is not None and not any(key.startswith(under) for key in session.called_keys):
        return {}
    begins = Q()
    for beginning in under:
        begins |= Q(key__startswith=beginning)
    return {row.key: row for row in ToolCall.objects.filter(begins, session_id=session.pk).order_by("pk")}


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
PHASE: Final = "autonomous_session.phase_transition"
HALT: Final = "autonomous_session.halt_requested"
COMPLETED: Final = "autonomous_session.completed"
_GOOD: Final = frozenset({Outcome.SUCCESS})
_PENDING: Final = frozenset({Outcome.STARTED, Outcome.APPROVAL_PENDING, Outcome.UNKNOWN, Outcome.WORKER_LOST})
_QUESTIONS: Final = {
    "question.asked": "The run asked a person.",
    "question.closed": "Its question was {status}.",
    "question.reminded": "The owner was reminded of its question.",
}
_END_LOOKS: Final = {COMPLETED: "good", "autonomous_session.failed": "bad"}
_RESULT_LOOKS: Final = {RunResult.PARTIAL: "warn", RunResult.FAILED: "bad"}


@dataclass(frozen=True)
class Moment:
    """One line of the timeline. `sort` is phase, call, approval, question, halt, end or note; `look` its colour."""

    at: datetime
    sort: str
    title: str
    look: str = ""
    actor: str = ""
    outcome: str = ""
    detail: str = ""
    model: str = ""
    spent_usd: str = ""
    took_ms: int | None = None
    error: str = ""
    call_pk: int | None = None
    kind: str = ""
    code: str = ""
    reason: str = ""

    @property
    def outcome_text(self) -> str:
        return outcome_text(self.code)

    @property
    def is_refused(self) -> bool:
        return self.outcome in REFUSED


@dataclass(frozen=True)
class Timeline:
    moments: tuple[Moment, ...]
    left_out: bool


def timeline(session: AgentSession) -> Timeline:
    newest = list(AuditEvent.objects.filter(chain=session.chain).order_by("-seq")[: SHOWN_EVENTS + 1])
    events = newest[:SHOWN_EVENTS][::-1]
    calls = _named_rows(events, "call_id", session.tool_calls.all(), "public_id", "pk", "error")
    details = _named_rows(events, "halt_id", Halt.objects.all(), "pk", "reason")
    details |= _named_rows(events, "question_id", session.questions.all(), "public_id", "text")
    reasons = _reasons(session, events)
    actions = _named_rows(events, "approval_id", session.approvals.all(), "public_id", "action")
    about = ApprovalSentences({public_id: action for public_id, (action,) in actions.items()})
    names = {**usernames(event.actor for event in events), "system": ""}
    moments: dict[object, Moment] = {}
    for event in events:
        about.take(event.kind, event.actor, event.details)
        if event.kind == TOOL_CALL:
            key = event.details.get("call_id") or event.pk
            moment = _call_moment(event, calls.get(str(key)), about.action(event.details) or "")
            moment = replace(moment, reason=reasons.get(event.seq, ""))
            if begun := moments.get(key):
                took = (event.at - begun.at).total_seconds()
                moment = replace(moment, at=begun.at, took_ms=int(took * 1000))
        else:
            key = event.pk
            text = with_names(about.sentence(event.kind, event.details), names)
            named = event.details.get("halt_id") or event.details.get("question_id")
            moment = _moment(event, text, names.get(event.actor, event.actor), *details.get(str(named), ("",)))
        moments[key] = replace(moment, kind=event.kind)
    return Timeline(tuple(moments.values()), left_out=len(newest) > SHOWN_EVENTS)


def _named_rows(events: Iterable[AuditEvent], key: str, rows: QuerySet[Any], *columns: str) -> dict[str, Any]:
    """Return the rows whose id the events name under this key: the first column, and the others as a tuple.

    What is no id, as in a log that was changed, names no row.
    """
    id_field = rows.model._meta.pk if columns[0] == "pk" else rows.model._meta.get_field(columns[0])
    ids = set()
    for event in events:
        with suppress(ValidationError):
            ids.add(id_field.to_python(event.details.get(key)))
    found = rows.filter(**{f"{columns[0]}__in": ids - {None}}).values_list(*columns)
    return {str(first): tuple(others) for first, *others in found}


def _reasons(session: AgentSession, events: Iterable[AuditEvent]) -> dict[int, str]:
    """Return by the place of their events why calls were refused: the approver's note, the rule, the limit, the cap."""
    refused = [one for one in events if one.kind == TOOL_CALL and one.details.get("outcome") in REFUSED]
    places = [event.seq for event in refused]
    told = SkillAudit.objects.filter(chain=session.chain, seq__in=places).values_list("seq", "output_summary")
    known = {event.seq: REASONS.get(str(event.details.get("detail", "")), "") for event in refused}
    return known | {seq: text for seq, text in told if seq is not None} if refused else {}


def _moment(event: AuditEvent, text: str, actor: str, detail: str) -> Moment:
    """Build the moment of anything but a call. `detail` is the reason of a halt or the text of a question."""
    if event.kind == PHASE:
        return Moment(event.at, "phase", str(event.details.get("to_phase", "")), "info")
    if event.kind == HALT:
        return Moment(event.at, "halt", text, "bad", actor=actor, detail=detail)
    if event.kind in TERMINAL_KINDS:
        look = _END_LOOKS.get(event.kind, "warn")
        if event.kind == COMPLETED:
            look = _RESULT_LOOKS.get(event.details.get("result"), look)
        return Moment(event.at, "end", text, look, actor=actor)
    if event.kind in _QUESTIONS and detail:
        title = _QUESTIONS[event.kind].format(status=event.details.get("status"))
        return Moment(event.at, "question", title, actor=actor, detail=detail)
    sort = "approval" if event.kind.startswith("approval.") else "note"
    look = "warn" if event.kind in {"approval.requested", "budget.warned", "model.suspended"} else ""
    return Moment(event.at, sort, text, look, actor=actor)


def _spent(details: Mapping[str, Any]) -> str:
    """Return what a call cost: the larger of approved and reported cost, or what is there, if it cannot be read."""
    approved = str(details.get("cost_usd", ""))
    try:
        return str(max(Decimal(approved), Decimal(str(details.get("actual_usd", "")))))
    except InvalidOperation:
        return approved


def _call_moment(event: AuditEvent, call: tuple[int, str] | None, skill: str) -> Moment:
    """Build the moment of a call. `skill` names a call that got no further than requesting approval."""
    details = event.details
    outcome = str(details.get("outcome", ""))
    look = "good" if outcome in _GOOD else "warn" if outcome in _PENDING else "bad"
    nameless = details.get("tool") == ToolIntent.RUN_SKILL and not details.get("budget")
    label = call_label({"name": skill, **details} if nameless else details)
    call_pk, error = call or (None, "")
    return Moment(
        event.at,
        "call",
        label[:1].upper() + label[1:],
        look,
        outcome=outcome,
        detail=str(details.get("detail", "")),
        model=str(details.get("model", "")),
        spent_usd=_spent(details),
        error=error,
        call_pk=call_pk,
        code=outcome_code(outcome, detail=str(details.get("detail", "")), brake=str(details.get("brake", ""))),
    )


# --- Waterfall: the same moments as bars to scale ---


PICKED_UP: Final = frozenset({"autonomous_session.started", "autonomous_session.resumed"})
LEAST_REPEATED: Final = 3
PAUSED: Final = "Paused"
RESUME_REQUESTED: Final = "autonomous_session.resume_requested"
SHORTEST_WAIT: Final = timedelta(milliseconds=100)
_WAITS: Final = {
    "autonomous_session.pause_requested": PAUSED,
    "approval.requested": "Waiting for approval",
    "question.asked": "Waiting for an answer",
}
_REPEATED: Final = {
    ToolIntent.EMIT_FINDING: "findings written",
    ToolIntent.RETRIEVE_CHUNKS: "searches",
    ToolIntent.PROPOSE_MEMORY: "memories proposed",
    ToolIntent.PROPOSE_PRECEDENT: "precedents proposed",
    ToolIntent.EMIT_ARTIFACT: "documents written",
}


@dataclass(frozen=True)
class Span:
    """One bar. `sort` is phase, work, wait, call or brake; left and width are percent of the whole."""

    sort: str
    title: str
    look: str
    began: datetime
    ended: datetime
    left: float = 0
    width: float = 0
    outcome: str = ""
    outcome_text: str = ""
    call_pk: int | None = None
    intent: str = ""
    inner: tuple["Span", ...] = ()
    is_folded: bool = False

    @property
    def took(self) -> timedelta:
        return self.ended - self.began

    @property
    def is_open(self) -> bool:
        return self.outcome == Outcome.STARTED


@dataclass(frozen=True)
class Waterfall:
    """The bars of a run, in order of their beginning, from when it was created to its end or now.

    `waited` is the length of the waits that are folded or, drawn to scale, could be.
    """

    began: datetime
    ended: datetime
    spans: tuple[Span, ...]
    waited: timedelta = timedelta()

    @property
    def took(self) -> timedelta:
        return self.ended - self.began


@dataclass(frozen=True)
class _Scale:
    """Places on the line in seconds from its left end; a folded wait is drawn as long as `fold` seconds."""

    first: datetime
    waits: tuple[Span, ...] = ()
    fold: float = 0

    @classmethod
    def of(cls, first: datetime, last: datetime, spans: Iterable[Span]) -> "_Scale":
        """Fold waits if they take longer than the rest of the run; together they then take a fifth of the line."""
        waits = [span for span in spans if span.sort == "wait"]
        waited = sum(span.took.total_seconds() for span in waits)
        work = (last - first).total_seconds() - waited
        if not 0 < work < waited:
            return cls(first)
        fold = work / (4 * len(waits))
        return cls(first, tuple(span for span in waits if span.took.total_seconds() > fold), fold)

    @property
    def waited(self) -> timedelta:
        return sum((span.took for span in self.waits), timedelta())

    def at(self, moment: datetime) -> float:
        """Return the place of a moment; inside a folded wait, its share of the fold."""
        place = (moment - self.first).total_seconds()
        for wait in self.waits:
            left_out = wait.took.total_seconds() - self.fold
            passed = (min(moment, wait.ended) - wait.began) / wait.took
            place -= left_out * max(passed, 0)
        return place


def waterfall(
    session: AgentSession, line: Timeline, calls: Iterable[ToolCall], *, now: datetime, folds_waits: bool = False
) -> Waterfall:
    """Build the bars from a timeline and the calls of a run; it reads no rows."""
    first = min([session.created_at, *(moment.at for moment in line.moments)])
    if line.left_out:
        first = line.moments[0].at
    last = max([session.completed_at or now, *(_end_of(moment, now) for moment in line.moments)])
    known = {call.pk: call for call in calls}
    spans = [*_phase_spans(line, last), *_work_spans(session, line, first, last)]
    spans += [_call_span(moment, known, now) for moment in line.moments if moment.sort == "call"]
    spans += [
        Span("brake", moment.title, moment.look, moment.at, moment.at)
        for moment in line.moments
        if moment.sort == "halt" or (moment.sort == "end" and moment.look != "good")
    ]
    order = {"phase": 0, "wait": 1, "work": 2, "call": 3, "brake": 4}
    placed = sorted(spans, key=lambda span: (span.began, order[span.sort]))
    folded = _Scale.of(first, last, placed)
    scale = folded if folds_waits else _Scale(first)
    whole = max(scale.at(last), 0.001)
    return Waterfall(first, last, tuple(_placed(span, scale, whole) for span in _folded(placed)), folded.waited)


def _end_of(moment: Moment, now: datetime) -> datetime:
    if moment.sort == "call" and moment.took_ms is None and moment.outcome == Outcome.STARTED:
        return now
    return moment.at + timedelta(milliseconds=moment.took_ms or 0)


def _phase_spans(line: Timeline, last: datetime) -> list[Span]:
    phases = [moment for moment in line.moments if moment.sort == "phase"]
    ends = [*(moment.at for moment in phases[1:]), last]
    return [Span("phase", moment.title, "info", moment.at, end) for moment, end in zip(phases, ends, strict=False)]


def _work_spans(session: AgentSession, line: Timeline, first: datetime, last: datetime) -> list[Span]:
    """Return the slices in which a worker held the run, and the waits before and between them."""
    rest = "Sleeping" if session.mode == Mode.LOOP else "Waiting for a worker"
    held: datetime | None = None  # since when a worker holds it
    until, waits = first, [(first, "Queued")]
    spans: list[Span] = []
    for moment in line.moments:
        if moment.kind in PICKED_UP:
            spans += [*_slice(held, until), *_waiting(waits, until, moment.at)]
            held = until = moment.at
            waits = [(moment.at, rest)]
        elif moment.sort in {"call", "phase"} or (moment.kind in _WAITS and len(waits) == 1):
            until = max(until, moment.at + timedelta(milliseconds=moment.took_ms or 0))
        waits += _new_wait(moment, waits)
    at_rest = len(waits) > 1 if session.status in TERMINAL else session.status != Status.RUNNING
    return [*spans, *_slice(held, until if at_rest else last), *(_waiting(waits, until, last) if at_rest else ())]


def _new_wait(moment: Moment, waits: Sequence[tuple[datetime, str]]) -> list[tuple[datetime, str]]:
    """Return what the run waits for from this moment on, if that changes."""
    if moment.kind == RESUME_REQUESTED:
        return [(moment.at, [what for _, what in waits if what != PAUSED][-1])]
    if moment.detail == "retry_later":
        return [(moment.at, "Waiting for the model")]
    return [(moment.at, _WAITS[moment.kind])] if moment.kind in _WAITS else []


def _slice(began: datetime | None, ended: datetime) -> list[Span]:
    return [] if began is None else [Span("work", "Worker", "", began, ended)]


def _waiting(waits: Sequence[tuple[datetime, str]], since: datetime, until: datetime) -> list[Span]:
    """Return the waits between two slices, each up to the next one."""
    ends = [*(at for at, _ in waits[1:]), until]
    parts = ((what, max(at, since), min(end, until)) for (at, what), end in zip(waits, ends, strict=True))
    return [Span("wait", what, "warn", began, ended) for what, began, ended in parts if ended - began > SHORTEST_WAIT]


def _call_span(moment: Moment, known: Mapping[int, ToolCall], now: datetime) -> Span:
    call = known.get(moment.call_pk or 0)
    intent = call.intent if call else ""
    given = call.arguments if call and isinstance(call.arguments, dict) else {}
    named = given.get("title") or given.get("summary")
    title = f"{moment.title}: {named}" if named and intent in _REPEATED else moment.title
    if call and call.attempt > 1:
        title = f"{title} (attempt {call.attempt})"
    return Span(
        "call",
        title,
        moment.look,
        moment.at,
        _end_of(moment, now),
        outcome=moment.outcome,
        outcome_text=moment.outcome_text,
        call_pk=moment.call_pk,
        intent=str(intent or moment.title),
    )


def _folded(spans: Iterable[Span]) -> Iterator[Span]:
    """Fold repeated calls with the same outcome into one bar that holds them."""
    for _, group in groupby(spans, key=lambda span: (span.sort, span.intent, span.outcome, span.outcome_text)):
        found = tuple(group)
        if found[0].sort != "call" or len(found) < LEAST_REPEATED:
            yield from found
            continue
        called = _REPEATED.get(ToolIntent(found[0].intent)) if found[0].intent in ToolIntent.values else None
        title = f"{len(found)} {called}" if called else f"{len(found)} calls: {found[0].title}"
        end = max(span.ended for span in found)
        yield replace(found[0], title=title, ended=end, call_pk=None, inner=found)


def _placed(span: Span, scale: _Scale, whole: float) -> Span:
    left = scale.at(span.began) * 100 / whole
    width = scale.at(span.ended) * 100 / whole - left
    inner = tuple(_placed(one, scale, whole) for one in span.inner)
    width = round(min(width, 100 - left), 3)
    return replace(span, left=round(left, 3), width=width, inner=inner, is_folded=span in scale.waits)
