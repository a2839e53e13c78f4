"""Loops as they stand: the one that an agent runs, what it has spent in an hour, and which are to begin anew."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db.models import Exists, F, Max, OuterRef, QuerySet, Subquery, Sum

from agents.enums import HaltState, Mode, TerminalReason
from agents.models import Agent, AgentEvent, AgentSession, Alert, GateDay, HotField, InferenceLog, Turn, agents_may_run
from agents.types import ZERO

_STOPPING: Final = (HaltState.HALT_REQUESTED, HaltState.HALTED)
# Chats count to the hour of the agent's loop, and so do the small models of its sensors.
_BESIDE: Final = (Mode.CHAT, Mode.SENSOR)
DROPPED: Final = "alerts_dropped"  # in a session's metadata: how many; and the name of the alert that tells of them
_RENEWED: Final = (TerminalReason.COMPLETED, TerminalReason.COST_CAP_REACHED, TerminalReason.BUDGET_EXCEEDED)


def running(agent_id: int, *modes: Mode) -> QuerySet[AgentSession]:
    """Sessions of an agent that are under way and were not told to stop; the newest first."""
    rows = AgentSession.objects.active().filter(agent_id=agent_id, mode__in=modes)
    return rows.exclude(halt_state__in=_STOPPING).order_by("-pk")


def loop_current(agent_id: int) -> AgentSession | None:
    return running(agent_id, Mode.LOOP).first()


@dataclass(frozen=True)
class HourSpent:
    """Tokens of a clock hour. `latest` is the last inference that was looked at."""

    tokens: int
    latest: int


def hour_spent(session: AgentSession, agent_id: int, *, hour: datetime, after: int) -> HourSpent:
    """The tokens of a loop, and of the chats and sensors beside it, since the hour began.

    `after` is an inference before that hour: what was logged before it is not read, however long the loop has run.
    """
    beside = AgentSession.objects.filter(agent_id=agent_id, mode__in=_BESIDE, last_activity_at__gte=hour)
    pks = [session.pk, *beside.values_list("pk", flat=True)]
    rows = InferenceLog.objects.filter(session_id__in=pks, pk__gt=after, created_at__gte=hour)
    spent = rows.aggregate(tokens=Sum(F("input_tokens") + F("output_tokens"), default=0))["tokens"]
    latest = InferenceLog.objects.aggregate(latest=Max("pk"))["latest"] or 0
    return HourSpent(spent, latest)


def loops_to_renew(agent_id: int | None = None) -> list[AgentSession]:
    """The last loops of agents that are wanted, and speak of renewing, which ended in a way that a new day mends.

    One statement, whatever there is; the definition says whether it is meant. Of all agents, or of one.
    """
    last = AgentSession.objects.filter(agent=OuterRef("pk"), mode=Mode.LOOP).order_by("-pk").values("pk")[:1]
    agents = Agent.objects.filter(agents_may_run("owner"), enabled=True, definition__contains="renew", wanted=True)
    if agent_id is not None:
        agents = agents.filter(pk=agent_id)
    ended = AgentSession.objects.filter(pk=OuterRef("last"), terminal_reason__in=_RENEWED)
    found = agents.annotate(last=Subquery(last)).filter(Exists(ended)).values("last")
    return list(AgentSession.objects.filter(pk__in=found).select_related("agent", "owner").order_by("pk"))


def alerts_dropped(session: AgentSession) -> int:
    """How many alerts of a run nobody will see: too many waited already."""
    return int(session.metadata.get(DROPPED, 0))


def loop_facts(session: AgentSession) -> dict[str, Any]:
    """Where a loop stands, for people and machines: its turns, its pause, what it sees and what it has spent."""
    last = Turn.objects.filter(session=session).order_by("-number").first()
    fields = HotField.objects.filter(session=session).order_by("name")
    return {
        "session": str(session.public_id),
        "status": session.status,
        "waiting_on": session.waiting_on or None,
        "started_at": session.created_at.isoformat(),
        "next_wake_at": session.next_wake_at.isoformat() if session.next_wake_at else None,
        "turn": last.number if last else 0,
        "last_turn": last.state if last else None,
        "yielded": last.yielded if last else "",
        "reason": last.reason if last else "",
        "alerts": Alert.objects.pending().filter(session=session).count(),
        "alerts_dropped": alerts_dropped(session),
        "hot_state": {field.name: field.updated_at.isoformat() for field in fields},
        "cost_usd": str(session.cost_total_usd),
        "max_cost_usd": None if session.max_cost_usd is None else str(session.max_cost_usd),
        "tokens": session.total_tokens,
    }


# What agents do by themselves, for those who look after them: which loops run, what was told, what was spared.


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
