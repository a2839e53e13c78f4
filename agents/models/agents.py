"""Agents, the triggers that start their runs, projects, and the user's opt-in."""

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from agents.enums import AnalysisMode, ApprovalMode, EventSeverity, Level, TriggerKind
from agents.models.fields import MicroUSDField
from agents.models.knowledge import Collection, Playbook, PromptSkill


def agents_may_run(user: str = "") -> models.Q:
    """Of the user at this place of a query: has opted in, and is not deactivated."""
    place = f"{user}__" if user else ""
    return models.Q((f"{place}is_active", True), (f"{place}lqops_profile__opted_in", True))


class Profile(models.Model):
    """A user's standing with lqops. Nothing runs for a user who has not opted in."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_profile")
    opted_in = models.BooleanField(default=False, help_text="Agents may run in the background for this user.")
    sso_link_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then an identity of single sign-on is linked by its address alone."
    )
    # What the person's agents, triggers and runs may be at most (agents/people/ceilings.py). Empty: the default.
    ceiling_mode = models.CharField(max_length=8, choices=ApprovalMode, blank=True, default="", db_default="")
    ceiling_level = models.CharField(max_length=12, choices=Level, blank=True, default="", db_default="")
    ceiling_run_usd = MicroUSDField(null=True, blank=True)
    ceiling_agent_day_usd = MicroUSDField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.user} ({'opted in' if self.opted_in else 'not opted in'})"


class Project(models.Model):
    """A matter: context for its runs, and names to hide from models."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_projects")
    name = models.CharField(max_length=200)
    context_md = models.TextField(blank=True, help_text="Read by every run that is bound to this project.")
    context_version = models.PositiveIntegerField(default=0, editable=False)
    parties = models.TextField(blank=True, help_text="Names of people and firms, one per line, to hide from models.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.name


class Agent(models.Model):
    """A named worker with one owner, one approval mode and one budget."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_agents", db_index=False)
    name = models.CharField(max_length=120)
    mode = models.CharField(
        max_length=8,
        choices=ApprovalMode,
        default=ApprovalMode.SEMI,
        help_text="What asks first. auto: PRIVILEGED; semi: RESTRICTED and above; manual: CONTROLLED and above.",
    )
    enabled = models.BooleanField(default=True)
    max_cost_per_day_usd = MicroUSDField(
        null=True, blank=True, help_text="All runs of this agent together, per UTC day. Empty: no cap of its own."
    )
    allow_high_risk = models.BooleanField(
        default=False,
        help_text="In mode auto, calls of high risk run without being asked about. Only superusers set it.",
    )
    waived_skills = models.JSONField(
        default=list,
        blank=True,
        help_text="PRIVILEGED skills that run without being asked about in mode auto. Only superusers add to them.",
    )

    # As its file says: agents.definitions reads it
    definition = models.TextField(blank=True, help_text="YAML: instructions, pacing, hot state, sensors, guardrails.")
    definition_digest = models.CharField(max_length=64, blank=True, editable=False)
    definition_version = models.PositiveIntegerField(default=0, editable=False)
    archived_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when it is out of the lists. It starts nothing."
    )
    wanted = models.BooleanField(
        default=False, editable=False, help_text="It was started, and nobody has stopped it since."
    )

    edited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        permissions = [("loosen", "Can loosen what binds agents: modes, caps, levels, reviews")]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="agent_name_per_owner"),
            models.CheckConstraint(
                condition=models.Q(archived_at__isnull=True) | models.Q(enabled=False), name="agent_archived_is_off"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class TriggerQuerySet(models.QuerySet["Trigger"]):
    def live(self) -> "TriggerQuerySet":
        """Neither deleted, disabled nor paused, and their owner has opted in: these may fire."""
        return self.filter(agents_may_run("owner"), deleted_at__isnull=True, enabled=True, paused_at__isnull=True)

    def due(self, now: datetime) -> "TriggerQuerySet":
        return self.live().filter(kind=TriggerKind.SCHEDULE, next_run_at__lte=now)


class Trigger(models.Model):
    """Starts sessions. Its caps bound each session it spawns, and all of them together in a day."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_triggers")
    agent = models.ForeignKey(Agent, models.CASCADE, null=True, blank=True, related_name="triggers")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, blank=True, related_name="triggers")
    kind = models.CharField(max_length=12, choices=TriggerKind)
    name = models.CharField(max_length=120)
    max_cost_usd = MicroUSDField(
        "cap per session (USD)",
        null=True,
        blank=True,
        help_text="Copied to each session at spawn. Empty: the installation's default.",
    )
    max_cost_per_day_usd = MicroUSDField(
        null=True, blank=True, help_text="All sessions of this trigger together, per UTC day. Empty: no cap of its own."
    )
    enabled = models.BooleanField(default=True)

    # What its runs do
    playbook = models.ForeignKey(
        Playbook, models.SET_NULL, null=True, blank=True, related_name="triggers", help_text="What to check against."
    )
    skill = models.ForeignKey(
        PromptSkill,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="triggers",
        help_text="What to do with the documents. If a playbook is set too, the skill wins.",
    )
    collection = models.ForeignKey(
        Collection,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="triggers",
        help_text="A watch fires on it and cannot change it later; schedules and events read it.",
    )
    query = models.CharField(max_length=500, blank=True, help_text="Reads only passages that match these words.")
    emit_artifacts = models.BooleanField(default=False, help_text="Runs may save drafts into the collection.")
    review_flagged = models.BooleanField(
        default=False, help_text="A run with a privilege or scope concern waits for approval before it delivers."
    )
    analysis_mode = models.CharField(
        max_length=8,
        choices=AnalysisMode,
        default=AnalysisMode.SINGLE,
        help_text="single: one question to the model. agentic: steps, in which it may call skills.",
    )
    loop = models.JSONField(default=dict, blank=True, help_text="Settings of the step loop for its runs.")
    guardrails = models.JSONField(default=dict, blank=True, help_text="Guardrails for its runs.")
    judge_citations = models.BooleanField(
        default=False, help_text="The judge models say whether each quote supports its finding."
    )

    # Schedules
    cron = models.CharField(max_length=120, blank=True, help_text="Five fields, such as 0 6 * * 1 for Mondays at 6.")
    zone = models.CharField(max_length=64, default="UTC", help_text="IANA time zone of the schedule.")
    catch_up_minutes = models.PositiveIntegerField(
        default=1_440, help_text="A firing missed by at most this long is made up for, once. 0: never."
    )
    next_run_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_run_at = models.DateTimeField(null=True, blank=True, editable=False)
    read_up_to = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Earlier than the last run: what came in later is still to be read.",
    )

    # Events: a rule that an event has to fit; empty or * fits anything
    source = models.CharField(max_length=120, blank=True)
    event_type = models.CharField(max_length=120, blank=True)
    category = models.CharField(max_length=120, blank=True)
    min_severity = models.CharField(
        "at least this grave", max_length=8, choices=EventSeverity, default=EventSeverity.INFO
    )
    secret_generation = models.PositiveIntegerField(default=1, editable=False)
    old_secret_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Until then the secret before the last rotation is taken too."
    )

    # What stops it from running away
    max_runs_per_hour = models.PositiveIntegerField(default=60, help_text="Firings beyond this are refused.")
    pause_after = models.PositiveIntegerField(
        default=50, help_text="Pauses after this many runs in a row that failed, or found nothing. 0: never."
    )
    failed_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    empty_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    paused_at = models.DateTimeField(null=True, blank=True, editable=False)
    pause_reason = models.CharField(max_length=24, blank=True, editable=False)

    edited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = TriggerQuerySet.as_manager()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(kind__in=TriggerKind.values), name="trigger_kind")]
        indexes = [
            models.Index(
                fields=["next_run_at"],
                condition=models.Q(kind=TriggerKind.SCHEDULE, enabled=True, deleted_at__isnull=True),
                name="trigger_due",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"
