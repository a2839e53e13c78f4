"""Agents: the list, the form, start and stop, and the live part of the page: loop, sensors, turns, activity."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html_join

from agents.admin.actions import (
    ActionRequest,
    ActionResult,
    PauseForm,
    ReasonForm,
    RowAction,
    delete_action,
    each_row,
    for_each,
)
from agents.admin.base import DetailAdmin, current_user, page_link, record_view, view_token
from agents.admin.charts import small_charts
from agents.admin.definitions import AgentDefinitionAdmin
from agents.admin.display import (
    STATUS_LABELS,
    Bar,
    OptionFilter,
    ago,
    column,
    counted,
    status_text,
    usd,
    with_purposes,
    words,
)
from agents.admin.forms import NamesField, OwnerForm
from agents.admin.money import caps_action
from agents.admin.sessions import CHANGE, halt_result, start_each
from agents.conf import clock
from agents.definitions.in_force import autonomy_of, definition_of
from agents.definitions.schema import SOURCE_KEYS, AgentDefinition, DefinitionError
from agents.enums import ApprovalMode, BudgetScope, EventKind, Mode, SensorKind, SensorState, Status
from agents.exceptions import LqopsError
from agents.loop.crossings import instructions_of_agent
from agents.loop.guardrails import RATE_WINDOW, count_hour_tokens
from agents.loop.heartbeat import heartbeat_of
from agents.loop.pacing import Pace
from agents.loop.reads import autonomous_sessions, gate_totals, recent_events
from agents.loop.state import FieldView, hot_snapshot
from agents.loop.turns import PACE, alerts_pending
from agents.models import Agent, AgentEvent, AgentSession, Sensor, Turn
from agents.people.activity import duration_text, event_sentence
from agents.roster.agents import (
    WAIVERS,
    AutonomousSessions,
    agent_archive,
    agent_autonomous_sessions,
    agent_can_stop,
    agent_create,
    agent_delete,
    agent_edit,
    agent_is_running,
    agent_restart,
    agent_start,
    agent_stop,
    agent_unarchive,
)
from agents.sensors.trial import agent_try, trial_lines
from agents.sessions.control_room import meter_today
from agents.sessions.figures import Subject
from agents.sessions.halts import agents_halt
from agents.sessions.pauses import agent_pause, agent_resume
from agents.text.shown import visible
from audit.redaction import redact

# The name of the sidebar, as the heading of the page.
AgentEvent._meta.verbose_name = "activity event"
AgentEvent._meta.verbose_name_plural = "activity"
SHOWN_TURNS: Final = 20
REFRESH_SECONDS: Final = 10

# --- Activity ---


def kind_words(kind: str) -> str:
    return words(kind.replace("autonomy:", "").replace(":", " "))


class EventKindFilter(OptionFilter):
    title = "kind"
    parameter_name = "kind"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("All", Q()),
        **{kind: (kind_words(kind).capitalize(), Q(kind=kind)) for kind in EventKind.values},
    }


@admin.register(AgentEvent)
class AgentEventAdmin(DetailAdmin):
    event = column(lambda row: visible(event_sentence(row.kind, row.data)), title="event")
    kind_ = column("kind", kind_words)
    list_display = ["created_at", "event", "kind_", "agent", "of_session"]
    list_filter = [EventKindFilter]
    list_select_related = ["agent", "session"]
    search_fields = ["agent__public_id__exact", "session__public_id__exact"]
    search_help_text = "The full id of an agent or a run."
    empty_text = "No activity yet. Events of agents, sensors and guardrails appear here."
    exclude = ("id", "owner_id")

    def extra_context(self, request: HttpRequest, row: AgentEvent) -> dict[str, Any]:
        return {"title": event_sentence(row.kind, row.data)}


# --- Sensors on the page of an agent ---


SENSOR_COLORS: Final = {
    SensorState.FINE: "good",
    SensorState.FAILING: "bad",
    SensorState.INVALID: "bad",
    SensorState.UNRESOLVED: "warn",
}
SET_ASIDE: Final = frozenset({SensorState.INVALID, SensorState.UNRESOLVED})


def sensor_line(row: Sensor, now: datetime) -> dict[str, Any]:
    is_idle = not row.wanted and row.state not in SET_ASIDE
    source = row.config.get("source") or {}
    signals = row.config.get("signals") or ()
    return {
        "row": row,
        "state": "idle" if is_idle else row.state,
        "color": "" if is_idle else SENSOR_COLORS.get(SensorState(row.state), ""),
        "source": redact(_source_text(source)),
        "next": _next(row, now),
        "signals": [_signal(spec, row.signals.get(spec["name"]) or {}, now) for spec in signals],
    }


def _source_text(source: Mapping[str, Any]) -> str:
    """The source of a sensor."""
    given = next((source[key] for key in SOURCE_KEYS if source.get(key)), "")
    return f"{given['user']} at {given['host']}, {given['folder']}" if isinstance(given, dict) else str(given)


def _next(sensor: Sensor, now: datetime) -> str:
    """When the sensor reads next."""
    if sensor.state in SET_ASIDE:
        return "skipped"
    if not sensor.wanted:
        return "idle"
    if sensor.kind != SensorKind.POLL and sensor.state != SensorState.FAILING:
        return "listening"
    return ago(sensor.next_due_at, now) if sensor.next_due_at and sensor.next_due_at > now else "due"


def _signal(spec: Mapping[str, Any], state: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """A signal: its last score or state, or why there is none, its threshold, and when it fired last."""
    fired_at = state.get("fired_at")
    is_condition = bool(spec.get("when"))
    return {
        "name": spec["name"],
        "score": _condition_text(state) if is_condition else _score_text(state),
        "threshold": None if is_condition else spec["threshold"],
        "fired": f"fired {ago(datetime.fromisoformat(fired_at), now)}" if fired_at else "never fired",
        "bad": bool(state.get("unable")) or "said" in state or "fault" in state,
    }


def _condition_text(state: Mapping[str, Any]) -> str:
    if fault := state.get("fault"):
        text = f"cannot be judged: {fault}"
    elif "conditions" in state:
        text = "condition met" if state["met"] else "condition not met"
    else:
        text = "not judged yet"
    return ", ".join([text, *_counts(state)])


def _counts(state: Mapping[str, Any]) -> list[str]:
    """Readings that were not judged, or did not count."""
    left = [f"{state['unscored']} readings unscored"] if state.get("unscored") else []
    left += [f"{state['let_go']} never scored"] if state.get("let_go") else []
    left += [f"{state['suppressed']} suppressed by its cooldown"] if state.get("suppressed") else []
    return left


def _score_text(state: Mapping[str, Any]) -> str:
    if unable := state.get("unable"):
        score = f"scoring failed: {unable}"
    elif "said" in state:
        score = f"no score: {state['said'] or 'empty reply'}"
    elif state.get("score") is not None:
        score = f"score {state['score']}"
    else:
        score = "not scored yet"
    left = [f"{len(state['waiting']['items'])} to be scored"] if state.get("waiting") else []
    return ", ".join([score, *left, *_counts(state)])


# --- Start, stop and restart of loops and heartbeats ---


# Every status is listed: for a missing one, unfold shows the status instead of the text.
LOOP_LABELS: Final = {status: STATUS_LABELS.get(status, "") for status in Status.values}


def _run_each(start: Callable[..., AutonomousSessions], done: str) -> Callable[[ActionRequest], ActionResult]:
    """The `run` of an action that starts runs, with links to them."""

    def run(action: ActionRequest) -> ActionResult:
        def sessions(row: Agent) -> list[AgentSession]:
            started = start(agent=row, by=action.by, now=action.now)
            return [session for session in (started.loop, started.heartbeat) if session is not None]

        return start_each(action, sessions, done)

    return run


def own_pace(agent: Agent) -> tuple[bool, bool]:
    """Whether its definition has a loop, and whether it has a heartbeat."""
    try:
        definition = definition_of(agent)
    except DefinitionError:
        return False, False
    return definition.is_autonomous, heartbeat_of(definition) is not None


def can_start(agent: Agent) -> bool:
    """Whether its definition has a loop or heartbeat that does not run."""
    has_loop, has_beat = own_pace(agent)
    going = agent_autonomous_sessions(agent)
    return agent.enabled and bool((has_loop and not going.loop) or (has_beat and not going.heartbeat))


def loop_text(agent: Any) -> tuple[str, str]:
    """The status of an agent's loop or heartbeat, for the colour, and as text."""
    session = agent.under_way
    if session is None:
        return "", "not running" if any(own_pace(agent)) else "none"
    if session.mode == Mode.HEARTBEAT:
        at = session.next_wake_at
        return session.status, f"heartbeat {ago(at, clock())}" if at else "heartbeat"
    if session.status == Status.SLEEPING and session.next_wake_at:
        return session.status, f"sleeping until {session.next_wake_at:%H:%M:%S}"
    return session.status, status_text(session)


