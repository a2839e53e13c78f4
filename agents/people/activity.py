"""Events for those who watch: written with what they tell of, both or neither. The newest are kept."""

import logging
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet

from agents.conf import events_kept
from agents.enums import EventKind
from agents.models import Agent, AgentEvent, AgentSession
from audit.redaction import redact_data

logger = logging.getLogger(__name__)

TEXT_CHARS: Final = 500
TRIMMED_AT_ONCE: Final = 5_000
AGENTS_AT_ONCE: Final = 100
MOST_BATCHES: Final = 50


def event_emit(
    kind: EventKind, *, now: datetime, session: AgentSession | None = None, agent: Agent | None = None, **data: Any
) -> None:
    """Told by a session, or by an agent outside of any. A failure to tell is logged and stops nothing."""
    agent_id = agent.pk if agent else session.agent_id if session else None
    owner_id = session.owner_id if session else agent.owner_id if agent else None
    if owner_id is None:
        raise ValueError("An event is about a session or an agent.")
    try:
        with transaction.atomic():
            AgentEvent.objects.create(
                agent_id=agent_id,
                session=session,
                owner_id=owner_id,
                kind=kind,
                data=redact_data({name: _short(value) for name, value in data.items()}),
                created_at=now,
            )
    except Exception:  # whatever it is, those who watch do not stop those who act
        logger.exception("event %s could not be written", kind)


def _short(value: Any) -> Any:
    return value[:TEXT_CHARS] if isinstance(value, str) else value


def events_trim() -> int:
    """Removes all but the newest of each agent, and of all work without an agent. What it does not get to, is first the
    next time; however many agents there are, the number of statements is bounded."""
    removed = 0
    crowded = _crowded(events_kept())
    for _ in range(MOST_BATCHES):
        too_many = Q(*crowded[:AGENTS_AT_ONCE], _connector=Q.OR)
        if not too_many:
            break
        rows = AgentEvent.objects.filter(too_many).order_by("id")
        gone = list(rows.values_list("id", flat=True)[:TRIMMED_AT_ONCE])
        removed += AgentEvent.objects.filter(id__in=gone).delete()[0]
        if len(gone) < TRIMMED_AT_ONCE:
            crowded = crowded[AGENTS_AT_ONCE:]
    return removed


def _crowded(kept: int) -> list[Q]:
    """Of each agent that has too many events, those that are too old; the agent with the oldest comes first."""
    mine, nobodys = AgentEvent.objects.filter(agent=OuterRef("pk")), AgentEvent.objects.filter(agent__isnull=True)
    agents = Agent.objects.annotate(end=_oldest_kept(mine, kept), first=mine.order_by("id").values("id")[:1])
    ends = agents.filter(first__lt=F("end")).order_by("first").values_list("pk", "end")
    found = [Q(agent=pk, id__lt=end) for pk, end in ends]
    return [Q(agent__isnull=True, id__lt=end) for end in _oldest_kept(nobodys, kept)] + found


def _oldest_kept(rows: QuerySet[AgentEvent], kept: int) -> QuerySet[AgentEvent, int]:
    return rows.order_by("-id").values_list("id", flat=True)[kept - 1 : kept]
