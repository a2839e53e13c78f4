"""Intake: fetch what the run reads, by one guarded call; nothing for a baseline.

Later phases read it from the journal, through `reading_of`; it is never fetched a second time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from agents.engine.prompting import journaled_call
from agents.enums import Outcome, ToolIntent
from agents.exceptions import LqopsError
from agents.models import AgentSession, InboundEvent
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

    @property
    def is_over(self) -> bool:
        return slice_is_over(self.session, self.started_at)

    @property
    def spec(self) -> RunSpec:
        return self.session.spec


def store(session: AgentSession, intent: ToolIntent, key: str, params: Mapping[str, Any]) -> None:
    """Make a call whose whole effect is a row of ours; only a fault makes it fail."""
    result = journaled_call(session, intent, key, params)
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

    `put_off` counts documents that are left for the next run of the schedule.
    """

    passages: tuple[Passage, ...] = ()
    left_out: int = 0
    put_off: int = 0
    cut_id: str = ""
    cut_chars: int = 0
    failed: str = ""

    @property
    def documents(self) -> int:
        return len({passage.document_id for passage in self.passages})

    @property
    def cut_name(self) -> str:
        """The name of the document that was cut; empty if only the number of characters is known."""
        return next((passage.name for passage in self.passages if passage.document_id == self.cut_id), "")


def intake(work: Slice) -> End | None:
    asked = _asked(work)
    if asked:
        journaled_call(work.session, ToolIntent.RETRIEVE_CHUNKS, KEY, asked)
    return None


def _asked(work: Slice) -> dict[str, Any]:
    """Return the parameters of the retrieval: by document, by query, or by collection. Empty: nothing to fetch."""
    spec = work.spec
    if spec.baseline:
        return {}
    if spec.document:
        return {"document": spec.document}
    asked: dict[str, Any] = {}
    if spec.query:
        asked["query"] = spec.query
    if spec.collection:
        asked["collection"] = spec.collection
    if not asked:
        return {}
    if not spec.since:
        return asked if spec.query else {**asked, "since": None}
    # Up to when the run was created: what is attached later is read by the next run, once.
    return {**asked, "since": spec.since, "until": spec.until or work.session.created_at.isoformat()}


def reading_of(work: Slice) -> Reading:
    if not _asked(work):
        return Reading()
    made = call_latest(work.session, KEY)
    if made is None or made.outcome != Outcome.SUCCESS or not isinstance(made.result, dict):
        return Reading(failed=(made.error if made else "") or "the retrieval was refused")
    summary = made.result.get("summary") or {}
    return Reading(
        passages=tuple(_passage(chunk) for chunk in made.result.get("chunks") or ()),
        left_out=int(summary.get("left_out", 0)),
        put_off=work.spec.put_off,
        cut_id=str(summary.get("cut_id") or ""),
        cut_chars=int(summary.get("cut_chars", 0)),
    )


def _passage(chunk: Mapping[str, Any]) -> Passage:
    return Passage(str(chunk["document_id"]), str(chunk["name"]), int(chunk["start"]), str(chunk["text"]))


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
