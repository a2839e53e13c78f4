"""What agents do by themselves, for those who look after them: which loops run, what was told, what was spared."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from django.db.models import QuerySet

from agents.enums import HaltState, Mode
from agents.models import AgentEvent, AgentSession, GateDay
from agents.types import ZERO

GATE_DAYS: Final = 7
SHOWN_EVENTS: Final = 30
BY_ITSELF: Final = (Mode.LOOP, Mode.HEARTBEAT)


@dataclass(frozen=True)
class Spared:
    """What the gate did in some days."""

    days: tuple[GateDay, ...]
    avoided: int
    opened: int
    spent_usd: Decimal
    saved_usd: Decimal


def spared_lately(agent_id: int, now: datetime) -> Spared:
    since = now.astimezone(UTC).date() - timedelta(days=GATE_DAYS - 1)
    days = tuple(GateDay.objects.filter(agent_id=agent_id, day__gte=since).order_by("-day"))
    return Spared(
        days=days,
        avoided=sum(day.unchanged + day.immaterial for day in days),
        opened=sum(day.opened for day in days),
        spent_usd=sum((day.spent_usd for day in days), ZERO),
        saved_usd=sum((day.saved_usd for day in days), ZERO),
    )


def under_way_of(agent_ids: Iterable[int]) -> dict[int, AgentSession]:
    """By agent: its loop that runs, or else its next heartbeat."""
    rows = AgentSession.objects.active().filter(agent_id__in=list(agent_ids), mode__in=BY_ITSELF)
    going = rows.exclude(halt_state__in=(HaltState.HALT_REQUESTED, HaltState.HALTED)).order_by("pk")
    ranked = sorted(going, key=lambda row: row.mode == Mode.LOOP)
    return {row.agent_id: row for row in ranked if row.agent_id is not None}


def events_lately(agent_id: int) -> QuerySet[AgentEvent]:
    """The newest of an agent, newest first."""
    return AgentEvent.objects.filter(agent_id=agent_id).select_related("session").order_by("-id")[:SHOWN_EVENTS]
