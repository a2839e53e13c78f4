"""Who acts and why: agents, the triggers that spawn their runs, projects, and the user's opt-in."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from agents.enums import ApprovalMode, TriggerKind
from agents.models.fields import MicroUSDField


class Profile(models.Model):
    """A user's standing with lqops. Nothing runs for a user who has not opted in."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_profile")
    opted_in = models.BooleanField(default=False, help_text="Agents may run in the background for this user.")

    def __str__(self) -> str:
        return f"{self.user} ({'opted in' if self.opted_in else 'not opted in'})"


class Project(models.Model):
    """What a run may know of the matter at hand."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_projects")
    name = models.CharField(max_length=200)
    context_md = models.TextField(blank=True, help_text="Read by every run that is bound to this project.")
    parties = models.TextField(blank=True, help_text="Names of people and firms, one per line, to hide from models.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.name


class Agent(models.Model):
    """A named worker with one owner, one approval mode and one budget."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_agents")
    name = models.CharField(max_length=120)
    mode = models.CharField(
        max_length=8,
        choices=ApprovalMode,
        default=ApprovalMode.SEMI,
        help_text="What asks a person first. auto: nothing; semi: RESTRICTED and above; manual: CONTROLLED and above.",
    )
    enabled = models.BooleanField(default=True)
    max_cost_per_day_usd = MicroUSDField(
        null=True, blank=True, help_text="All runs of this agent together, per UTC day. Empty: no cap of its own."
    )
    edited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="agent_name_per_owner")]

    def __str__(self) -> str:
        return self.name


class Trigger(models.Model):
    """What spawns sessions. Its caps bound each session it spawns, and all of them together in a day."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_triggers")
    agent = models.ForeignKey(Agent, models.CASCADE, null=True, blank=True, related_name="triggers")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, blank=True, related_name="triggers")
    kind = models.CharField(max_length=12, choices=TriggerKind)
    name = models.CharField(max_length=120)
    max_cost_usd = MicroUSDField(
        null=True, blank=True, help_text="Copied to each session at spawn. Empty: the installation's default."
    )
    max_cost_per_day_usd = MicroUSDField(
        null=True, blank=True, help_text="All sessions of this trigger together, per UTC day. Empty: no cap of its own."
    )
    enabled = models.BooleanField(default=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(kind__in=TriggerKind.values), name="trigger_kind")]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"
