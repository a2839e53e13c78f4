"""One row per call of a model, success or failure: what it cost, how long it took, and why it was asked."""

from django.db import models
from django.db.models.functions import Now

from agents.enums import Outcome, Purpose
from agents.models.fields import MicroUSDField
from agents.models.sessions import AgentSession


class InferenceLog(models.Model):
    """`cost_estimate` is the price of the reported tokens; empty when the provider reported none."""

    session = models.ForeignKey(AgentSession, models.CASCADE, null=True, blank=True, related_name="inferences")
    provider = models.CharField(max_length=64, blank=True)
    model = models.CharField(max_length=128)
    purpose = models.CharField(max_length=24, choices=Purpose)
    attempt = models.PositiveSmallIntegerField(default=1, help_text="Which try of its call this was.")
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    approved_usd = MicroUSDField(default=0)
    cost_estimate = MicroUSDField(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(default=0)
    request_id = models.CharField(max_length=128, blank=True, help_text="What the server calls this request.")
    refused = models.BooleanField(default=False)
    outcome = models.CharField(max_length=20, choices=Outcome)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "model call"
        indexes = [
            models.Index(fields=["model", "purpose", "-created_at"], name="inference_model_purpose"),
            models.Index(fields=["model", "-created_at"], name="inference_model"),
        ]

    def __str__(self) -> str:
        return f"{self.model} for {self.purpose} ({self.outcome})"
