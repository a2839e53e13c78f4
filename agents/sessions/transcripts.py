"""Transcripts: what was said in a run, entry by entry. Entries are added by the worker that holds it, never changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from agents.models import AgentSession, Message
from agents.sessions.lifecycle import held

GUARDRAILS = "guardrails"


@dataclass(frozen=True)
class Entry:
    role: str
    content: str = ""
    calls: Sequence[Mapping[str, Any]] = field(default=())
    call_id: str = ""
    stop: str = ""
    reason: str = ""
    failed: bool = False


@transaction.atomic
def transcript_append(
    session: AgentSession,
    entries: Sequence[Entry],
    *,
    now: datetime,
    turn: int = 0,
    counters: Mapping[str, Any] | None = None,
) -> list[Message]:
    """Adds entries, and what the guardrails have counted by then: both or neither."""
    row = held(session)
    last = Message.objects.filter(session=row).aggregate(last=Max("seq"))["last"] or 0
    added = Message.objects.bulk_create(
        Message(
            session=row,
            seq=last + place,
            turn=turn,
            role=entry.role,
            content=entry.content,
            calls=[dict(call) for call in entry.calls],
            call_id=entry.call_id,
            stop=entry.stop,
            reason=entry.reason,
            failed=entry.failed,
            created_at=now,
        )
        for place, entry in enumerate(entries, 1)
    )
    if counters is not None:
        row.metadata[GUARDRAILS] = dict(counters)
        row.save(update_fields=["metadata"])
        session.metadata = row.metadata
    return added


def transcript_of(session: AgentSession, *, turn: int = 0) -> list[Message]:
    """What was said in one turn; runs without turns have all of theirs in turn 0."""
    return list(Message.objects.filter(session=session, turn=turn).order_by("seq"))
