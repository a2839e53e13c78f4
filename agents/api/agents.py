"""Agents: named workers with one owner, one approval mode and one budget. Their YAML comes in and goes out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, CountField, Shown, StrictJSON, UsdField, WordField, YamlText, ref
from agents.api.operations import ReasonBody
from agents.api.schema import described
from agents.api.sessions import HaltCountShown
from agents.definitions.in_force import definition_drift, definition_of, effective_settings
from agents.definitions.schema import DefinitionError
from agents.enums import ApprovalMode, HotSource, Status, WaitingOn
from agents.http import yaml_file
from agents.loop.reads import loop_current, loop_facts
from agents.loop.state import hot_snapshot
from agents.models import Agent, Alert, GateDay, Sensor, Turn
from agents.people.access import demand_start
from agents.roster.agents import (
    NAME_CHARS,
    agent_create,
    agent_delete,
    agent_edit,
    agent_restart,
    agent_start,
    agent_stop,
    agent_under_way,
)
from agents.roster.files import agent_define, agent_export, agent_import
from agents.sessions.halts import agents_halt
from agents.skills.registry import unresolved
from audit.redaction import redact, redact_data

# Agents' definitions through the API: the YAML text, what it comes to here, and everything that is wrong with one.


VERSION_DIGITS: Final = 10


class DefinitionText(YamlText):
    """An agent.yaml as it stands in a file: the text is handed on, and read by the service alone."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        return {"definition": super().parse(stream, media_type, parser_context)["yaml"]}


class OldDefinitionText(DefinitionText):
    """The same, under the name that many programs still use for YAML."""

    media_type = "text/yaml"


class DefinitionBody(Body):
    definition = serializers.CharField(trim_whitespace=False, help_text="An agent.yaml.")


class DefinitionPut(DefinitionBody):
    version = CountField(
        required=False, help_text="The version that the text was made from: if there is a newer one, the answer is 409."
    )


IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description='The same as `version`, for a body of YAML: `"3"`.'
)


def version_said(request: Request, said: Mapping[str, Any]) -> int | None:
    """The version that a text was made from, if the client says so."""
    named = request.headers.get("If-Match", "*").strip().removeprefix("W/").strip('"')
    if named == "*":
        return said.get("version")
    if not (named.isascii() and named.isdigit() and len(named) <= VERSION_DIGITS):
        raise ValidationError({"If-Match": ['The version of the definition, such as "3".']})
    return int(named)


class ProblemShown(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="0 when it speaks of no line.")
    key = serializers.CharField()
    expected = serializers.CharField()
    got = serializers.CharField()
    message = serializers.CharField()


class SettingShown(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="Its place in the file, such as autonomy.idle_timeout.")
    value = serializers.JSONField(allow_null=True)
    said_by = serializers.CharField(help_text="its text, set here, the installation, or default.")


class BrokenSensorShown(serializers.Serializer[Any]):
    name = serializers.CharField()
    problem = serializers.CharField()


class DefinitionShown(serializers.Serializer[Any]):
    definition = serializers.CharField(help_text="The text; of an agent that never had one, what is known of it.")
    version = serializers.IntegerField(help_text="0: it never had a text.")
    digest = serializers.CharField()
    effective = SettingShown(many=True, help_text="Every setting that holds.")
    drift = serializers.ListField(
        child=serializers.CharField(), help_text="Where people have set it otherwise than its text says."
    )
    broken_sensors = BrokenSensorShown(many=True, help_text="Sensors that are skipped.")
    notes = ProblemShown(many=True, help_text="What the text names and this installation does not have.")


def definition_shown(agent: Agent) -> dict[str, Any]:
    with problems_told():
        definition = definition_of(agent)
        told = {
            "definition": agent_export(agent),
            "version": agent.definition_version,
            "digest": agent.definition_digest,
            "effective": effective_settings(agent),
            "drift": definition_drift(agent),
            "broken_sensors": definition.broken_sensors,
            "notes": [note.to_json() for note in (*definition.notes, *unresolved(definition))],
        }
    return DefinitionShown(told).data


@contextmanager
def problems_told() -> Iterator[None]:
    """Every problem of a definition, for programs, in `detail`."""
    try:
        yield
    except DefinitionError as error:
        refusal = ValidationError()
        refusal.detail = {"problems": [problem.to_json() for problem in error.problems]}
        raise refusal from None


