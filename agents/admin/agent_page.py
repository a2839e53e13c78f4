"""The part of an agent's page that is alive: its loop, what it sees and senses, its turns, and what it tells."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.http import HttpRequest

from agents.admin.agent_sensors import SET_ASIDE, sensor_line
from agents.admin.autonomy import PERMISSION
from agents.admin.base import person
from agents.admin.display import Bar, ago, counted, session_bar
from agents.admin.looking import look, look_token
from agents.admin.looks import STATUS_LOOKS
from agents.admin.sessions import standing_words
from agents.definitions.in_force import pace_of
from agents.definitions.schema import AgentDefinition
from agents.enums import EventKind, Mode, SensorKind, SensorState
from agents.loop.alerts import alerts_pending
from agents.loop.heartbeat import heartbeat_of
from agents.loop.pacing import RATE_WINDOW, Pace, tokens_counted
from agents.loop.reads import events_lately, spared_lately
from agents.loop.state import FieldView, hot_snapshot
from agents.loop.turns import PACE
from agents.models import Agent, AgentSession, Sensor, Turn
from agents.people.activity import event_sentence, seconds_words
from agents.roster.agents import agent_under_way

SHOWN_TURNS: Final = 20
REFRESH_SECONDS: Final = 10
EVENT_LOOKS: Final[dict[str, str]] = {
    EventKind.TURN_STARTED: "info",
    EventKind.TURN_COMPLETED: "good",
    EventKind.GUARDRAIL_TRIGGERED: "warn",
    EventKind.NOTIFICATION_PUSHED: "warn",
    EventKind.APPROVAL_REQUESTED: "warn",
    EventKind.SENSOR_ERROR: "bad",
    EventKind.ERROR: "bad",
}
TURN_LOOKS: Final = {"open": "info", "failed": "bad", "skipped": ""}


@dataclass(frozen=True)
class Limit:
    """A guardrail that holds: how much of it is used, in words and as a bar."""

    name: str
    said: str
    bar: Bar | None = None


def autonomy_context(
    request: HttpRequest, agent: Agent, definition: AgentDefinition | None, now: datetime
) -> dict[str, Any]:
    """What the page shows, by a fixed number of statements. Without a definition that can be read, what there is."""
    going, by = agent_under_way(agent), person(request)
    last = going.loop or AgentSession.objects.filter(agent=agent, mode=Mode.LOOP).order_by("-pk").first()
    if last is not None:
        look(request, by, last)
    sensors = [sensor_line(row, _next(row, now), now) for row in agent.sensors.order_by("name")]
    events = list(events_lately(agent.pk))
    return {
        "works": bool(last or going.heartbeat or sensors or _has_own_work(definition)),
        "is_autonomous": definition is not None and definition.is_autonomous,
        "has_beat": definition is not None and heartbeat_of(definition) is not None,
        "beat": going.heartbeat,
        "last_loop": last,
        "last_ended": standing_words(last) if last else "",
        **_loop_shown(going.loop, agent, definition, now),
        "sensors": sensors,
        "turns": _turns(agent),
        "spared": spared_lately(agent.pk, now),
        "told": [(one, event_sentence(one.kind, one.data), EVENT_LOOKS.get(one.kind, "")) for one in events],
        "told_after": events[0].pk if events else 0,
        "event_looks": json.dumps(EVENT_LOOKS),
        "may_start": by.has_perm(PERMISSION),
        "follows": agent.owner_id == by.pk,
        "every": REFRESH_SECONDS if going.loop or going.heartbeat else None,
        "token": look_token(by, *(row for row in (agent, last) if row)),
    }


def _loop_shown(
    loop: AgentSession | None, agent: Agent, definition: AgentDefinition | None, now: datetime
) -> dict[str, Any]:
    if loop is None:
        return {"loop": None}
    return {
        "loop": loop,
        "loop_look": STATUS_LOOKS.get(loop.status, ""),
        "loop_standing": standing_words(loop),
        "loop_bar": session_bar(loop),
        "limits": _limits(loop, agent, definition, now) if definition else [],
        "hot": _hot(loop, definition, now) if definition else [],
        "alerts": alerts_pending(loop),
    }


def _has_own_work(definition: AgentDefinition | None) -> bool:
    return definition is not None and (definition.autonomy is not None or definition.heartbeat is not None)


def _hot(loop: AgentSession, definition: AgentDefinition, now: datetime) -> list[tuple[FieldView, str, str]]:
    """Every declared field with its type and its age in words."""
    specs = definition.hot_state.fields
    views = hot_snapshot(loop, definition, now=now)
    return [
        (view, specs[view.name].type, f"{seconds_words(view.age_seconds)} ago" if view.loaded else "") for view in views
    ]


def _next(sensor: Sensor, now: datetime) -> str:
    """When it reads next."""
    if sensor.state in SET_ASIDE:
        return "skipped"
    if not sensor.wanted:
        return "rests"
    if sensor.kind != SensorKind.POLL and sensor.state != SensorState.FAILING:
        return "listens"
    return ago(sensor.next_due_at, now) if sensor.next_due_at and sensor.next_due_at > now else "due"


def _turns(agent: Agent) -> list[tuple[Turn, str, str]]:
    """The newest of all its loops, with how each ended in words."""
    rows = Turn.objects.filter(session__agent=agent).select_related("session").order_by("-id")[:SHOWN_TURNS]
    return [(turn, _ended(turn), TURN_LOOKS.get(turn.state, "good")) for turn in rows]


def _ended(turn: Turn) -> str:
    if turn.yielded == "sleep":
        return f"sleep {seconds_words(turn.sleep_seconds)}"
    return turn.yielded or str(turn.state)


def _limits(loop: AgentSession, agent: Agent, definition: AgentDefinition, now: datetime) -> list[Limit]:
    """The guardrails of the loop, in the order in which they are likely to step in."""
    limits, pace = pace_of(definition), Pace.from_json(loop.metadata.get(PACE))
    acted = sum(datetime.fromisoformat(at) > now - RATE_WINDOW for at in pace.actions)
    used = (
        ("Turns without a sleep", pace.consecutive, limits.max_consecutive_turns),
        ("Tokens in this hour", tokens_counted(loop, agent, pace, now=now)[1], limits.token_budget_per_hour or None),
        ("Actions in the last minute", acted, limits.max_actions_per_minute),
    )
    found = [
        Limit(name, f"{number:,}, no limit")
        if most is None
        else Limit(name, f"{number:,} of {most:,}", Bar.of(Decimal(number), Decimal(most)))
        for name, number, most in used
    ]
    idle = pace.idle_ms // 1_000
    if limits.idle_timeout:
        bar = Bar.of(Decimal(idle), Decimal(limits.idle_timeout))
        found.append(Limit("Awake without acting", f"{idle} of {counted(limits.idle_timeout, 'second')}", bar))
    if hours := limits.active_hours:
        found.append(Limit("Active hours", f"{hours.start} to {hours.end}, {definition.zone}"))
    return found
