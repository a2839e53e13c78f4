"""Leases, hosts, alarms, postponed firings, unread inputs, outgoing messages, inbound events, keys, delegations."""

import uuid
from datetime import time

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from agents.enums import ChannelKind, EventOutcome, EventSeverity, InputState, OutboxStatus
from agents.models.agents import Trigger
from agents.models.knowledge import Attachment
from agents.models.results import Notification
from agents.models.sessions import AgentSession


class Lease(models.Model):
    """Lease for work that only one process may do, such as the ticker."""

    name = models.CharField(max_length=40, unique=True)
    owner = models.CharField(max_length=96, blank=True)
    until = models.DateTimeField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True, help_text="When the duty was last done.")

    def __str__(self) -> str:
        return f"{self.name}: {self.owner or 'nobody'}"


class Host(models.Model):
    """A host that runs lqops, as it reports itself several times a minute."""

    name = models.CharField(max_length=96, unique=True)
    seen_at = models.DateTimeField()
    keys = models.CharField(max_length=200, help_text="A digest of each key, by which hosts compare them.")
    free_bytes = models.BigIntegerField(help_text="Free space of the fullest file system on which it writes.")
    checkpoint_fault = models.CharField(max_length=200, blank=True)
    version = models.CharField(max_length=40, blank=True, db_default="", help_text="Of lqops. Empty: before 0.2.0.")
    clock_ahead_ms = models.BigIntegerField(
        default=0, db_default=0, help_text="Of the clock of the database; negative: behind it."
    )

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class AppliedMigration(models.Model):
    """A migration that was applied, and the oldest version of lqops that may run beside it."""

    app = models.CharField(max_length=40)
    name = models.CharField(max_length=200)
    oldest_beside = models.CharField(max_length=40)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["app", "name"], name="applied_migration_once")]

    def __str__(self) -> str:
        return f"{self.app}.{self.name}"


class Alarm(models.Model):
    """A fault of the installation, of which people are told. The row stays, so that they are not told again soon."""

    code = models.CharField(max_length=160, unique=True)
    text = models.CharField(max_length=500)
    since = models.DateTimeField()
    told_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.code


class Postponement(models.Model):
    """An attachment that a watch has not fired for yet: its hour was full, or firing failed.

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


class UnreadInput(models.Model):
    """An input that a trigger's run did not read: documents or an event. Deleted when a run has read it.

    It is read again when it is due, until its tries are used up; then it is given up, and a person decides.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_unread_inputs")
    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="unread_inputs")
    session = models.OneToOneField(
        AgentSession, models.CASCADE, related_name="unread_input", help_text="The last run that tried to read it."
    )
    state = models.CharField(max_length=12, choices=InputState)
    reason = models.CharField(max_length=24, help_text="Why the last run did not read it.")
    tries = models.PositiveIntegerField(default=0, help_text="Runs that have tried.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="When the next run starts.")
    failed_at = models.DateTimeField(help_text="When the last run ended.")
    retried_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="Who last had it read again.",
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(state__in=InputState.values), name="unread_input_state")]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(state=InputState.RETRYING), name="unread_input_due"),
            models.Index(fields=["-id"], condition=Q(state=InputState.GIVEN_UP), name="unread_input_given_up"),
        ]

    def __str__(self) -> str:
        return f"input of {self.trigger}"