# --- What an agent does by itself: starting and stopping it, and what it sees, senses, does and spares ---


class LoopShown(serializers.Serializer[Any]):
    session = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Status.choices)
    waiting_on = serializers.ChoiceField(choices=WaitingOn.choices, allow_null=True)
    started_at = serializers.DateTimeField()
    next_wake_at = serializers.DateTimeField(allow_null=True, help_text="The end of its sleep.")
    turn = serializers.IntegerField(help_text="The number of the last turn.")
    yielded = serializers.CharField(help_text="How the last turn ended: continue, sleep or shutdown.")
    reason = serializers.CharField(help_text="What the agent said about it.")
    alerts = serializers.IntegerField(help_text="How many wait to be seen.")
    alerts_dropped = serializers.IntegerField(help_text="How many came while too many waited, and will not be seen.")
    tokens = serializers.IntegerField()
    cost_usd = UsdField()
    max_cost_usd = UsdField(allow_null=True)


class BeatShown(serializers.Serializer[Any]):
    session = serializers.UUIDField(source="public_id")
    status = serializers.ChoiceField(choices=Status.choices)
    next_wake_at = serializers.DateTimeField(allow_null=True)


class UnderWayShown(serializers.Serializer[Any]):
    loop = LoopShown(allow_null=True, help_text="Null: its loop does not run.")
    heartbeat = BeatShown(allow_null=True, help_text="The beat that comes next; null: it has none.")


class FieldShown(serializers.Serializer[Any]):
    name = serializers.CharField()
    value = serializers.SerializerMethodField(help_text="Null: not yet loaded.")
    age_seconds = serializers.IntegerField(allow_null=True)
    stale = serializers.BooleanField(help_text="Older than its time to live, or never loaded.")
    source = serializers.ChoiceField(  # type: ignore[assignment]  # of the value, no place to read from
        choices=[*HotSource.choices, ("", "")], help_text="Who wrote it."
    )
    source_name = serializers.CharField(help_text="The sensor or the tool that wrote it.")

    def get_value(self, field: Any) -> Any:
        return redact_data(field.value)


class HotStateShown(serializers.Serializer[Any]):
    session = serializers.UUIDField(allow_null=True, help_text="The loop that sees it; null: none runs.")
    fields = FieldShown(many=True)  # type: ignore[assignment]  # the hot state's, not the serializer's


class SensorShown(serializers.ModelSerializer[Sensor]):
    value = serializers.SerializerMethodField(help_text="The beginning of what was read last.")
    signals = serializers.SerializerMethodField(
        help_text="Of each: its last score, or what was said instead or why nobody could be asked; when it fired last; "
        "how many items wait to be judged, how many never were, and how many its cooldown suppressed."
    )

    class Meta:
        model = Sensor
        fields = [
            "name", "kind", "wanted", "state", "problem", "failures", "read_at", "next_due_at", "value", "signals",
        ]  # fmt: skip
        read_only_fields = fields

    def get_value(self, sensor: Any) -> str:
        return redact(sensor.value)

    def get_signals(self, sensor: Any) -> dict[str, Any]:
        return {name: _signal_shown(state) for name, state in sensor.signals.items()}


def _signal_shown(state: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in state.items() if name not in {"waiting", "mark", "missed", "spawns"}}
    return shown | {"waiting": len(state["waiting"]["items"]) if "waiting" in state else 0}


class TurnShown(serializers.ModelSerializer[Turn]):
    session = ref("session")
    reason = serializers.SerializerMethodField(help_text="What the agent said about it, or what stopped it.")
    cost_usd = UsdField(read_only=True)

    class Meta:
        model = Turn
        fields = [
            "session", "number", "state", "started_at", "ended_at", "yielded", "sleep_seconds", "reason", "actions",
            "tokens", "cost_usd",
        ]  # fmt: skip
        read_only_fields = fields

    def get_reason(self, turn: Any) -> str:
        return redact(turn.reason)


class GateDayShown(serializers.ModelSerializer[GateDay]):
    wakes_avoided = serializers.SerializerMethodField(help_text="Turns that were not taken: unchanged and immaterial.")
    spent_usd = UsdField(read_only=True, help_text="What asking the small model cost.")
    saved_usd = UsdField(read_only=True, help_text="The turns not taken, at the average price of a turn.")

    class Meta:
        model = GateDay
        fields = ["day", "opened", "wakes_avoided", "unchanged", "immaterial", "asked", "spent_usd", "saved_usd"]
        read_only_fields = fields

    def get_wakes_avoided(self, day: Any) -> int:
        return int(day.unchanged + day.immaterial)


