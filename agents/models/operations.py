"""What keeps the installation going: leases of its singletons, firings put off, and messages on their way out."""

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import OutboxStatus
from agents.models.agents import Trigger
from agents.models.knowledge import Attachment
from agents.models.results import Notification


class Lease(models.Model):
    """One holder of one duty, such as the ticker. Several may run; the row says whose turn it is."""

    name = models.CharField(max_length=40, unique=True)
    owner = models.CharField(max_length=96, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True, help_text="When the duty was last done.")

    def __str__(self) -> str:
        return f"{self.name}: {self.owner or 'nobody'}"


class Postponement(models.Model):
    """An attachment that a watch has yet to be told of: there was no room in its hour, or telling it failed.

    The rows of a watch are a queue, by id. The first of them says when the watch is asked again.
    """

    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="postponements", db_index=False)
    attachment = models.ForeignKey(Attachment, models.CASCADE, related_name="postponements")
    due_at = models.DateTimeField(db_default=Now())
    failures = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["trigger", "attachment"], name="postponement_once")]
        indexes = [models.Index(fields=["trigger", "id"], name="postponement_turn")]

    def __str__(self) -> str:
        return f"{self.trigger_id} of attachment {self.attachment_id}"


class OutboxMessage(models.Model):
    """A copy of a notice for another channel, written with the notice and sent afterwards, best effort."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    notification = models.ForeignKey(Notification, models.CASCADE, related_name="copies")
    channel = models.CharField(max_length=12, default="email")
    status = models.CharField(max_length=8, choices=OutboxStatus, default=OutboxStatus.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["notification", "channel"], name="outbox_one_copy")]
        indexes = [models.Index(fields=["due_at"], condition=Q(status=OutboxStatus.PENDING), name="outbox_due")]

    def __str__(self) -> str:
        return f"{self.channel} copy ({self.status})"
