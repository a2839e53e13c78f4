"""Results of runs for their owner: findings, proposed memories, precedents, notifications."""

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import FindingState, NoticeKind, PrecedentEnd, ProposalStatus, QuoteCheck
from agents.models.agents import Project
from agents.models.knowledge import Document, Playbook
from agents.models.sessions import AgentSession
from agents.text.marks import LOCATION_CHARS
from agents.text.wording import text_key


class FindingQuerySet(models.QuerySet["Finding"]):
    def work(self) -> "FindingQuerySet":
        """Findings for people to settle: not those about the run itself."""
        return self.filter(about_run=False)


class Finding(models.Model):
    """Something a run found. Severity is free text, meant to be info, warn or critical.

    state: open ──► acknowledged ──► dismissed | resolved; open ──► dismissed | resolved | expired; each ──► open.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="findings")
    severity = models.CharField(max_length=32, default="info")
    title = models.CharField(max_length=300, default="(untitled)")
    content = models.TextField(blank=True)
    document = models.ForeignKey(Document, models.SET_NULL, null=True, blank=True, related_name="findings")
    quote = models.TextField(blank=True, help_text="What the document says, in its own words.")
    quote_start = models.PositiveIntegerField(null=True, blank=True)
    quote_end = models.PositiveIntegerField(null=True, blank=True)
    quote_check = models.CharField(
        max_length=12,
        choices=QuoteCheck,
        blank=True,
        help_text="verified: the quote stands in the document, character by character, at these offsets.",
    )
    location = models.CharField(
        max_length=LOCATION_CHARS,
        blank=True,
        help_text="Page, sheet or slide of a verified quote, if its file has any.",
    )
    judges_for = models.PositiveIntegerField(null=True, blank=True, help_text="Judges who say the quote supports it.")
    judges_asked = models.PositiveIntegerField(null=True, blank=True)
    about_run = models.BooleanField(
        default=False, db_default=False, help_text="About the run itself, such as a document that was not read."
    )
    playbook = models.ForeignKey(
        Playbook, models.SET_NULL, null=True, blank=True, related_name="findings", db_index=False
    )
    position = models.CharField(max_length=200, blank=True, db_default="", help_text="The playbook's position.")
    state = models.CharField(
        max_length=12, choices=FindingState, default=FindingState.OPEN, db_default=FindingState.OPEN
    )
    reason = models.TextField(blank=True, db_default="", help_text="Why it was dismissed.")
    precedent = models.ForeignKey(
        "Precedent",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="dismissals",
        help_text="What later runs learn from its dismissal.",
    )
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="lqops_findings"
    )
    triaged_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    triaged_at = models.DateTimeField(null=True, blank=True, help_text="When its state was last changed.")
    created_at = models.DateTimeField(db_default=Now())

    objects = FindingQuerySet.as_manager()

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [models.CheckConstraint(condition=Q(state__in=FindingState.values), name="finding_state")]
        indexes = [
            models.Index(fields=["created_at"], name="finding_created"),
            models.Index(fields=["state", "id"], condition=Q(about_run=False), name="finding_queue"),
            models.Index(
                fields=["playbook", "created_at"], condition=Q(playbook__isnull=False), name="finding_of_playbook"
            ),
        ]

    def __str__(self) -> str:
        return self.title


class FindingComment(models.Model):
    """What a person wrote about a finding. Without an author it was written by a command."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    finding = models.ForeignKey(Finding, models.CASCADE, related_name="comments")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    text = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"comment {self.public_id}"


class MemoryQuerySet(models.QuerySet["Memory"]):
    def kept(self) -> "MemoryQuerySet":
        """Memories that prompts may contain, newest kept first."""
        return self.filter(state="kept", deleted_at__isnull=True).order_by("-kept_at", "-id")


class Memory(models.Model):
    """A memory that an agent proposes. Only a person keeps it."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_memories", db_index=False)
    session = models.ForeignKey(AgentSession, models.SET_NULL, null=True, blank=True, related_name="memories")
    content = models.TextField()
    content_hash = models.CharField(
        max_length=64,
        default="",
        editable=False,
        help_text="Equal for memories that differ in case, spaces or marks alone.",
    )
    state = models.CharField(
        max_length=12, choices=[(word, word) for word in ("proposed", "kept", "dismissed")], default="proposed"
    )
    created_at = models.DateTimeField(db_default=Now())
    kept_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = MemoryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "memories"
        indexes = [
            models.Index(fields=["owner", "content_hash"], name="memory_same_content"),
            models.Index(fields=["owner", "-id"], name="memory_owner"),
        ]

    def __str__(self) -> str:
        return f"memory {self.public_id} ({self.state})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write the hash of the content with the content."""
        self.content_hash = text_key(self.content)
        fields = kwargs.get("update_fields")
        if fields is not None and "content" in fields:
            kwargs["update_fields"] = {*fields, "content_hash"}
        super().save(*args, **kwargs)


