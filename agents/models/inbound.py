"""What comes in from outside: events for triggers, and the keys that integrations show."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import EventOutcome, EventSeverity
from agents.models.agents import Trigger
from agents.models.sessions import AgentSession


class InboundEvent(models.Model):
    """An event that was received, and what came of it. A signed id is remembered, so that a replay spawns nothing."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_events")
    trigger = models.ForeignKey(Trigger, models.SET_NULL, null=True, blank=True, related_name="events")
    session = models.ForeignKey(AgentSession, models.SET_NULL, null=True, blank=True, related_name="events")
    webhook_id = models.CharField(max_length=255, blank=True)
    source = models.CharField(max_length=120, blank=True)
    event_type = models.CharField(max_length=120, blank=True)
    category = models.CharField(max_length=120, blank=True)
    severity = models.CharField(max_length=8, choices=EventSeverity, default=EventSeverity.INFO)
    title = models.CharField(max_length=300, blank=True)
    data = models.JSONField(default=dict, blank=True)
    outcome = models.CharField(max_length=16, choices=EventOutcome)
    received_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "event"
        verbose_name_plural = "events received"
        constraints = [
            models.UniqueConstraint(
                fields=["trigger", "webhook_id"], condition=~Q(webhook_id=""), name="event_once_per_webhook_id"
            )
        ]
        indexes = [models.Index(fields=["owner", "-id"], name="event_owner")]

    def __str__(self) -> str:
        return self.title or f"{self.source} {self.event_type}"


class ApiKey(models.Model):
    """A key of one user, kept as a hash. It is shown once, when it is made."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_api_keys")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16, unique=True, help_text="The beginning of the key, to recognise it by.")
    hash = models.CharField(max_length=64)
    scopes = models.JSONField(default=list, help_text="What the key may do: read, write, decide.")
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
