"""Rows of agents that pace themselves: turns, hot state, alerts, sensors, savings of the gate, activity."""

from datetime import datetime

from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Now

from agents.conf import lease_lifetime
from agents.enums import HotSource, SensorKind, SensorState, TurnState
from agents.models.agents import Agent
from agents.models.fields import MicroUSDField
from agents.models.sessions import AgentSession


class Turn(models.Model):
    """One waking of a loop, from its snapshot to its yield, or one that the gate skipped."""

    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="turns", db_index=False)
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=12, choices=TurnState, default=TurnState.OPEN)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    yielded = models.CharField(max_length=12, blank=True, help_text="How the agent ended its turn.")
    sleep_seconds = models.PositiveIntegerField(null=True, blank=True)
    reason = models.TextField(blank=True, help_text="What the agent said about it, or what stopped it.")
    seen = models.JSONField(default=dict, blank=True, help_text="The hot state and alerts that it was shown, in short.")
    definition = models.TextField(
        blank=True, help_text="The text that it goes by, while it is open: a newer one holds from the next turn on."
    )
    tokens = models.PositiveBigIntegerField(default=0)
    cost_usd = MicroUSDField(default=0)
    actions = models.PositiveIntegerField(default=0, help_text="Calls with side effects that succeeded.")

    class Meta:
        ordering = ["session_id", "number"]
        constraints = [
            models.UniqueConstraint(fields=["session", "number"], name="turn_number"),
            models.CheckConstraint(condition=Q(state__in=TurnState.values), name="turn_state"),
        ]

    def __str__(self) -> str:
        return f"turn {self.number} ({self.state})"


class HotField(models.Model):
    """One field of the hot state of one loop run. A new run begins with none."""

    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="hot_fields", db_index=False)
    name = models.CharField(max_length=64)
    value = models.JSONField(null=True, blank=True)
    previous = models.JSONField(null=True, blank=True, help_text="What it was before the last change.")
    source = models.CharField(max_length=8, choices=HotSource)
    source_name = models.CharField(max_length=64, blank=True)
    updated_at = models.DateTimeField(help_text="When it was last written, changed or not.")
    changed_at = models.DateTimeField(help_text="When its value last became another.")

    class Meta:
        verbose_name = "hot state field"
        constraints = [models.UniqueConstraint(fields=["session", "name"], name="hot_field_name")]

    def __str__(self) -> str:
        return self.name


class AlertQuerySet(models.QuerySet["Alert"]):
    def pending(self) -> "AlertQuerySet":
        return self.filter(cleared_at__isnull=True)


class Alert(models.Model):
    """Something that an agent must see at its next turn; cleared when a turn that showed it has ended well."""

    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="alerts")
    name = models.CharField(max_length=64)
    text = models.TextField(blank=True)
    source_name = models.CharField(max_length=64, blank=True)
    dedupe = models.CharField(max_length=96, blank=True, help_text="One alert for one happening, however often told.")
    created_at = models.DateTimeField()
    cleared_at = models.DateTimeField(null=True, blank=True)

    objects = AlertQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "dedupe"], condition=~Q(dedupe=""), name="alert_once")
        ]
        indexes = [models.Index(fields=["session"], condition=Q(cleared_at__isnull=True), name="alert_pending")]

    def __str__(self) -> str:
        return self.name


class SensorQuerySet(models.QuerySet["Sensor"]):
    def running(self) -> "SensorQuerySet":
        """Those whose agent's loop is under way and that can be run at all."""
        return self.filter(state__in=[SensorState.WAITING, SensorState.FINE, SensorState.FAILING], wanted=True)

    def held(self, now: datetime) -> "SensorQuerySet":
        """In the hands of a slice that lives. A lease that lies too far ahead was given by a wrong clock."""
        alive = Q(lease_until__gt=now, lease_until__lte=now + 2 * lease_lifetime())
        return self.filter(alive, ~Q(lease_owner=""), wanted=True)

    def unheld(self, now: datetime) -> "SensorQuerySet":
        """Given back, never taken, or in the hands of a slice that was not heard of for a whole lease."""
        lost = Q(lease_until__isnull=True) | Q(lease_until__lte=now) | Q(lease_until__gt=now + 2 * lease_lifetime())
        return self.running().filter(Q(lease_owner="") | lost)


