"""Approval rules: what operators want allowed, asked or denied, one row for each version of a rule."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import RuleEffect
from agents.models.agents import Agent
from agents.models.fields import MicroUSDField


class ApprovalRuleQuerySet(models.QuerySet["ApprovalRule"]):
    def current(self) -> "ApprovalRuleQuerySet":
        """The newest version of each rule that was not deleted."""
        return self.filter(replaced_at__isnull=True)


class ApprovalRule(models.Model):
    """One version of a rule. A change adds a version; what decided on a call can be looked up later."""

    public_id = models.UUIDField(default=uuid.uuid4, editable=False, help_text="The same for all versions of a rule.")
    version = models.PositiveIntegerField(default=1, editable=False)
    name = models.CharField(max_length=120, help_text="Shown to approvers, and to the agent when it denies.")
    effect = models.CharField(
        max_length=8,
        choices=RuleEffect,
        help_text="Of several rules that fit a call the strictest counts. Calls that always ask cannot be allowed.",
    )
    role = models.CharField(max_length=150, blank=True, help_text="Who has to decide; empty: whoever may.")
    agent = models.ForeignKey(
        Agent, models.CASCADE, null=True, blank=True, related_name="approval_rules", help_text="Empty: every agent."
    )
    skill = models.CharField(max_length=64, blank=True, help_text="Empty: every skill.")
    conditions = models.JSONField(default=list, blank=True)
    min_cost_usd = MicroUSDField(null=True, blank=True, help_text="Only calls that are estimated at this or more.")
    destinations = models.JSONField(default=list, blank=True)
    enabled = models.BooleanField(default=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, editable=False, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    replaced_at = models.DateTimeField(null=True, editable=False, help_text="When it was changed or deleted.")

    objects = ApprovalRuleQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["public_id", "version"], name="approval_rule_version"),
            models.UniqueConstraint(
                fields=["public_id"], condition=Q(replaced_at__isnull=True), name="approval_rule_one_current"
            ),
            models.CheckConstraint(condition=Q(effect__in=RuleEffect.values), name="approval_rule_effect"),
        ]

    def __str__(self) -> str:
        return f"{self.name} (version {self.version})"