# --- The live part of an agent's page ---


EVENT_COLORS: Final[dict[str, str]] = {
    EventKind.TURN_STARTED: "info",
    EventKind.TURN_COMPLETED: "good",
    EventKind.GUARDRAIL_TRIGGERED: "warn",
    EventKind.NOTIFICATION_PUSHED: "warn",
    EventKind.APPROVAL_REQUESTED: "warn",
    EventKind.SENSOR_ERROR: "bad",
    EventKind.ERROR: "bad",
}
TURN_COLORS: Final = {"open": "info", "failed": "bad", "skipped": ""}


def autonomy_context(
    request: HttpRequest, agent: Agent, definition: AgentDefinition | None, now: datetime
) -> dict[str, Any]:
    """Return the context of the page with a fixed number of statements, also without a readable definition."""
    going = agent_autonomous_sessions(agent)
    by = current_user(request)
    last = going.loop or AgentSession.objects.filter(agent=agent, mode=Mode.LOOP).order_by("-pk").first()
    if last is not None:
        record_view(request, by, last)
    sensors = [sensor_line(row, now) for row in agent.sensors.order_by("name")]
    events = list(recent_events(agent.pk))
    has_own_work = definition is not None and (definition.autonomy or definition.heartbeat)
    return {
        "works": bool(last or going.heartbeat or sensors or has_own_work),
        "has_beat": definition is not None and heartbeat_of(definition) is not None,
        "beat": going.heartbeat,
        "last_loop": last,
        **_loop_context(going.loop, agent, definition, now),
        "sensors": sensors,
        "turns": _turns(agent),
        "instructions": instructions_of_agent(agent.pk),
        "spared": gate_totals(agent.pk, now),
        "activity": [(one, event_sentence(one.kind, one.data), EVENT_COLORS.get(one.kind, "")) for one in events],
        "activity_after": events[0].pk if events else 0,
        "event_colors": json.dumps(EVENT_COLORS),
        "follows": agent.owner_id == by.pk,
        "every": REFRESH_SECONDS if going.loop or going.heartbeat else None,
        "token": view_token(by, *(row for row in (agent, last) if row)),
    }


