"""Agents: who they work for, what asks a person first, what they may spend; and the halt of all that one does."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from agents.admin.actions import Act, Asked, ReasonForm, Told, each
from agents.admin.base import column, look, look_token, person
from agents.admin.definitions import DefinitionPages
from agents.admin.display import (
    STATUS_LABELS,
    STATUS_LOOKS,
    Bar,
    ago,
    counted,
    meter_bar,
    moment,
    session_bar,
    usd,
    visible,
    words,
)
from agents.admin.pages import EditForm, FactsAdmin
from agents.admin.sessions import CHANGE, halted, session_links, standing_words
from agents.conf import clock
from agents.definitions.in_force import definition_of, pace_of
from agents.definitions.schema import AgentDefinition, DefinitionError
from agents.enums import EventKind, Mode, SensorKind, SensorState, Status
from agents.loop.alerts import alerts_pending
from agents.loop.guardrails import RATE_WINDOW, tokens_counted
from agents.loop.heartbeat import heartbeat_of
from agents.loop.pacing import Pace
from agents.loop.reads import events_lately, spared_lately, under_way_of
from agents.loop.state import FieldView, hot_snapshot
from agents.loop.turns import PACE
from agents.models import Agent, AgentEvent, AgentSession, Sensor, Turn
from agents.people.activity import event_sentence, seconds_words
from agents.roster.agents import (
    UnderWay,
    agent_create,
    agent_delete,
    agent_edit,
    agent_is_going,
    agent_restart,
    agent_start,
    agent_stop,
    agent_under_way,
)
from agents.roster.loops import loop_is_awaited
from agents.sessions.control_room import meter_today
from agents.sessions.halts import agents_halt
from agents.sessions.reads import purposes
from audit.redaction import redact

# --- What agents told, as long as it is kept: to look at, and as quick with many rows as with few ---


# The name of the sidebar, at the head of the page too; events that come in from elsewhere have another.
AgentEvent._meta.verbose_name_plural = "agent events"


class EventKindFilter(admin.SimpleListFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind_words(kind).capitalize()) for kind in EventKind.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AgentEvent]) -> QuerySet[AgentEvent]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


def kind_words(kind: str) -> str:
    return words(kind.replace("autonomy:", "").replace(":", " "))


@admin.register(AgentEvent)
class AgentEventAdmin(FactsAdmin):
    list_display = ["when", "said", "sort", "agent", "of_session"]
    list_filter = [EventKindFilter]
    list_select_related = ["agent", "session"]
    search_fields = ["agent__public_id__exact", "session__public_id__exact"]
    search_help_text = "The public id of an agent or of a session, in full."
    empty = "Nothing has happened yet. What agents, their sensors and their guardrails do is told here as it happens."
    hidden = frozenset({"id", "owner_id"})

    @column("when")
    def when(self, event: AgentEvent) -> str:
        return moment(event.created_at)

    @column("what happened")
    def said(self, event: AgentEvent) -> str:
        return visible(event_sentence(event.kind, event.data))

    @column("kind")
    def sort(self, event: AgentEvent) -> str:
        return kind_words(event.kind)

    def title_of(self, row: Any) -> str:
        return event_sentence(row.kind, row.data)


# --- An agent's sensors on its page: where each looks, what it came to, and what its signals say of it ---


LOOKS: Final = {SensorState.FINE: "good", SensorState.FAILING: "bad", SensorState.INVALID: "bad",
                SensorState.UNRESOLVED: "warn"}  # fmt: skip
SET_ASIDE: Final = frozenset({SensorState.INVALID, SensorState.UNRESOLVED})


@dataclass(frozen=True)
class SignalLine:
    """A signal: its last score, or why there is none, against its threshold, and when it fired last."""

    name: str
    said: str
    threshold: str
    fired: str
    bad: bool = False


@dataclass(frozen=True)
class SensorLine:
    row: Sensor
    state: str
    look: str
    source: str
    next: str
    signals: tuple[SignalLine, ...]


def sensor_line(row: Sensor, due: str, now: datetime) -> SensorLine:
    rests = not row.wanted and row.state not in SET_ASIDE
    source, signals = row.config.get("source") or {}, row.config.get("signals") or ()
    return SensorLine(
        row=row,
        state="at rest" if rests else row.state,
        look="" if rests else LOOKS.get(SensorState(row.state), ""),
        source=redact(str(source.get("url") or source.get("path") or source.get("tool") or "")),
        next=due,
        signals=tuple(_signal(spec, row.signals.get(spec["name"]) or {}, now) for spec in signals),
    )


def _signal(spec: Mapping[str, Any], state: Mapping[str, Any], now: datetime) -> SignalLine:
    fired_at = state.get("fired_at")
    return SignalLine(
        name=spec["name"],
        said=_said(state),
        threshold=str(spec["threshold"]),
        fired=f"fired {ago(datetime.fromisoformat(fired_at), now)}" if fired_at else "never fired",
        bad=bool(state.get("unable")) or "said" in state,
    )


def _said(state: Mapping[str, Any]) -> str:
    if unable := state.get("unable"):
        said = f"could not be judged: {unable}"
    elif "said" in state:
        said = f"no score: {state['said'] or 'it said nothing'}"
    elif state.get("score") is not None:
        said = f"scored {state['score']}"
    else:
        said = "not judged yet"
    left = [f"{len(state['waiting']['items'])} to be judged"] if state.get("waiting") else []
    left += [f"{state['let_go']} never judged"] if state.get("let_go") else []
    left += [f"{state['suppressed']} suppressed by its cooldown"] if state.get("suppressed") else []
    return ", ".join([said, *left])


# --- Agents that work by themselves: the levers, and where one stands in a few words ---


PERMISSION: Final = "agents.change_agentsession"
# With every status: of one that is missing here, unfold shows the status and not the words.
GOING_LABELS: Final = {status: STATUS_LABELS.get(status, "") for status in Status.values}


def _linked(done: Told, started: list[UnderWay]) -> Told:
    sessions = [row for one in started for row in (one.loop, one.heartbeat) if row is not None]
    return Told(format_html("{} {}", done.text, session_links(sessions)), done.refused)


def _start(asked: Asked) -> Told:
    started: list[UnderWay] = []
    done = each(asked, lambda row: started.append(agent_start(agent=row, by=asked.by, now=asked.now)), "started")
    return _linked(done, started)


def _stop(asked: Asked) -> Told:
    return each(asked, lambda row: agent_stop(agent=row, by=asked.by, now=asked.now), "stopped")


def _restart(asked: Asked) -> Told:
    started: list[UnderWay] = []
    done = each(asked, lambda row: started.append(agent_restart(agent=row, by=asked.by, now=asked.now)), "restarted")
    return _linked(done, started)


def paces_itself(agent: Agent) -> bool:
    """Whether its definition has a loop or a heartbeat."""
    try:
        definition = definition_of(agent)
    except DefinitionError:
        return False
    return definition.is_autonomous or heartbeat_of(definition) is not None


def can_start(agent: Agent) -> bool:
    """Something that its definition has, and that does not run."""
    if not paces_itself(agent):
        return False
    definition = definition_of(agent)
    going = agent_under_way(agent)
    waits = (definition.is_autonomous and not going.loop) or (heartbeat_of(definition) and not going.heartbeat)
    return agent.enabled and bool(waits)


def can_stop(agent: Agent) -> bool:
    """It works by itself, or will do so again tomorrow."""
    return agent_is_going(agent) or loop_is_awaited(agent)


LEVERS: Final = (
    Act("start", "Start", PERMISSION, _start, fits=can_start,
        explained="It begins to work by itself, as its definition says: turn after turn in its loop, with its sensors, "
        "and at the beats of its heartbeat. Its caps and guardrails hold."),
    Act("stop", "Stop", PERMISSION, _stop, fits=can_stop,
        explained="Its loop, its sensors and its heartbeat end: no call of theirs starts any more, also not with a new "
        "day. What triggers and chats have begun goes on."),
    Act("restart", "Restart", PERMISSION, _restart, fits=agent_is_going,
        explained="It is stopped and started again: with an empty hot state, a full cap, and its definition as it is "
        "now."),
)  # fmt: skip


def going_words(session: AgentSession | None) -> tuple[str, str]:
    """A status to colour by, and where the loop or the heartbeat stands."""
    if session is None:
        return "", ""
    if session.mode == Mode.HEARTBEAT:
        at = session.next_wake_at
        return session.status, f"heartbeat {ago(at, clock())}" if at else "heartbeat"
    if session.status == Status.SLEEPING and session.next_wake_at:
        return session.status, f"sleeps until {session.next_wake_at:%H:%M:%S}"
    return session.status, standing_words(session)


# The part of an agent's page that is alive: its loop, what it sees and senses, its turns, and what it tells.


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


def _halt_sessions(asked: Asked) -> Told:
    pks = [agent.pk for agent in asked.rows]
    return halted(agents_halt(pks, by=asked.by, reason=asked.given["reason"], now=asked.now))


def _delete(asked: Asked) -> Told:
    return each(asked, lambda row: agent_delete(agent=row, by=asked.by, now=asked.now), "deleted")


class AgentForm(EditForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))

    class Meta:
        model = Agent
        fields = ["name", "mode", "allow_high_risk", "enabled", "max_cost_per_day_usd"]
        labels = {"max_cost_per_day_usd": "Cap per day (USD)", "allow_high_risk": "Allow high risk"}

    field_order = ["owner"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["owner"]


@admin.register(Agent)
class AgentAdmin(DefinitionPages):
    list_display = ["name", "owner", "going", "mode", "enabled", "day_cap", "version"]
    list_filter = ["mode", "enabled"]
    list_select_related = ["owner"]
    search_fields = ["name"]
    empty = (
        "There are no agents. An agent says what asks a person first, and what its runs may spend in a day. Add one, "
        "or import its YAML."
    )
    form_class = AgentForm
    edit_template = "admin/agent.html"
    acts = (
        *LEVERS,
        Act("halt", "Halt its sessions", CHANGE, _halt_sessions, ReasonForm, grave=True,
            explained="Every session of this agent that is under way is halted. The agent itself stays as it is."),
        Act("delete", "Delete", "agents.delete_agent", _delete, grave=True, many=False,
            explained="Only an agent that has never run and has no triggers can be deleted; switch off any other."),
    )  # fmt: skip

    def prepare(self, rows: list[Any]) -> None:
        known = under_way_of(row.pk for row in rows)
        for row in rows:
            row.going = known.get(row.pk)

    @column("by itself", labels=GOING_LABELS)
    def going(self, agent: Any) -> tuple[str, str]:
        if agent.going is None:
            return "", "not running" if paces_itself(agent) else "no"
        return going_words(agent.going)

    @column("cap per day")
    def day_cap(self, agent: Agent) -> str:
        return usd(agent.max_cost_per_day_usd, empty="none of its own")

    @column("definition")
    def version(self, agent: Agent) -> str:
        return f"version {agent.definition_version}" if agent.definition_version else "none"

    def make_form(self, request: HttpRequest, row: Any) -> Any:
        form = super().make_form(request, row)
        form.fields["allow_high_risk"].disabled = not person(request).is_superuser
        return form

    def save_new(self, request: HttpRequest, form: Any) -> Agent:
        return agent_create(by=person(request), now=clock(), **form.cleaned_data)

    def save_changes(self, request: HttpRequest, row: Agent, form: Any) -> Agent:
        return agent_edit(agent=row, by=person(request), now=clock(), **form.changes())

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        if row is None:
            return {}
        sessions = list(row.sessions.select_related("owner", "trigger").order_by("-id")[:10])
        known = purposes(sessions)
        by = person(request)
        meter = meter_today("agent", row.pk, cap=row.max_cost_per_day_usd, name=row.name, now=clock())
        return {
            "sessions": [(session, known[session.pk]) for session in sessions],
            "may_chat": row.enabled and row.owner_id == by.pk and by.has_perm("agents.add_agentsession"),
            "meter": meter,
            "bar": meter_bar(meter),
            **(about := self.about_definition(row)),
            **autonomy_context(request, row, about.get("definition"), clock()),
        }