class AlertShown(serializers.ModelSerializer[Alert]):
    text = serializers.SerializerMethodField()

    class Meta:
        model = Alert
        fields = ["id", "name", "text", "source_name", "created_at"]
        read_only_fields = fields

    def get_text(self, alert: Any) -> str:
        return redact(alert.text)


class AutonomousAgents(OwnedViewSet[Agent]):
    """The part of agents that works by itself."""

    starts = frozenset({"start", "restart"})

    @described("agents_loop", UnderWayShown)
    @action(detail=True, methods=["get"])
    def loop(self, request: Request, **_: Any) -> Response:
        """What the agent has going on by itself: its loop, and its heartbeat."""
        return self._under_way(self.get_object())

    @described("agents_start", UnderWayShown)
    @action(detail=True, methods=["post"])
    def start(self, request: Request, **_: Any) -> Response:
        """Starts what the definition has: the loop with its sensors, and the heartbeat. Said again, it changes nothing.

        422 when the agent is switched off, or its definition has neither.
        """
        agent = self.get_object()
        with problems_told():
            agent_start(agent=agent, by=self.person, now=self.now)
        return self._under_way(agent)

    @described("agents_stop", UnderWayShown)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, **_: Any) -> Response:
        """Stops loop, sensors and heartbeat: no call of theirs starts after this. Said again, it changes nothing."""
        agent = self.get_object()
        agent_stop(agent=agent, by=self.person, now=self.now)
        return self._under_way(agent)

    @described("agents_restart", UnderWayShown)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, **_: Any) -> Response:
        """Stops the agent and starts it again, with an empty hot state and a full cap."""
        agent = self.get_object()
        with problems_told():
            agent_restart(agent=agent, by=self.person, now=self.now)
        return self._under_way(agent)

    @described("agents_hot_state", HotStateShown)
    @action(detail=True, methods=["get"], url_path="hot-state")
    def hot_state(self, request: Request, **_: Any) -> Response:
        """What the agent's loop sees of the world at this moment: every declared field."""
        agent = self.get_object()
        loop = loop_current(agent.pk)
        if loop is None:
            return Response(HotStateShown({"session": None, "fields": []}).data)
        with problems_told():
            fields = hot_snapshot(loop, definition_of(agent), now=self.now)
        return Response(HotStateShown({"session": loop.public_id, "fields": fields}).data)

    @described("agents_sensors", SensorShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def sensors(self, request: Request, **_: Any) -> Response:
        """What keeps the hot state fresh, by name, with the last value and the last error of each."""
        return self.listed(self.get_object().sensors.order_by("name"), SensorShown)

    @described("agents_turns", TurnShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def turns(self, request: Request, **_: Any) -> Response:
        """The turns of the agent's loops, newest first."""
        rows = Turn.objects.filter(session__agent=self.get_object()).select_related("session")
        return self.listed(rows.order_by("-id"), TurnShown)

    @described("agents_gate", GateDayShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def gate(self, request: Request, **_: Any) -> Response:
        """What was spared by not waking the agent when nothing had changed, by UTC day, newest first."""
        return self.listed(self.get_object().gate_days.order_by("-day"), GateDayShown)

    @described("agents_alerts", AlertShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def alerts(self, request: Request, **_: Any) -> Response:
        """What waits to be seen by the next turn of the agent's loop, oldest first."""
        loop = loop_current(self.get_object().pk)
        waiting = Alert.objects.pending().filter(session=loop) if loop else Alert.objects.none()
        return self.listed(waiting.order_by("id"), AlertShown)

    def _under_way(self, agent: Agent) -> Response:
        going = agent_under_way(agent)
        told = {"loop": loop_facts(going.loop) if going.loop else None, "heartbeat": going.heartbeat}
        return Response(UnderWayShown(told).data)


PARSERS = [StrictJSON, DefinitionText, OldDefinitionText]
TEXTS = {"application/json": DefinitionBody, "application/yaml": str, "text/yaml": str}
VERSIONED_TEXTS = {**TEXTS, "application/json": DefinitionPut}


class AgentShown(Shown):
    class Meta:
        model = Agent
        fields = ["id", "name", "mode", "enabled", "max_cost_per_day_usd", "allow_high_risk", "created_at"]


class AgentDetail(AgentShown):
    definition = serializers.CharField(read_only=True, help_text="Its YAML; empty when it never had any.")

    class Meta(AgentShown.Meta):
        fields = [*AgentShown.Meta.fields, "definition_version", "definition_digest", "definition"]


class AgentBody(Body):
    name = serializers.CharField(max_length=NAME_CHARS)
    mode = WordField(choices=ApprovalMode.choices, required=False)
    enabled = serializers.BooleanField(required=False)
    max_cost_per_day_usd = UsdField(required=False, allow_null=True)
    allow_high_risk = serializers.BooleanField(
        required=False, help_text="In mode auto, calls of high risk run unasked. Only superusers set it."
    )


class Agents(AutonomousAgents):
    """Your agents, newest first."""

    queryset = Agent.objects.all()
    always_allowed = frozenset({"halt"})
    starts = AutonomousAgents.starts | {"define", "import_yaml"}  # a definition has triggers

    def get_serializer_class(self) -> type[AgentShown]:
        return AgentShown if self.action == "list" else AgentDetail

    @described("agents_create", {201: AgentDetail}, body=AgentBody)
    def create(self, request: Request) -> Response:
        said = self.body(AgentBody)
        return self.shown(agent_create(owner=self.person, by=self.person, now=self.now, **said), created=True)

    @described("agents_edit", AgentDetail, body=AgentBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """While sessions of the agent are under way, its mode can be tightened and not loosened.

        Switching it on lets its triggers fire: that needs the permission to start sessions.
        """
        agent, said = self.get_object(), self.body(AgentBody, partial=True)
        if said.get("enabled"):
            demand_start(self.person)
        return self.shown(agent_edit(agent=agent, by=self.person, now=self.now, **said))

    @described("agents_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        """Deletes an agent that has never run; one with a history is switched off instead (409)."""
        agent_delete(agent=self.get_object(), by=self.person, now=self.now)
        return self.gone()

    @described("agents_halt", HaltCountShown, body=ReasonBody)
    @action(detail=True, methods=["post"])
    def halt(self, request: Request, **_: Any) -> Response:
        """Halts every session of the agent that is under way, each on its own. The agent itself stays as it is."""
        agent, said = self.get_object(), self.body(ReasonBody)
        counted = agents_halt([agent.pk], by=self.person, reason=said["reason"], now=self.now)
        return Response(HaltCountShown(counted).data)

    @described("agents_import", AgentDetail, body=TEXTS)
    @action(detail=False, methods=["post"], url_path="import", parser_classes=PARSERS)
    def import_yaml(self, request: Request) -> Response:
        """An agent from an agent.yaml: a new one, or the next version of the one of that name."""
        text = self.body(DefinitionBody)["definition"]
        with problems_told():
            defined = agent_import(owner=self.person, text=text, by=self.person, now=self.now)
        return self.shown(defined.agent)

    @described("agents_definition", DefinitionShown)
    @action(detail=True, methods=["get"], url_path="definition", parser_classes=PARSERS)
    def definition(self, request: Request, **_: Any) -> Response:
        """The agent's YAML, and every setting that holds."""
        return Response(definition_shown(self.get_object()))

    @described("agents_define", DefinitionShown, body=VERSIONED_TEXTS, parameters=[IF_MATCH])
    @definition.mapping.put  # type: ignore[untyped-decorator]  # as DRF's router has it
    def define(self, request: Request, **_: Any) -> Response:
        """The next version of the agent's YAML; the same text changes nothing. Problems stand in `detail`, by line.

        409 when the version that the text was made from is said, and somebody has written a newer one.
        """
        agent, said = self.get_object(), self.body(DefinitionPut)
        version, text = version_said(request, said), said["definition"]
        with problems_told():
            agent = agent_define(agent=agent, text=text, by=self.person, now=self.now, version=version)
        return Response(definition_shown(agent))

    @described("agents_export", {(200, "application/yaml"): OpenApiTypes.STR})
    @action(detail=True, methods=["get"], url_path="export")
    def export_yaml(self, request: Request, **_: Any) -> HttpResponse:
        agent = self.get_object()
        return yaml_file(agent.name, agent_export(agent))