def _loop_context(
    loop: AgentSession | None, agent: Agent, definition: AgentDefinition | None, now: datetime
) -> dict[str, Any]:
    if loop is None:
        return {"loop": None}
    return {
        "loop": loop,
        "limits": _limits(loop, agent, definition, now) if definition else [],
        "hot": _hot(loop, definition, now) if definition else [],
        "alerts": alerts_pending(loop),
    }


def _hot(loop: AgentSession, definition: AgentDefinition, now: datetime) -> list[tuple[FieldView, str, str]]:
    """Every declared field with its type and its age."""
    specs = definition.hot_state.fields
    views = hot_snapshot(loop, definition, now=now)
    return [
        (view, specs[view.name].type, f"{duration_text(view.age_seconds)} ago" if view.loaded else "") for view in views
    ]


def _turns(agent: Agent) -> list[tuple[Turn, str, str]]:
    """The latest turns of all its loops, with how each ended."""
    rows = Turn.objects.filter(session__agent=agent).select_related("session").order_by("-id")[:SHOWN_TURNS]
    return [(turn, _ended(turn), TURN_COLORS.get(turn.state, "good")) for turn in rows]


def _ended(turn: Turn) -> str:
    if turn.yielded == "sleep":
        return f"sleep {duration_text(turn.sleep_seconds)}"
    return turn.yielded or str(turn.state)


