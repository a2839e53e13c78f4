"""What an agent does by itself: starting and stopping it, and what it sees, senses, does and spares."""

from typing import Any

from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.agent_definitions import problems_told
from agents.api.base import OwnedViewSet
from agents.api.fields import UsdField, ref
from agents.api.schema import described
from agents.definitions.in_force import definition_of
from agents.enums import HotSource, Status, WaitingOn
from agents.loop.reads import loop_current, loop_facts
from agents.loop.state import hot_snapshot
from agents.models import Agent, Alert, GateDay, Sensor, Turn
from agents.roster.agents import agent_restart, agent_start, agent_stop, agent_under_way
from audit.redaction import redact, redact_data


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