class Channel(models.Model):
    """A way to reach a person outside the application: e-mail, a signed webhook, or a chat service."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_channels")
    kind = models.CharField(max_length=8, choices=ChannelKind)
    name = models.CharField(max_length=120)
    sealed_address = models.TextField(blank=True, help_text="Encrypted. Empty for e-mail: the account's address.")
    shown_address = models.CharField(max_length=200, blank=True, help_text="The part of the address that is no secret.")
    enabled = models.BooleanField(default=True)
    choices = models.JSONField(default=dict, help_text="When it gets each group of notifications; else the default.")
    zone = models.CharField(max_length=64, default="UTC")
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(null=True, blank=True)
    digest_at = models.TimeField(default=time(8))
    secret_generation = models.PositiveIntegerField(default=1)
    old_secret_until = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="Failed attempts in a row.")
    retry_at = models.DateTimeField(null=True, blank=True, help_text="Nothing is sent before.")
    error = models.CharField(max_length=500, blank=True, help_text="Of the last attempt, if it failed.")
    last_sent_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["owner"], condition=Q(kind=ChannelKind.EMAIL), name="channel_one_email"),
            models.CheckConstraint(condition=Q(kind__in=ChannelKind.values), name="channel_kind"),
            models.CheckConstraint(
                condition=Q(quiet_from__isnull=True, quiet_until__isnull=True)
                | Q(quiet_from__isnull=False, quiet_until__isnull=False),
                name="channel_quiet_hours",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class OutboxMessage(models.Model):
    """A copy of a notification for a channel, written with it and sent afterwards. A failed one is a dead letter."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    notification = models.ForeignKey(Notification, models.CASCADE, related_name="copies", db_index=False)
    channel = models.ForeignKey(Channel, models.CASCADE, related_name="copies")
    status = models.CharField(max_length=8, choices=OutboxStatus, default=OutboxStatus.PENDING)
    digest_for = models.DateTimeField(null=True, blank=True, help_text="The digest that it is a part of.")
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "delivery"
        verbose_name_plural = "deliveries"
        constraints = [models.UniqueConstraint(fields=["notification", "channel"], name="outbox_one_copy")]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(status=OutboxStatus.PENDING), name="outbox_due"),
            models.Index(fields=["-id"], condition=Q(status=OutboxStatus.FAILED), name="outbox_dead"),
        ]

    def __str__(self) -> str:
        return f"{self.notification} ({self.status})"


# --- Events for triggers, and API keys ---


class InboundEvent(models.Model):
    """An event that was received, and its outcome. A signed id is stored, so that a replay spawns nothing."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_events", db_index=False)
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


class Delegation(models.Model):
    """While its owner is away, the delegate decides on approvals in their place. It is not passed on."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_delegations")
    delegate = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_delegated")
    until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True, help_text="Ended before its time.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["owner"], condition=Q(ended_at__isnull=True), name="delegation_one_open"),
            models.CheckConstraint(condition=~Q(owner=F("delegate")), name="delegation_to_another"),
        ]
        indexes = [models.Index(fields=["delegate"], condition=Q(ended_at__isnull=True), name="delegation_open")]

    def __str__(self) -> str:
        return f"{self.delegate} decides for {self.owner} until {self.until:%-d %B %Y, %H:%M} UTC"


# --- Saved views of lists ---


class SavedView(models.Model):
    """The search, filters and sorting of a list under a name: for its owner, or for everybody who may view the list."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_views", db_index=False)
    list_name = models.CharField(max_length=40, help_text="The model that the list is of.")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1000, blank=True)
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ("delete",)
        constraints = [
            models.UniqueConstraint(fields=["owner", "list_name", "name"], name="view_one_name"),
        ]
        indexes = [
            models.Index(fields=["list_name", "name"], condition=Q(is_shared=True), name="view_shared"),
        ]

    def __str__(self) -> str:
        return self.name


# --- Counts of failed sign-ins, for the brake on guessing passwords ---


class SignInCount(models.Model):
    """Failed sign-ins of an account, of an address, or of an account at an address where it has signed in before."""

    subject = models.CharField(max_length=160, unique=True)
    failures = models.PositiveIntegerField(default=0)
    began_at = models.DateTimeField(db_default=Now())
    known_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["began_at"], name="sign_in_began")]

    def __str__(self) -> str:
        return f"{self.failures} since {self.began_at:%Y-%m-%d %H:%M}"


class ArchivedTotal(models.Model):
    """How many events of a figure that only grows were archived, by the values of its labels."""

    figure = models.CharField(max_length=16)
    labels = models.CharField(max_length=400, help_text="A list, as JSON.")
    number = models.PositiveBigIntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["figure", "labels"], name="archived_total_once")]

    def __str__(self) -> str:
        return f"{self.figure} {self.labels}"
