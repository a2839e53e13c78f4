"""The journal: one row per guarded call, written before the call goes out and closed when its outcome is known."""

import uuid

from django.db import models
from django.db.models import F, Q

from agents.enums import Outcome, Phase, ToolIntent
from agents.models.fields import MicroUSDField
from agents.models.sessions import AgentSession


class ToolCallQuerySet(models.QuerySet["ToolCall"]):
    def open(self) -> "ToolCallQuerySet":
        return self.filter(outcome=Outcome.STARTED)

    def of_tools(self) -> "ToolCallQuerySet":
        """Those that are no mere questions to a model; a skill that asks one is a tool all the same."""
        return self.exclude(model__gt="", name=F("intent"))


class ToolCall(models.Model):
    """One guarded call: canonical arguments, digest, the approved cost, and what came of it.

    outcome: started ──► success | gateway_error | error | timeout | …   (settled by the worker)
             started ──► worker_lost | unknown                           (closed by recovery)
    `key` is the call's place in its run; a resumed run that comes to the same place gets the stored result.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="tool_calls")
    key = models.CharField(max_length=96)
    attempt = models.PositiveIntegerField(default=1)
    intent = models.CharField(max_length=24, choices=ToolIntent)
    name = models.CharField(max_length=128, blank=True)
    version = models.CharField(max_length=64, blank=True)
    phase = models.CharField(max_length=16, choices=Phase)
    arguments = models.JSONField()
    digest = models.CharField(max_length=64)
    asked_digest = models.CharField(max_length=64, help_text="Differs from the digest when an approver changed it.")
    fencing = models.PositiveBigIntegerField()
    repeatable = models.BooleanField(default=False)

    approved_usd = MicroUSDField(default=0)
    held_usd = MicroUSDField(default=0)
    charged_usd = MicroUSDField(default=0)
    actual_usd = MicroUSDField(default=0)
    budget_ids = models.JSONField(default=list)
    model = models.CharField(max_length=128, blank=True)
    max_tokens = models.PositiveIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)

    outcome = models.CharField(max_length=20, choices=Outcome, default=Outcome.STARTED)
    detail = models.CharField(max_length=128, blank=True)
    result = models.JSONField(null=True, blank=True)
    error = models.CharField(max_length=2000, blank=True)
    started_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)

    objects = ToolCallQuerySet.as_manager()

    class Meta:
        verbose_name = "call"
        constraints = [
            models.UniqueConstraint(fields=["session", "key", "attempt"], name="tool_call_place"),
            models.CheckConstraint(condition=Q(intent__in=ToolIntent.values), name="tool_call_intent"),
            models.CheckConstraint(condition=Q(outcome__in=Outcome.values), name="tool_call_outcome"),
            models.CheckConstraint(
                condition=Q(outcome=Outcome.STARTED, settled_at__isnull=True)
                | (~Q(outcome=Outcome.STARTED) & Q(settled_at__isnull=False)),
                name="tool_call_settled",
            ),
        ]
        indexes = [models.Index(fields=["session"], condition=Q(outcome=Outcome.STARTED), name="tool_call_open")]

    def __str__(self) -> str:
        return f"{self.intent} {self.key} ({self.outcome})"
