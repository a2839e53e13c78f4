"""Intake: find what the run reads, by one guarded call; nothing for a baseline.

Later phases take it from the journal, through `Slice.reading`; it is never looked for a second time. A run of steps
gets as much text as one question holds. Any other run gets the places, and reads the documents themselves, however
long.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from django.db.models import QuerySet

from agents.engine.prompting import journaled_batch, journaled_call
from agents.engine.query_vectors import fetch_query_vector
from agents.enums import Outcome, ToolIntent
from agents.exceptions import LqopsError
from agents.models import AgentSession, Document, InboundEvent
from agents.policy.run_spec import RunSpec
from agents.sessions.fairness import slice_is_over
from agents.sessions.reads import as_uuid, call_latest
from agents.text.blocks import Part
from agents.types import End

# --- What a phase works with ---


class NotStored(LqopsError):
    """A result of the run could not be stored. The run fails rather than end as if nothing had been found."""

    code = "not_stored"


@dataclass(frozen=True)
class Slice:
    """The slice of work at hand: the held session, and when this worker started on it."""

    session: AgentSession
    started_at: datetime
    kept: dict[str, Any] = field(default_factory=dict)  # what this slice has read from rows and need not read again

    @property
    def is_over(self) -> bool:
        return slice_is_over(self.session, self.started_at)

    @property
    def spec(self) -> RunSpec:
        return self.session.spec

    @cached_property
    def reading(self) -> "Reading":
        """What the intake has found."""
        return _reading_of(self)


Item = tuple[ToolIntent, str, Mapping[str, Any]]  # what is stored: intent, place in the run, parameters


def store(session: AgentSession, items: Sequence[Item]) -> None:
    """Make calls whose whole effect is rows of ours; only a fault makes one fail."""
    for (intent, key, _), result in zip(items, journaled_batch(session, items), strict=True):
        if not result.ok:
            raise NotStored(f"{intent} at {key} was not stored ({result.outcome}): {result.error}")


KEY: Final = "intake:retrieve"
EVENT: Final = "event"


@dataclass(frozen=True)
class Passage:
    """Text of one document; `start` is its offset in the document."""

    document_id: str
    name: str
    start: int
    text: str


@dataclass(frozen=True)
class Reading:
    """Outcome of the intake. `failed` says why there is nothing, if there should have been something.

    `left_out` counts documents that were not taken, `put_off` those that are left for the next run of the schedule.
    """

    passages: tuple[Passage, ...] = ()
    left_out: int = 0
    put_off: int = 0
    cut_id: str = ""
    cut_chars: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)  # of whole documents by id, unless they were deleted
    failed: str = ""
    words_only: str = ""  # why the query was not searched by meaning, if it should have been

    @property
    def documents(self) -> int:
        return len({passage.document_id for passage in self.passages})


def intake(work: Slice) -> End | None:
    asked = _asked(work)
    if "query" in asked and call_latest(work.session, KEY) is None:
        reason = fetch_query_vector(work.session, asked["query"], key=KEY)
        asked |= {"words_only": reason} if reason else {}
    if asked:
        work.kept[KEY] = journaled_call(work.session, ToolIntent.RETRIEVE_CHUNKS, KEY, asked)
    return None


def reads_rows_only(work: Slice) -> bool:
    """Return whether the intake asks no model: one puts a query into a vector."""
    return "query" not in _asked(work)


def _asked(work: Slice) -> dict[str, Any]:
    """Return the parameters of the retrieval: by document, by query, or by collection. Empty: nothing to fetch."""
    spec = work.spec
    if spec.baseline:
        return {}
    asked: dict[str, Any] = {} if spec.is_agentic else {"places": True}
    if spec.document:
        return {**asked, "document": spec.document}
    if spec.query:
        asked["query"] = spec.query
    if spec.collection:
        asked["collection"] = spec.collection
    if not spec.query and not spec.collection:
        return {}
    if not spec.since:
        return asked if spec.query else {**asked, "since": None}
    # Up to when the run was created: what is attached later is read by the next run, once.
    return {**asked, "since": spec.since, "until": spec.until or work.session.created_at.isoformat()}


def _reading_of(work: Slice) -> Reading:
    if not _asked(work):
        return Reading()
    found = _retrieved(work)
    if isinstance(found, str):
        return Reading(failed=found or "the retrieval was refused")
    summary = found.get("summary") or {}
    chunks = found.get("chunks") or []
    rows = _documents(work.session, {chunk["document_id"] for chunk in chunks if "text" not in chunk})
    whole, deleted = {}, set()
    for public_id, text, deleted_at in rows.values_list("public_id", "text", "deleted_at"):
        whole[str(public_id)] = text
        if deleted_at is not None:
            deleted.add(str(public_id))
    passages = [_passage(chunk, whole) for chunk in chunks]  # what a run has begun to read it reads to its end
    return Reading(
        passages=tuple(passage for passage in passages if passage is not None),
        left_out=int(summary.get("left_out", 0)) + passages.count(None),
        put_off=work.spec.put_off,
        cut_id=str(summary.get("cut_id") or ""),
        cut_chars=int(summary.get("cut_chars", 0)),
        texts={document_id: text for document_id, text in whole.items() if document_id not in deleted},
        words_only=str(summary.get("words_only") or ""),
    )


def _retrieved(work: Slice) -> dict[str, Any] | str:
    """Return what the intake's call has found, or why it failed: from this slice, else from the journal."""
    made = work.kept.get(KEY)
    if made is not None and made.ok and isinstance(made.data, dict):
        return made.data
    call = call_latest(work.session, KEY)
    if call is not None and call.outcome == Outcome.SUCCESS and isinstance(call.result, dict):
        return call.result
    return call.error if call is not None else ""


def _passage(chunk: Mapping[str, Any], texts: Mapping[str, str]) -> Passage | None:
    """Return a passage with its text; None if its document is gone."""
    document_id, start = str(chunk["document_id"]), int(chunk["start"])
    text = chunk.get("text")
    if text is None:
        if document_id not in texts:
            return None
        text = texts[document_id][start : int(chunk["end"])]
    return Passage(document_id, str(chunk["name"]), start, str(text))


def documents_text(session: AgentSession, ids: Iterable[str]) -> dict[str, str]:
    """Return the text of the owner's documents by id, as it is and not as it is masked for a model."""
    rows = _documents(session, ids).filter(deleted_at__isnull=True)
    return {str(public_id): text for public_id, text in rows.values_list("public_id", "text")}


def _documents(session: AgentSession, ids: Iterable[str]) -> QuerySet[Document]:
    return Document.objects.filter(public_id__in={uuid.UUID(one) for one in ids}, owner_id=session.owner_id)


def event_of(session: AgentSession) -> Part | None:
    """Return the event that the run answers as a document: data, like any other. Only the owner's own event."""
    public_id = as_uuid(session.spec.event)
    event = InboundEvent.objects.filter(public_id=public_id, owner_id=session.owner_id).first() if public_id else None
    if event is None:
        return None
    facts = {
        "title": event.title,
        "source": event.source,
        "type": event.event_type,
        "category": event.category,
        "severity": event.severity,
    }
    lines = [f"{name}: {' '.join(value.split())}" for name, value in facts.items() if value]
    lines += ["", json.dumps(event.data, ensure_ascii=False, indent=2, sort_keys=True)]
    return Part("document", "\n".join(lines), {"id": EVENT, "name": EVENT})