class Sensor(models.Model):
    """A source that keeps fields of an agent's hot state fresh. It starts and stops with its agent's loop.

    Slices of up to 250 sensors hold them under a lease; the fencing number stands in every write of a slice.
    """

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="sensors", db_index=False)
    name = models.CharField(max_length=64)
    kind = models.CharField(max_length=8, choices=SensorKind)
    config = models.JSONField(default=dict, help_text="As the agent's definition says.")
    wanted = models.BooleanField(default=False, help_text="Its agent's loop is under way.")
    state = models.CharField(max_length=12, choices=SensorState, default=SensorState.WAITING)
    problem = models.TextField(blank=True, help_text="Why it cannot run, or what failed last.")
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    next_due_at = models.DateTimeField(null=True, blank=True)
    read_at = models.DateTimeField(null=True, blank=True)
    value = models.TextField(blank=True, help_text="The beginning of what was read last.")
    cursor = models.JSONField(
        default=dict, blank=True, help_text="Where to go on: Last-Event-ID, ETag, hashes of files."
    )
    signals = models.JSONField(default=dict, blank=True, help_text="When each signal fired last, and its last score.")
    secret_uses = models.JSONField(
        default=dict, db_default=Value({}, models.JSONField()), help_text="The day on which each use was recorded last."
    )
    lease_owner = models.CharField(max_length=96, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    fencing = models.PositiveBigIntegerField(default=0)

    objects = SensorQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "name"], name="sensor_name"),
            models.CheckConstraint(condition=Q(kind__in=SensorKind.values), name="sensor_kind"),
            models.CheckConstraint(condition=Q(state__in=SensorState.values), name="sensor_state"),
        ]
        indexes = [models.Index(fields=["lease_until"], condition=Q(wanted=True), name="sensor_lease")]

    def __str__(self) -> str:
        return self.name

    def is_held(self, now: datetime) -> bool:
        """The same as the query `held`, for this row."""
        if not self.lease_owner or self.lease_until is None:
            return False
        return now < self.lease_until <= now + 2 * lease_lifetime()


class GateDay(models.Model):
    """Wakes that the gate spared an agent on one UTC day, and what they would have cost."""

    agent = models.ForeignKey(Agent, models.CASCADE, related_name="gate_days", db_index=False)
    day = models.DateField()
    asked = models.PositiveIntegerField(default=0, help_text="Times that the small model was asked.")
    opened = models.PositiveIntegerField(default=0)
    unchanged = models.PositiveIntegerField(default=0, help_text="Skipped because nothing had changed.")
    immaterial = models.PositiveIntegerField(default=0, help_text="Skipped because the small model saw nothing in it.")
    spent_usd = MicroUSDField(default=0)
    saved_usd = MicroUSDField(default=0, help_text="Skipped turns at the average price of the agent's turns.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "day"], name="gate_day")]

    def __str__(self) -> str:
        return f"{self.agent_id} {self.day}"


class AgentEvent(models.Model):
    """An event of the live activity: ordered by id, bounded per agent. It is not part of the audit log."""

    agent = models.ForeignKey(Agent, models.CASCADE, null=True, blank=True, related_name="happenings", db_index=False)
    session = models.ForeignKey(
        AgentSession, models.CASCADE, null=True, blank=True, related_name="happenings", db_index=False
    )
    owner_id = models.BigIntegerField()
    kind = models.CharField(max_length=64)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "event"
        ordering = ["id"]
        indexes = [
            models.Index(fields=["owner_id", "id"], name="agent_event_owner"),
            models.Index(fields=["agent", "id"], name="agent_event_agent"),
            models.Index(fields=["session", "id"], name="agent_event_session"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"
