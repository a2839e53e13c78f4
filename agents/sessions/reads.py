"""What sessions are for, in a few words, for many sessions at once, and what one of them read: a fixed number of
statements."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q

from agents.enums import Mode, Outcome, ToolIntent, TriggerKind
from agents.models import AgentSession, Collection, Document, InboundEvent, Playbook, ToolCall

SHOWN_DOCUMENTS: Final = 20
MESSAGE_CHARS: Final = 100
EVENT_CHARS: Final = 80
MOST_NAMED: Final = 200
PURPOSES: Final = ("trigger", "run_now", "goal", "chat", "loop", "heartbeat", "sensor")
_BY_ITSELF: Final[dict[str, str]] = {Mode.LOOP: "loop", Mode.SENSOR: "sensors", Mode.HEARTBEAT: "heartbeat"}


@dataclass(frozen=True)
class Read:
    """What a run was given to read: its collection, the first of the documents, and how many there are besides."""

    collection: Collection | None
    documents: tuple[Document, ...]
    more: int
    left_out: int


def read_by(session: AgentSession) -> Read:
    """By the journal of its retrievals; before there is one, by the document that it was asked to read."""
    calls = ToolCall.objects.filter(session=session, intent=ToolIntent.RETRIEVE_CHUNKS, outcome=Outcome.SUCCESS)
    summaries = [found or {} for found in calls.order_by("pk").values_list("result__summary", flat=True)]
    places = [place for summary in summaries for place in summary.get("passages", ())]
    given = [session.params.get("document"), *(place.get("document_id") for place in places)]
    ids = list(dict.fromkeys(filter(None, map(as_uuid, given))))
    known = {row.public_id: row for row in _rows(Document, ids[:SHOWN_DOCUMENTS]).defer("text")}
    return Read(
        collection=_rows(Collection, [as_uuid(session.params.get("collection"))]).first(),
        documents=tuple(known[one] for one in ids[:SHOWN_DOCUMENTS] if one in known),
        more=max(len(ids) - SHOWN_DOCUMENTS, 0),
        left_out=sum(summary.get("left_out", 0) for summary in summaries),
    )


def _rows(model: Any, public_ids: Sequence[uuid.UUID | None]) -> Any:
    return model._meta.default_manager.filter(public_id__in=[one for one in public_ids if one is not None])


def purposes(sessions: Sequence[AgentSession]) -> dict[int, str]:
    """By primary key: what is checked, by what, and what asked for it."""
    playbooks = _names(Playbook, (session.params.get("playbook") for session in sessions))
    documents = _names(Document, (session.params.get("document") for session in sessions))
    collections = _names(Collection, (session.params.get("collection") for session in sessions))
    told = {session.pk: _purpose(session, playbooks, documents, collections) for session in sessions}
    return told | _purposes_of_events(sessions)


def _purposes_of_events(sessions: Sequence[AgentSession]) -> dict[int, str]:
    """Runs of one rule are told apart by what set them off; the words of an event were redacted when it came in."""
    ids = {session.pk: found for session in sessions if (found := as_uuid(_event_id(session))) is not None}
    events = InboundEvent.objects.only("public_id", "title", "source", "event_type")
    rows = events.filter(public_id__in=set(ids.values())) if ids else ()
    said = {event.public_id: _cut(str(event).strip() or "an event", EVENT_CHARS) for event in rows}
    named = {session.pk: session.trigger.name for session in sessions if session.trigger}
    return {pk: f"{named.get(pk, 'event')}: {said[one]}" for pk, one in ids.items() if one in said}


def _event_id(session: AgentSession) -> object:
    """Of a run that was asked for in words, those count."""
    named, words = session.params.get("event"), session.params.get("message") or session.params.get("goal")
    return named.get("id") if isinstance(named, dict) and not words else None


def _cut(words: str, limit: int) -> str:
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def _purpose(
    session: AgentSession, playbooks: dict[str, str], documents: dict[str, str], collections: dict[str, str]
) -> str:
    given = session.params
    read = documents.get(str(given.get("document"))) or collections.get(str(given.get("collection")))
    if read is None and given.get("query"):
        read = f"“{given['query']}”"
    if words := given.get("message") or given.get("goal"):
        return f"“{_cut(str(words), MESSAGE_CHARS)}”"
    by = given.get("skill") or playbooks.get(str(given.get("playbook")))
    if read and by:
        return f"{read} by {by}"
    return str(read or by or (session.trigger.name if session.trigger else _of_agent(session)))


def titled(words: str) -> Q:
    """Sessions whose purpose holds these words: what they read or go by, what they were asked, what set them off."""
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
    """What an agent does by itself is told with its name."""
    kind = _BY_ITSELF.get(session.mode)
    return f"{kind} of {session.agent.name}" if kind and session.agent else f"{session.mode} run"


def purpose_kind(session: AgentSession) -> str:
    """Why it exists, in one word: what an agent does by itself, a goal, a chat, a trigger that fired, or a person."""
    if session.mode in _BY_ITSELF:
        return str(session.mode)
    if "goal" in session.params or session.params.get("way") == "goal":
        return "goal"
    if session.mode == Mode.CHAT:
        return "chat"
    return "run_now" if session.trigger_kind == TriggerKind.MANUAL else "trigger"


def asked_by(session: AgentSession) -> str:
    """What set it off: its trigger, its agent by itself, or a person."""
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