def _limits(
    loop: AgentSession, agent: Agent, definition: AgentDefinition, now: datetime
) -> list[tuple[str, str, Bar | None]]:
    """The guardrails of the loop, the most likely to act first: how much of each is used, as text and as a bar."""
    limits = autonomy_of(definition)
    pace = Pace.from_json(loop.metadata.get(PACE))
    acted = sum(datetime.fromisoformat(at) > now - RATE_WINDOW for at in pace.actions)
    used = (
        ("Turns without sleep", pace.consecutive, limits.max_consecutive_turns),
        ("Tokens in this hour", count_hour_tokens(loop, agent, pace, now=now)[1], limits.token_budget_per_hour or None),
        ("Actions in the last minute", acted, limits.max_actions_per_minute),
        ("Idle seconds", pace.idle_ms // 1_000, limits.idle_timeout or None),
    )
    found = [
        (name, f"{number:,}, no limit", None)
        if most is None
        else (name, f"{number:,} of {most:,}", Bar.of(Decimal(number), Decimal(most)))
        for name, number, most in used
    ]
    if hours := limits.active_hours:
        found.append(("Active hours", f"{hours.start} to {hours.end}, {definition.zone}", None))
    return found


# --- The page ---


def _has_trial(agent: Agent) -> bool:
    return agent.sensors.exists()


def _try_sensors(action: ActionRequest) -> ActionResult:
    [agent] = action.rows
    try:
        tried = agent_try(agent=agent, by=action.by, now=action.now)
    except LqopsError as error:
        return ActionResult("", (f"{agent.name}: {error}",))
    lines = format_html_join("\n", "{}<br>", ((line,) for line in trial_lines(tried)))
    return ActionResult(lines if tried["ok"] else "", () if tried["ok"] else tuple(trial_lines(tried)))


def _halt_runs(action: ActionRequest) -> ActionResult:
    pks = [agent.pk for agent in action.rows]
    return halt_result(agents_halt(pks, by=action.by, reason=action.data["reason"], now=action.now))


def _pause(action: ActionRequest) -> ActionResult:
    facts = {"by": action.by, "reason": action.data["reason"], "now": action.now}
    return for_each(action, lambda row: agent_pause(agent=row, **facts), "paused")


def _is_paused(agent: Agent) -> bool:
    return agent.pauses.open().exists()


class AgentForm(OwnerForm):
    field_order = ["owner"]
    waived_skills = NamesField(
        required=False,
        help_text="PRIVILEGED skills that run without approval in mode auto, separated by commas. Only superusers can "
        "add to them.",
    )

    class Meta:
        model = Agent
        fields = ["name", "mode", "allow_high_risk", "waived_skills", "enabled", "max_cost_per_day_usd"]
        labels = {"max_cost_per_day_usd": "Cap per day (USD)", "allow_high_risk": "Allow high risk"}
        help_texts = {
            "mode": "Calls that need approval. auto: PRIVILEGED; semi: and RESTRICTED; manual: and CONTROLLED.",
            "allow_high_risk": "In mode auto, high-risk calls run without approval. Only superusers can set it.",
            "max_cost_per_day_usd": "Maximum cost of all its runs per UTC day. Empty: no cap of its own.",
        }


APPROVAL_WORDS: Final[Mapping[str, str]] = {
    ApprovalMode.AUTO: "PRIVILEGED calls need approval",
    ApprovalMode.SEMI: "RESTRICTED and PRIVILEGED calls need approval",
    ApprovalMode.MANUAL: "CONTROLLED, RESTRICTED and PRIVILEGED calls need approval",
}


def settings_summary(agent: Agent, by: User) -> list[dict[str, Any]]:
    """The settings for reading, above the form: its state, which calls need approval, its cap, what starts it."""
    state = "archived" if agent.archived_at else "enabled" if agent.enabled else "disabled"
    facts = [
        ("State", state, ""),
        ("Owner", str(agent.owner), page_link(agent.owner, by)),
        ("Approvals", f"{agent.mode}: {APPROVAL_WORDS.get(agent.mode, '')}", ""),
        ("Cap per day", usd(agent.max_cost_per_day_usd, empty="none of its own"), ""),
        ("Definition", f"version {agent.definition_version}" if agent.definition_version else "none", "#definition"),
        ("Last changed by", str(agent.edited_by or "nobody"), ""),
    ]
    if agent.allow_high_risk:
        facts.append(("High risk", "allowed in mode auto", ""))
    if agent.waived_skills:
        facts.append(("Without approval", ", ".join(agent.waived_skills), ""))
    if by.has_perm("agents.view_trigger"):
        number = agent.triggers.filter(deleted_at__isnull=True).count()
        link = f"{reverse('admin:agents_trigger_changelist')}?agent__id__exact={agent.pk}" if number else ""
        facts.append(("Triggers", counted(number, "trigger") if number else "none", link))
    return [{"label": label, "text": text, "link": link} for label, text, link in facts]


class ArchivedFilter(OptionFilter):
    title = "archive"
    parameter_name = "archive"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("In use", Q(archived_at__isnull=True)),
        "archived": ("Archived", Q(archived_at__isnull=False)),
        "all": ("All", Q()),
    }


