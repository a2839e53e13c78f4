"""Reads about loops: which run, which start again with the day, and what they did, for people and machines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from agents.enums import HaltState, Mode, Status, WaitingOn
from agents.ledger.loans import loan_text, runs_wait_of
from agents.ledger.outages import model_wait_of
from agents.models import Agent, AgentEvent, AgentSession, Alert, GateDay, HotField, Turn, agents_may_run
from agents.policy.restarts import REVIVED
from agents.types import ZERO

AUTONOMOUS: Final = (Mode.LOOP, Mode.HEARTBEAT)
DROPPED: Final = "alerts_dropped"  # in a session's metadata: their number; and the name of the alert about them
GATE_DAYS: Final = 7
SHOWN_EVENTS: Final = 30
_WAITS: Final[Mapping[str, str]] = {
    WaitingOn.APPROVAL: "A call needs approval.",
    WaitingOn.INPUT: "A question needs an answer.",
    WaitingOn.OPERATOR: "The outcome of a call is unknown; a person has to resolve it.",
    WaitingOn.RESUME: "It is paused, and goes on when somebody resumes it.",
}


@dataclass(frozen=True)
class Spared:
    """Totals of the gate over some days."""

    days: tuple[GateDay, ...]
    avoided: int
    opened: int
    spent_usd: Decimal
    saved_usd: Decimal


def _not_stopping() -> QuerySet[AgentSession]:
    """Return active sessions that were not told to stop."""
    return AgentSession.objects.active().exclude(halt_state__in=(HaltState.HALT_REQUESTED, HaltState.HALTED))


def running(agent_id: int, *modes: Mode) -> QuerySet[AgentSession]:
    """Return an agent's active sessions that were not told to stop, the newest first."""
    return _not_stopping().filter(agent_id=agent_id, mode__in=modes).order_by("-pk")


def loop_current(agent_id: int) -> AgentSession | None:
    return running(agent_id, Mode.LOOP).first()


def autonomous_sessions(agent_ids: Iterable[int]) -> dict[int, AgentSession]:
    """Return the running loop of each agent, or else its next heartbeat."""
    rows = _not_stopping().filter(agent_id__in=list(agent_ids), mode__in=AUTONOMOUS).order_by("pk")
    ranked = sorted(rows, key=lambda row: row.mode == Mode.LOOP)
    return {row.agent_id: row for row in ranked if row.agent_id is not None}


def loops_to_revive(agent_id: int | None = None) -> list[AgentSession]:
    """Return the last loops of agents, or of one, that are over and that nobody wanted to end.

    One statement, for agents that are wanted; the caller reads the definition.
    """
    last = AgentSession.objects.filter(agent=OuterRef("pk"), mode=Mode.LOOP).order_by("-pk").values("pk")[:1]
    agents = Agent.objects.filter(agents_may_run("owner"), enabled=True, wanted=True)
    if agent_id is not None:
        agents = agents.filter(pk=agent_id)
    ended = AgentSession.objects.filter(pk=OuterRef("last"), terminal_reason__in=sorted(REVIVED))
    found = agents.annotate(last=Subquery(last)).filter(Exists(ended)).values("last")
    return list(AgentSession.objects.filter(pk__in=found).select_related("agent", "owner").order_by("pk"))


def alerts_dropped(session: AgentSession) -> int:
    """Return how many alerts of a run were dropped because too many were pending."""
    return int(session.metadata.get(DROPPED, 0))


def loop_why(session: AgentSession) -> str:
    """Return why a loop sleeps or waits, as a sentence; empty while it works."""
    if session.status == Status.SLEEPING:
        return str((session.metadata.get("loop") or {}).get("why") or "")
    if session.status != Status.WAITING:
        return ""
    if wait := model_wait_of(session):
        return f"Model {wait.model} does not answer since {wait.since:%Y-%m-%d %H:%M:%S} UTC: {wait.error}"
    if awaited := runs_wait_of(session):
        return f"It waits for {awaited.text}, which holds a part of its cap. {loan_text(session)}"
    return _WAITS.get(session.waiting_on, "")


def loop_facts(session: AgentSession) -> dict[str, Any]:
    """Return the state of a loop: its turns, its pause, its hot state and its cost."""
    last = Turn.objects.filter(session=session).order_by("-number").first()
    fields = HotField.objects.filter(session=session).order_by("name")
    return {
        "session": str(session.public_id),
        "status": session.status,
        "waiting_on": session.waiting_on or None,
        "started_at": session.created_at.isoformat(),
        "next_wake_at": session.next_wake_at.isoformat() if session.next_wake_at else None,
        "why": loop_why(session),
        "turn": last.number if last else 0,
        "last_turn": last.state if last else None,
        "yielded": last.yielded if last else "",
        "reason": last.reason if last else "",
        "alerts": Alert.objects.pending().filter(session=session).count(),
        "alerts_dropped": alerts_dropped(session),
        "hot_state": {field.name: field.updated_at.isoformat() for field in fields},
        "spent_usd": str(session.spent_usd),
        "cost_usd": str(session.cost_total_usd),
        "max_cost_usd": None if session.max_cost_usd is None else str(session.max_cost_usd),
        "tokens": session.total_tokens,
    }


def gate_totals(agent_id: int, now: datetime) -> Spared:
    """Return what the gate did for an agent in the last days."""
    since = now.astimezone(UTC).date() - timedelta(days=GATE_DAYS - 1)
    days = tuple(GateDay.objects.filter(agent_id=agent_id, day__gte=since).order_by("-day"))
    return Spared(
        days=days,
        avoided=sum(day.unchanged + day.immaterial for day in days),
        opened=sum(day.opened for day in days),
        spent_usd=sum((day.spent_usd for day in days), ZERO),
        saved_usd=sum((day.saved_usd for day in days), ZERO),
    )


def recent_events(agent_id: int) -> QuerySet[AgentEvent]:
    """Return an agent's newest events, the newest first."""
    return AgentEvent.objects.filter(agent_id=agent_id).select_related("session").order_by("-id")[:SHOWN_EVENTS]