class PrecedentQuerySet(models.QuerySet["Precedent"]):
    def open(self) -> "PrecedentQuerySet":
        """Precedents that count: neither dismissed, expired nor merged into another."""
        return self.filter(dismissed_at__isnull=True)


class Precedent(models.Model):
    """A pattern that keeps coming back, counted. One open row per user, kind and normalised summary."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_precedents")
    pattern_kind = models.CharField(max_length=64)
    summary = models.TextField()
    summary_hash = models.CharField(max_length=64)
    observed_count = models.PositiveIntegerField(default=1)
    first_seen_at = models.DateTimeField(db_default=Now())
    last_seen_at = models.DateTimeField(db_default=Now())
    dismissed_at = models.DateTimeField(null=True, blank=True)
    ended_as = models.CharField(
        "end", max_length=12, choices=PrecedentEnd, blank=True, help_text="Why it is no longer open."
    )
    merged_into = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="merged", help_text="Where its count went."
    )

    objects = PrecedentQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "pattern_kind", "summary_hash"],
                condition=Q(dismissed_at__isnull=True),
                name="precedent_undismissed",
            ),
            models.CheckConstraint(condition=Q(ended_as__in=["", *PrecedentEnd.values]), name="precedent_end"),
        ]

    def __str__(self) -> str:
        return f"{self.pattern_kind}: seen {self.observed_count} time{'' if self.observed_count == 1 else 's'}"


class Notification(models.Model):
    """A notification for a person. Copies may go to other channels."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_notifications")
    session = models.ForeignKey(AgentSession, models.SET_NULL, null=True, blank=True, related_name="notifications")
    finding = models.ForeignKey(Finding, models.SET_NULL, null=True, blank=True, related_name="notifications")
    kind = models.CharField(max_length=20, choices=NoticeKind, default=NoticeKind.AGENT)
    title = models.CharField(max_length=200)
    body = models.TextField(blank=True)
    page = models.CharField(
        max_length=200, blank=True, db_default="", help_text="Path of the page where it is settled, if it is no run's."
    )
    read_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "notice"
        indexes = [models.Index(fields=["owner", "id"], condition=Q(read_at__isnull=True), name="notification_unread")]

    def __str__(self) -> str:
        return self.title


# --- Versions of a project's context, and proposals to add to it ---


class ContextProposal(models.Model):
    """A precedent on its way into a project's context. Its text is written there at most once, ever.

    status: proposed ──► accepted | rejected; rejected ◄──► accepted, which changes no text twice; accepted ──► retired.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_proposals")
    project = models.ForeignKey(Project, models.CASCADE, related_name="proposals")
    precedent = models.ForeignKey(Precedent, models.SET_NULL, null=True, blank=True, related_name="proposals")
    text = models.TextField(help_text="Derived from the precedent, perhaps edited; what accepting adds to the context.")
    status = models.CharField(max_length=12, choices=ProposalStatus, default=ProposalStatus.PROPOSED)
    proposed_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now())
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    applied_version = models.PositiveIntegerField(
        null=True, blank=True, help_text="The version of the context that first held the text."
    )
    retired_version = models.PositiveIntegerField(
        null=True, blank=True, help_text="The version of the context that no longer held it."
    )

    class Meta:
        verbose_name = "proposal"
        constraints = [
            models.CheckConstraint(condition=Q(status__in=ProposalStatus.values), name="proposal_status"),
            models.UniqueConstraint(
                fields=["precedent", "project"],
                condition=Q(status__in=[ProposalStatus.PROPOSED, ProposalStatus.ACCEPTED]),
                name="proposal_one_live",
            ),
        ]

    def __str__(self) -> str:
        return f"proposal for {self.project} ({self.status})"


class ContextRevision(models.Model):
    """A project's context at one version; runs record the version they read."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="revisions", db_index=False)
    version = models.PositiveIntegerField()
    text = models.TextField(blank=True)
    proposal = models.ForeignKey(ContextProposal, models.SET_NULL, null=True, blank=True, related_name="revisions")
    written_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "version"], name="context_version")]

    def __str__(self) -> str:
        return f"{self.project}, version {self.version}"
