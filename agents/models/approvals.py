"""Approval tickets: evidence that a person allowed one exact call, once."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import ApprovalStatus, Level, Phase, Risk, ToolIntent
from agents.models.sessions import AgentSession


class StandingApproval(models.Model):
    """A person's yes for the rest of one session: one capability, fixed arguments, few uses, an end."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="standing_approvals")
    action = models.CharField(max_length=128)
    version = models.CharField(max_length=64)
    fixed_arguments = models.JSONField()
    free_arguments = models.JSONField(default=list)
    uses_left = models.PositiveIntegerField()
    expires_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.action} ({self.uses_left} uses left)"


class Approval(models.Model):
    """One ticket for one digest of (session, call, capability and version, canonical arguments, phase).

    status: pending ──► approved | rejected | expired | cancelled; approved ──► expired | cancelled until it is used.
    `consumed_at` is set by one conditional UPDATE, by the call that uses it, and never again.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="approvals")
    call_key = models.CharField(max_length=96)
    intent = models.CharField(max_length=24, choices=ToolIntent)
    action = models.CharField(max_length=128)
    version = models.CharField(max_length=64)
    phase = models.CharField(max_length=16, choices=Phase)
    level = models.CharField(max_length=12, choices=Level)
    risk_level = models.CharField(max_length=8, choices=Risk, blank=True)
    description = models.TextField()
    simulation = models.TextField(blank=True)
    arguments = models.JSONField()
    digest = models.CharField(max_length=64)
    signature = models.CharField(max_length=64, help_text="As the digest, without the call's place in the run.")
    original_arguments = models.JSONField(null=True, blank=True)
    original_digest = models.CharField(max_length=64, blank=True)

    status = models.CharField(max_length=12, choices=ApprovalStatus, default=ApprovalStatus.PENDING)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="resolved_approvals"
    )
    standing = models.ForeignKey(StandingApproval, models.SET_NULL, null=True, blank=True, related_name="tickets")
    note = models.TextField(blank=True)
    consumed_at = models.DateTimeField(null=True, blank=True)
    reminders_sent = models.PositiveSmallIntegerField(default=0)

    class Meta:
        permissions = [("resolve_approval", "Can approve or deny a call of an agent")]
        constraints = [
            models.CheckConstraint(condition=Q(status__in=ApprovalStatus.values), name="approval_status"),
            models.CheckConstraint(
                condition=Q(consumed_at__isnull=True) | Q(status=ApprovalStatus.APPROVED), name="approval_consumed"
            ),
            models.UniqueConstraint(
                fields=["session", "call_key"],
                condition=Q(status__in=[ApprovalStatus.PENDING, ApprovalStatus.APPROVED], consumed_at__isnull=True),
                name="approval_one_live_ticket",
            ),
        ]
        indexes = [
            models.Index(fields=["created_at"], condition=Q(status=ApprovalStatus.PENDING), name="approval_pending"),
            models.Index(fields=["session", "signature"], name="approval_signature"),
        ]

    def __str__(self) -> str:
        return f"{self.action} ({self.status})"