@admin.register(Agent)
class AgentAdmin(AgentDefinitionAdmin):
    loop = column(loop_text, title="loop", label=LOOP_LABELS)
    day_cap = column(
        "max_cost_per_day_usd", partial(usd, empty="none"), title="cap per day", sort="max_cost_per_day_usd"
    )
    sortable_by = None
    version = column("definition_version", lambda number: f"version {number}" if number else "none", title="definition")
    list_display = ["name", "owner", "loop", "mode", "enabled", "day_cap", "version"]
    list_filter = [ArchivedFilter, "mode", "enabled"]
    list_select_related = ["owner"]
    search_fields = ["name"]
    empty_text = (
        "No agents yet. An agent sets which calls need approval and what its runs may cost per day. Add one, or import "
        "YAML."
    )
    form = AgentForm
    change_form_template = "admin/agent.html"
    row_actions = (
        caps_action(BudgetScope.AGENT),
        RowAction(
            "start",
            "Start",
            _run_each(agent_start, "started"),
            permission=CHANGE,
            available=can_start,
            description="Starts its loop with its sensors, and its heartbeat, as its definition says. Its caps and "
            "guardrails apply.",
        ),
        RowAction(
            "stop",
            "Stop",
            each_row(agent_stop, "agent", "stopped"),
            permission=CHANGE,
            available=agent_can_stop,
            description="Ends its loop, sensors and heartbeat until somebody starts it again. Runs of triggers and "
            "chats continue.",
        ),
        RowAction(
            "restart",
            "Restart",
            _run_each(agent_restart, "restarted"),
            permission=CHANGE,
            available=agent_is_running,
            description="Stops and starts it, with an empty hot state, a full cap and its current definition.",
        ),
        RowAction(
            "try",
            "Try sensors",
            _try_sensors,
            permission=CHANGE,
            available=_has_trial,
            bulk=False,
            description="Reads each sensor once, judges each signal and asks the gate, with the real models and at "
            "their cost (at most $0.25). Nothing is kept, and the agent is not started.",
        ),
        RowAction(
            "halt",
            "Halt runs",
            _halt_runs,
            ReasonForm,
            CHANGE,
            danger=True,
            description="Halts every current run of this agent. The agent itself does not change.",
        ),
        RowAction(
            "pause",
            "Pause",
            _pause,
            PauseForm,
            CHANGE,
            available=lambda row: not _is_paused(row),
            description="Puts its runs aside: calls in flight end normally, and no other begins. Its loop does not "
            "wake, its sensors rest, and runs that start meanwhile wait.",
        ),
        RowAction(
            "resume",
            "Resume",
            each_row(agent_resume, "agent", "resumed"),
            permission=CHANGE,
            available=_is_paused,
            description="Its runs go on where they were. Runs that were paused one by one stay paused.",
        ),
        RowAction(
            "archive",
            "Archive",
            each_row(agent_archive, "agent", "archived"),
            permission="agents.change_agent",
            available=lambda row: row.archived_at is None,
            description="Stops and disables the agent and takes it out of the lists. It can be brought back.",
        ),
        RowAction(
            "unarchive",
            "Bring back",
            each_row(agent_unarchive, "agent", "brought back"),
            permission="agents.change_agent",
            available=lambda row: row.archived_at is not None,
            description="Brings the agent back into the lists. It stays disabled until somebody enables it.",
        ),
        delete_action(
            each_row(agent_delete, "agent", "deleted"),
            "Only an agent without runs and triggers can be deleted; disable any other.",
            bulk=False,
        ),
    )

    def prepare_rows(self, rows: list[Any]) -> None:
        known = autonomous_sessions(row.pk for row in rows)
        for row in rows:
            row.under_way = known.get(row.pk)

    def build_form(self, request: HttpRequest, row: Any) -> Any:
        form = super().build_form(request, row)
        for name in WAIVERS:
            form.fields[name].disabled = not current_user(request).is_superuser
        return form

    def create(self, request: HttpRequest, form: Any) -> Agent:
        return agent_create(by=current_user(request), now=clock(), **form.cleaned_data)

    def update(self, request: HttpRequest, row: Agent, form: Any) -> Agent:
        return agent_edit(agent=row, by=current_user(request), now=clock(), **form.changes())

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        by = current_user(request)
        return {
            "sessions": with_purposes(row.sessions.select_related("owner", "trigger").order_by("-id")[:10]),
            "may_chat": row.enabled and row.owner_id == by.pk and by.has_perm("agents.add_agentsession"),
            "meter": meter_today("agent", row.pk, cap=row.max_cost_per_day_usd, name=row.name, now=clock()),
            "own_pause": row.pauses.open().select_related("requested_by", "agent").first(),
            "settings_summary": settings_summary(row, by),
            **small_charts(by, Subject(agent_id=row.pk), clock()),
            **(about := self.definition_context(row)),
            **autonomy_context(request, row, about.get("definition"), clock()),
        }
