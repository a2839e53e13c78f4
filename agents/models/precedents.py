"""What people make of what runs observe: versions of a project's context, and proposals to add to it."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import ProposalStatus
from agents.models.agents import Project
from agents.models.results import Precedent


class ContextProposal(models.Model):
    """A precedent on its way into a project's context. Its text is written there at most once, ever.

    status: proposed ──► accepted | rejected; rejected ◄──► accepted, which changes no text twice; accepted ──► retired.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_proposals")
    project = models.ForeignKey(Project, models.CASCADE, related_name="proposals")
    precedent = models.ForeignKey(Precedent, models.SET_NULL, null=True, blank=True, related_name="proposals")
    text = models.TextField(help_text="Derived from the precedent; what accepting adds to the context.")
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
    """What a project's context said at one version; runs record the version they read."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="revisions")
    version = models.PositiveIntegerField()
    text = models.TextField(blank=True)
    proposal = models.ForeignKey(ContextProposal, models.SET_NULL, null=True, blank=True, related_name="revisions")
    written_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "version"], name="context_version")]

    def __str__(self) -> str:
        return f"{self.project}, version {self.version}"
