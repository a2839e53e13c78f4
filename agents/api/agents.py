"""Agents: create, edit, start, stop and halt them; their YAML definitions, hot state, sensors, turns and alerts."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import CappedViewSet, create_with, delete_with, month_cap
from agents.api.fields import (
    Body,
    CountField,
    RedactedField,
    RowSerializer,
    StrictJSONParser,
    UsdField,
    WordField,
    YamlParser,
    ref,
)
from agents.api.operations import PauseReasonBody
from agents.api.paging import BooleanFilter
from agents.api.schema import describe, detail_action, detail_list, list_action
from agents.api.sessions import HaltBody, HaltCountSerializer
from agents.definitions.in_force import definition_drift, definition_of, resolved_settings
from agents.enums import ApprovalMode, BudgetScope, HotSource, Status, WaitingOn
from agents.loop.reads import loop_current, loop_facts
from agents.loop.state import hot_snapshot
from agents.models import Agent, Alert, GateDay, Sensor, Turn
from agents.people.access import require_start_permission
from agents.roster.agents import (
    NAME_CHARS,
    WAIVERS,
    agent_archive,
    agent_autonomous_sessions,
    agent_create,
    agent_delete,
    agent_edit,
    agent_restart,
    agent_start,
    agent_stop,
    agent_unarchive,
)
from agents.roster.files import agent_export, agent_import, definition_write
from agents.sensors.trial import agent_try
from agents.sessions.halts import agents_halt
from agents.sessions.pauses import agent_pause, agent_resume
from agents.skills.registry import unresolved_names
from agents.webhooks import yaml_download
from audit.redaction import redact_data

VERSION_DIGITS: Final = 10
HIDDEN_SIGNAL_STATE: Final = frozenset({"waiting", "mark", "missed", "spawns", "conditions", "loop"})


# --- Agents and their definitions ---


class DefinitionParser(YamlParser):
    """An agent.yaml as the whole body."""

    field = "definition"


class TextYamlParser(DefinitionParser):
    """The same under the older media type."""

    media_type = "text/yaml"


class DefinitionBody(Body):
    definition = serializers.CharField(trim_whitespace=False, help_text="An agent.yaml.")


class DefinitionPut(DefinitionBody):
    version = CountField(
        required=False, help_text="The version that the text is based on. 409 if there is a newer version."
    )


PARSERS = [StrictJSONParser, DefinitionParser, TextYamlParser]
TEXTS = {"application/json": DefinitionBody, "application/yaml": str, "text/yaml": str}
VERSIONED_TEXTS = {**TEXTS, "application/json": DefinitionPut}
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description='The same as `version`, for a YAML body: `"3"`.'
)


class AgentSerializer(RowSerializer):
    max_cost_per_month_usd = month_cap()

    class Meta:
        model = Agent
        fields = [
            "id", "name", "mode", "enabled", "max_cost_per_day_usd", "max_cost_per_month_usd", *WAIVERS, "created_at",
            "archived_at",
        ]  # fmt: skip


class AgentDetailSerializer(AgentSerializer):
    paused = serializers.SerializerMethodField(help_text="Whether it is paused: its sessions wait to be resumed.")
    definition = serializers.CharField(read_only=True, help_text="The YAML definition; empty if there is none.")

    class Meta(AgentSerializer.Meta):
        fields = [*AgentSerializer.Meta.fields, "paused", "definition_version", "definition_digest", "definition"]

    def get_paused(self, agent: Agent) -> bool:
        return agent.pauses.open().exists()


class AgentBody(Body):
    name = serializers.CharField(max_length=NAME_CHARS)
    mode = WordField(choices=ApprovalMode.choices, required=False)
    enabled = serializers.BooleanField(required=False)
    max_cost_per_day_usd = UsdField(required=False, allow_null=True)
    allow_high_risk = serializers.BooleanField(
        required=False, help_text="In mode auto, high-risk calls need no approval. Only superusers can set it."
    )
    waived_skills = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        max_length=100,
        help_text="PRIVILEGED skills that need no approval in mode auto. Only superusers can add to them.",
    )


class ProblemSerializer(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="0 if the problem has no line.")
    key = serializers.CharField()
    expected = serializers.CharField()
    got = serializers.CharField()
    message = serializers.CharField()


class SettingSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="The path in the file, such as autonomy.idle_timeout.")
    value = serializers.JSONField(allow_null=True)
    said_by = serializers.CharField(help_text="Source of the value: its text, set here, the installation, or default.")


class BrokenSensorSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    problem = serializers.CharField()


class DefinitionSerializer(serializers.Serializer[Any]):
    definition = serializers.CharField(help_text="The YAML; for an agent without one, generated from its settings.")
    version = serializers.IntegerField(help_text="0: the agent has no YAML yet.")
    digest = serializers.CharField()
    effective = SettingSerializer(many=True, help_text="Every setting in force.")
    drift = serializers.ListField(
        child=serializers.CharField(), help_text="Settings that people changed and that differ from the YAML."
    )
    broken_sensors = BrokenSensorSerializer(many=True, help_text="Sensors that are skipped.")
    notes = ProblemSerializer(many=True, help_text="Names in the YAML that this installation does not have.")


def _definition(agent: Agent) -> Response:
    definition = definition_of(agent)
    facts = {
        "definition": agent_export(agent),
        "version": agent.definition_version,
        "digest": agent.definition_digest,
        "effective": resolved_settings(agent),
        "drift": definition_drift(agent),
        "broken_sensors": definition.broken_sensors,
        "notes": [note.to_json() for note in (*definition.notes, *unresolved_names(definition))],
    }
    return Response(DefinitionSerializer(facts).data)


def _base_version(request: Request, data: Mapping[str, Any]) -> int | None:
    """The version that a new text is based on, if the client sends it."""
    header = request.headers.get("If-Match", "*").strip().removeprefix("W/").strip('"')
    if header == "*":
        return data.get("version")
    if not (header.isascii() and header.isdigit() and len(header) <= VERSION_DIGITS):
        raise ValidationError({"If-Match": ['Send the version of the definition, such as "3".']})
    return int(header)


# --- Loops: their state, sensors, turns, gate and alerts ---


class LoopSerializer(serializers.Serializer[Any]):
    session = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices)
    waiting_on = serializers.ChoiceField(choices=WaitingOn.choices, allow_null=True)
    started_at = serializers.DateTimeField()
    next_wake_at = serializers.DateTimeField(allow_null=True, help_text="When it wakes from its sleep.")
    why = serializers.CharField(help_text="Why it sleeps or waits; empty while it works.")
    turn = serializers.IntegerField(help_text="The number of the last turn.")
    yielded = serializers.CharField(help_text="How the last turn ended: continue, sleep or shutdown.")
    reason = serializers.CharField(help_text="The agent's reason for ending the turn like that.")
    alerts = serializers.IntegerField(help_text="Alerts for the next turn.")
    alerts_dropped = serializers.IntegerField(help_text="Alerts dropped because too many were pending.")
    tokens = serializers.IntegerField()
    spent_usd = UsdField(help_text="Cost: the larger of approved and reported cost.")
    cost_usd = UsdField(help_text="Approved estimates, for clients from before there was `spent_usd`.")
    max_cost_usd = UsdField(allow_null=True)


class BeatSerializer(serializers.Serializer[Any]):
    session = serializers.UUIDField(source="public_id")
    status = serializers.ChoiceField(choices=Status.choices)
    next_wake_at = serializers.DateTimeField(allow_null=True)


class UnderWaySerializer(serializers.Serializer[Any]):
    loop = LoopSerializer(allow_null=True, help_text="null: no loop is running.")
    heartbeat = BeatSerializer(allow_null=True, help_text="The next heartbeat; null: there is none.")


class FieldSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    value = serializers.SerializerMethodField(help_text="null: not loaded yet.")
    age_seconds = serializers.IntegerField(allow_null=True)
    stale = serializers.BooleanField(help_text="Older than its time to live, or never loaded.")
    source = serializers.ChoiceField(  # type: ignore[assignment]  # a field, not where to read from
        choices=[*HotSource.choices, ("", "")], help_text="Who wrote it."
    )
    source_name = serializers.CharField(help_text="The sensor or tool that wrote it.")

    def get_value(self, field: Any) -> Any:
        return redact_data(field.value)


class HotStateSerializer(serializers.Serializer[Any]):
    session = serializers.UUIDField(allow_null=True, help_text="The session of the loop; null: no loop is running.")
    fields = FieldSerializer(many=True)  # type: ignore[assignment]  # of the hot state


class SensorSerializer(RowSerializer):
    value = RedactedField(read_only=True, help_text="The beginning of the last value.")
    signals = serializers.SerializerMethodField(
        help_text="Per signal: the last score, or whether its conditions are met, or why it cannot be judged; when it "
        "fired last; how many items are waiting for a score, and how many readings were unscored, items never scored, "
        "or suppressed by its cooldown."
    )

    class Meta:
        model = Sensor
        fields = [
            "name", "kind", "wanted", "state", "problem", "failures", "read_at", "next_due_at", "value", "signals",
        ]  # fmt: skip

    def get_signals(self, sensor: Any) -> dict[str, Any]:
        return {name: _signal(state) for name, state in sensor.signals.items()}


def _signal(state: dict[str, Any]) -> dict[str, Any]:
    public = {name: value for name, value in state.items() if name not in HIDDEN_SIGNAL_STATE}
    return public | {"waiting": len(state["waiting"]["items"]) if "waiting" in state else 0}


class TriedSignalSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    fires = serializers.BooleanField()
    score = serializers.CharField(allow_null=True, help_text="The model's score; null for a condition.")
    text = serializers.CharField(help_text="The condition, or the score with its threshold.")
    problem = serializers.CharField(help_text="Why it could not be judged.")


class TriedSensorSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    type = serializers.CharField()
    ok = serializers.BooleanField()
    problem = serializers.CharField(help_text="Why it could not be read.")
    value = serializers.CharField(help_text="The beginning of what was read.")
    took_ms = serializers.IntegerField()
    signals = TriedSignalSerializer(many=True)


class TriedGateSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    opens = serializers.BooleanField()
    problem = serializers.CharField(help_text="Why it opens without an answer; empty if it was asked.")
    cost_usd = serializers.CharField()


class TrialSerializer(serializers.Serializer[Any]):
    ok = serializers.BooleanField(help_text="Every sensor was read, every signal judged, and the gate asked.")
    session = serializers.UUIDField(help_text="The run of the trial.")
    error = serializers.CharField(help_text="Why it ended early, such as its cost cap; empty if it did not.")
    spent_usd = serializers.CharField(help_text="Cost: the larger of the next two.")
    charged_usd = serializers.CharField(help_text="Approved estimates.")
    cost_usd = serializers.CharField(help_text="The same as `charged_usd`, for clients from before.")
    actual_usd = serializers.CharField(help_text="Cost of the reported tokens.")
    sensors = TriedSensorSerializer(many=True)
    gate = TriedGateSerializer(allow_null=True, help_text="null: the agent has no gate.")


class TurnSerializer(RowSerializer):
    session = ref("session")
    reason = RedactedField(read_only=True, help_text="Why the turn ended: the agent's words, or what stopped it.")

    class Meta:
        model = Turn
        fields = [
            "session", "number", "state", "started_at", "ended_at", "yielded", "sleep_seconds", "reason", "actions",
            "tokens", "cost_usd",
        ]  # fmt: skip


class GateDaySerializer(RowSerializer):
    wakes_avoided = serializers.SerializerMethodField(help_text="Turns not taken: unchanged plus immaterial.")
    spent_usd = UsdField(read_only=True, help_text="Cost of the small model's checks.")
    saved_usd = UsdField(read_only=True, help_text="The turns not taken, at the average cost of a turn.")

    class Meta:
        model = GateDay
        fields = ["day", "opened", "wakes_avoided", "unchanged", "immaterial", "asked", "spent_usd", "saved_usd"]

    def get_wakes_avoided(self, day: Any) -> int:
        return int(day.unchanged + day.immaterial)


class AlertSerializer(RowSerializer):
    id = serializers.IntegerField(read_only=True)  # type: ignore[assignment]  # alerts have no public id
    text = RedactedField(read_only=True)

    class Meta:
        model = Alert
        fields = ["id", "name", "text", "source_name", "created_at"]


class AgentViewSet(CappedViewSet[Agent]):
    """Your agents, newest first. Archived ones are listed with `archived=true` only."""

    budget_scope = BudgetScope.AGENT
    queryset = Agent.objects.all()
    serializer_class = AgentSerializer
    detail_serializer_class = AgentDetailSerializer
    filters: ClassVar[dict[str, Any]] = {
        "archived": BooleanFilter(
            field_name="archived_at", lookup_expr="isnull", exclude=True, label="Archived or not."
        )
    }
    always_allowed = frozenset({"halt", "pause"})
    starts = frozenset({"start", "resume", "restart", "define", "import_yaml"})  # a definition has triggers

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows = super().filter_queryset(queryset)
        asks = self.action != "list" or "archived" in self.request.query_params
        return rows if asks else rows.filter(archived_at__isnull=True)

    create = create_with(agent_create, AgentBody)
    destroy = delete_with(
        agent_delete, "Delete an agent that has never run. 409 for an agent with sessions: disable it instead."
    )

    @describe(body=AgentBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Change the fields that are sent.

        While the agent has unfinished sessions, its mode can be made stricter but not looser. Enabling the agent lets
        its triggers fire and needs the permission to start sessions.
        """
        agent = self.get_object()
        data = self.body(AgentBody, partial=True)
        if data.get("enabled"):
            require_start_permission(self.user)
        return self.respond(agent_edit(agent=agent, **self.actor, **data))

    @detail_action(HaltCountSerializer, body=HaltBody)
    def halt(self, request: Request, **_: Any) -> Response:
        """Halt every unfinished session of the agent. The agent itself stays as it is."""
        agent = self.get_object()
        reason = self.body(HaltBody)["reason"]
        return Response(HaltCountSerializer(agents_halt([agent.pk], reason=reason, **self.actor)).data)

    @detail_action({200: AgentDetailSerializer}, body=PauseReasonBody)
    def pause(self, request: Request, **_: Any) -> Response:
        """Pause the agent: its sessions are put aside, and those that start meanwhile wait.

        A repeated request changes nothing.
        """
        return self.act(agent_pause, PauseReasonBody)

    @detail_action({200: AgentDetailSerializer})
    def resume(self, request: Request, **_: Any) -> Response:
        """Resume the agent. Sessions that were paused one by one stay paused. 409 if it is not paused."""
        return self.act(agent_resume)

    @list_action(body=TEXTS, path="import", parsers=PARSERS)
    def import_yaml(self, request: Request) -> Response:
        """Import an agent.yaml: creates the agent, or the next version of the agent with that name."""
        text = self.body(DefinitionBody)["definition"]
        defined = agent_import(owner=self.user, text=text, **self.actor)
        return self.respond(defined.agent)

    @detail_action(DefinitionSerializer, method="get", parsers=PARSERS)
    def definition(self, request: Request, **_: Any) -> Response:
        """The agent's YAML and every setting in force."""
        return _definition(self.get_object())

    @describe(DefinitionSerializer, body=VERSIONED_TEXTS, parameters=[IF_MATCH])
    @definition.mapping.put  # type: ignore[untyped-decorator]  # DRF's way to add a method
    def define(self, request: Request, **_: Any) -> Response:
        """Save the next version of the agent's YAML. The same text changes nothing. Problems are in `detail`, by line.

        409 if the request names the version it is based on and there is a newer one.
        """
        agent = self.get_object()
        data = self.body(DefinitionPut)
        version = _base_version(request, data)
        agent = definition_write(agent=agent, text=data["definition"], version=version, **self.actor).agent
        return _definition(agent)

    @detail_action({(200, "application/yaml"): OpenApiTypes.STR}, method="get", path="export")
    def export_yaml(self, request: Request, **_: Any) -> HttpResponse:
        agent = self.get_object()
        return yaml_download(agent.name, agent_export(agent))

    @detail_action(UnderWaySerializer, method="get")
    def loop(self, request: Request, **_: Any) -> Response:
        """The agent's loop and heartbeat."""
        return self._under_way(self.get_object())

    @detail_action(UnderWaySerializer)
    def start(self, request: Request, **_: Any) -> Response:
        """Start the loop with its sensors, and the heartbeat, as defined. Changes nothing if they run already.

        422 if the agent is disabled, or its definition has neither.
        """
        return self._change(agent_start)

    @detail_action(UnderWaySerializer)
    def stop(self, request: Request, **_: Any) -> Response:
        """Stop loop, sensors and heartbeat. No further call starts. Changes nothing if they are stopped already."""
        return self._change(agent_stop)

    @detail_action(UnderWaySerializer)
    def restart(self, request: Request, **_: Any) -> Response:
        """Stop and start the agent, with an empty hot state and a new cap."""
        return self._change(agent_restart)

    @detail_action(TrialSerializer, path="try")
    def try_sensors(self, request: Request, **_: Any) -> Response:
        """Read each sensor once, judge each signal and ask the gate, with the real models and at their cost.

        Nothing is kept. 422 if the definition has neither sensors nor a gate.
        """
        return Response(TrialSerializer(agent_try(agent=self.get_object(), **self.actor)).data)

    @detail_action(AgentDetailSerializer)
    def archive(self, request: Request, **_: Any) -> Response:
        """Stop and disable the agent and take it out of lists. Changes nothing if it is archived already."""
        return self.respond(agent_archive(agent=self.get_object(), **self.actor))

    @detail_action(AgentDetailSerializer)
    def unarchive(self, request: Request, **_: Any) -> Response:
        """Bring an archived agent back. It stays disabled: enable it with PATCH."""
        return self.respond(agent_unarchive(agent=self.get_object(), **self.actor))

    @detail_action(HotStateSerializer, method="get")
    def hot_state(self, request: Request, **_: Any) -> Response:
        """Every declared field of the hot state, as the agent's loop sees it now."""
        agent = self.get_object()
        loop = loop_current(agent.pk)
        if loop is None:
            return Response(HotStateSerializer({"session": None, "fields": []}).data)
        fields = hot_snapshot(loop, definition_of(agent), now=self.now)
        return Response(HotStateSerializer({"session": loop.public_id, "fields": fields}).data)

    @detail_list(SensorSerializer)
    def sensors(self, request: Request, **_: Any) -> Response:
        """The agent's sensors, by name, each with its last value and its last error."""
        return self.page(self.get_object().sensors.order_by("name"), SensorSerializer)

    @detail_list(TurnSerializer)
    def turns(self, request: Request, **_: Any) -> Response:
        """The turns of the agent's loops, newest first."""
        rows = Turn.objects.filter(session__agent=self.get_object()).select_related("session")
        return self.page(rows.order_by("-id"), TurnSerializer)

    @detail_list(GateDaySerializer)
    def gate(self, request: Request, **_: Any) -> Response:
        """Turns and cost avoided because nothing had changed, by UTC day, newest first."""
        return self.page(self.get_object().gate_days.order_by("-day"), GateDaySerializer)

    @detail_list(AlertSerializer)
    def alerts(self, request: Request, **_: Any) -> Response:
        """Alerts for the next turn of the agent's loop, oldest first."""
        loop = loop_current(self.get_object().pk)
        pending = Alert.objects.pending().filter(session=loop) if loop else Alert.objects.none()
        return self.page(pending.order_by("id"), AlertSerializer)

    def _change(self, service: Callable[..., Any]) -> Response:
        agent = self.get_object()
        service(agent=agent, **self.actor)
        return self._under_way(agent)

    def _under_way(self, agent: Agent) -> Response:
        current = agent_autonomous_sessions(agent)
        facts = {"loop": loop_facts(current.loop) if current.loop else None, "heartbeat": current.heartbeat}
        return Response(UnderWaySerializer(facts).data)
