"""The journal: one row per guarded call, written before the call goes out and closed when its outcome is known."""

import uuid
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.base import ModelState
from django.db.models.functions import Now

from agents.enums import ApprovalStatus, Level, Outcome, Phase, Purpose, QuestionStatus, Risk, ToolIntent
from agents.models.fields import MicroUSDField
from agents.models.sessions import AgentSession
from agents.models.shared_texts import SharedTextField, SharedTextJSONField
from agents.types import ToolResult


class ToolCallQuerySet(models.QuerySet["ToolCall"]):
    def open(self) -> "ToolCallQuerySet":
        return self.filter(outcome=Outcome.STARTED)

    def unknown(self) -> "ToolCallQuerySet":
        """Those that may have taken effect, and of which nobody has said so yet."""
        return self.filter(unknown_since__isnull=False)

    def of_tools(self) -> "ToolCallQuerySet":
        """Those that are no mere questions to a model; a skill that asks one is a tool all the same."""
        return self.exclude(model__gt="", name=F("intent"))


class ToolCall(models.Model):
    """One guarded call: canonical arguments, digest, the approved cost, and what came of it.

    outcome: started ──► success | gateway_error | error | timeout | …   (settled by the worker)
             started ──► worker_lost | unknown                           (closed by recovery)
             unknown ──► success | worker_lost                           (stated by a person)
    `key` is the call's place in its run; a resumed run that comes to the same place gets the stored result.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="tool_calls", db_index=False)
    key = models.CharField(max_length=96)
    attempt = models.PositiveIntegerField(default=1)
    intent = models.CharField(max_length=24, choices=ToolIntent)
    name = models.CharField(max_length=128, blank=True)
    version = models.CharField(max_length=64, blank=True)
    phase = models.CharField(max_length=16, choices=Phase)
    arguments = SharedTextJSONField()
    digest = models.CharField(max_length=64)
    asked_digest = models.CharField(max_length=64, blank=True, help_text="Before an approver changed it; else empty.")
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
    result = SharedTextJSONField(null=True, blank=True)
    error = models.CharField(max_length=2000, blank=True)
    started_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    unknown_since = models.DateTimeField(null=True, blank=True)

    # Arguments and result as canonical JSON, if they were written so before.
    arguments_json: str = ""
    result_json: str = ""

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
            models.CheckConstraint(
                condition=Q(outcome=Outcome.UNKNOWN, unknown_since__isnull=False)
                | (~Q(outcome=Outcome.UNKNOWN) & Q(unknown_since__isnull=True)),
                name="tool_call_unknown_since",
            ),
        ]
        # None has the outcome in it: a call is settled without writing to an index (on PostgreSQL as a HOT update).
        indexes = [models.Index(fields=["id"], condition=Q(unknown_since__isnull=False), name="tool_call_unresolved")]

    def __str__(self) -> str:
        return f"{self.intent} {self.key} ({self.outcome})"

    @classmethod
    def begun(cls, session: AgentSession, **given: Any) -> "ToolCall":
        """Build the row of a call that its worker is about to make, in a tenth of the time of `ToolCall(...)`."""
        values, makers = _begun_as()
        made = {name: maker() for name, maker in makers}
        state = ModelState()
        state.fields_cache["session"] = session
        row = cls.__new__(cls)
        vars(row).update(values, **made, **given, session_id=session.pk, fencing=session.fencing, _state=state)
        return row

    @cached_property
    def call_id(self) -> str:
        """Its public id as text."""
        return str(self.public_id)

    def end(self, result: ToolResult) -> None:
        """Take over what the call came to."""
        self.outcome, self.detail, self.error = result.outcome, result.detail, result.error
        self.result, self.result_json = result.data, result.data_json

    def settle(self, now: datetime) -> None:
        """Note when the call got its outcome. An unknown one is so until a person says what became of it."""
        self.settled_at = now
        self.unknown_since = now if self.outcome == Outcome.UNKNOWN else None

    @property
    def spent_usd(self) -> Decimal:
        """Return the cost: the larger of approved and reported cost."""
        return Decimal(max(self.charged_usd, self.actual_usd))


@cache
def _begun_as() -> tuple[dict[str, Any], list[tuple[str, Callable[[], Any]]]]:
    """Return the columns of a call with their defaults, and those whose default is made for each call."""
    values: dict[str, Any] = {}
    made: list[tuple[str, Callable[[], Any]]] = []
    for field in ToolCall._meta.concrete_fields:
        if field.has_default() and callable(field.default):
            made.append((field.attname, field.default))
        else:
            values[field.attname] = field.get_default()
    return values, made


# --- Approval tickets: evidence that a person allowed one exact call, once ---


class StandingApproval(models.Model):
    """A person's approval for the rest of one session: one capability, fixed arguments, few uses, an end."""

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
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="approvals", db_index=False)
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
    rules = models.JSONField(default=list, blank=True, help_text="The rules that ask: id, version, name and role.")

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
    escalated_at = models.DateTimeField(null=True, blank=True)

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
            models.Index(fields=["status", "created_at"], name="approval_by_status"),
            models.Index(fields=["session", "signature"], name="approval_signature"),
            models.Index(fields=["resolved_at"], condition=Q(resolved_by__isnull=False), name="approval_decided"),
            models.Index(
                fields=["action", "resolved_at"], condition=Q(resolved_by__isnull=False), name="approval_alike"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} ({self.status_text})"

    @property
    def status_text(self) -> str:
        """The status as people call it: they deny a call, and the API says `rejected`."""
        return "denied" if self.status == ApprovalStatus.REJECTED else self.status


class ApprovalVote(models.Model):
    """One person's yes to a call with this digest. A change of the call deletes the yeses before it.

    `holder` is the person in whose right it was said: the same, or the one who named them while away.
    """

    approval = models.ForeignKey(Approval, models.CASCADE, related_name="votes", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    holder = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64)
    note = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["approval", "user"], name="approval_vote_per_person"),
            models.UniqueConstraint(fields=["approval", "holder"], name="approval_vote_per_right"),
        ]

    def __str__(self) -> str:
        return f"{self.user}, {self.created_at:%H:%M}" + (f", for {self.holder}" if self.holder != self.user else "")


# --- One row per call of a model, success or failure: what it cost, how long it took, and why it was asked ---


class InferenceLog(models.Model):
    """`cost_estimate` is the price of the reported tokens; empty when the provider reported none."""

    session = models.ForeignKey(AgentSession, models.CASCADE, null=True, blank=True, related_name="inferences")
    provider = models.CharField(max_length=64, blank=True)
    model = models.CharField(max_length=128)
    purpose = models.CharField(max_length=24, choices=Purpose)
    attempt = models.PositiveSmallIntegerField(default=1, help_text="Which try of its call this was.")
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(
        default=0, help_text="What the model thought before it answered; part of the output."
    )
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


# Callable skills as an operator has set them, how often they ran, and questions that agents put to people.


class SkillSetting(models.Model):
    """An operator's settings for a skill; without a row it is as its author declared it."""

    name = models.CharField(max_length=64, unique=True)
    enabled = models.BooleanField(default=True, help_text="A disabled skill answers as if it did not exist.")
    level = models.CharField(
        max_length=12, choices=Level, blank=True, help_text="Empty: as declared. Only a superuser may lower it."
    )
    hourly_limit = models.PositiveIntegerField(
        null=True, blank=True, help_text="Calls in a clock hour. Empty: 20 for PRIVILEGED, no limit below."
    )
    updated_at = models.DateTimeField(db_default=Now())
    updated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )

    class Meta:
        verbose_name = "skill setting"

    def __str__(self) -> str:
        return self.name


class SecretBinding(models.Model):
    """The hosts that a secret may be sent to, as admins have named them, besides those of the environment.

    Without a row, and without hosts in the environment, a secret is sent nowhere. The value is in no row.
    """

    name = models.CharField(max_length=64, unique=True)
    hosts = models.JSONField(default=list)
    updated_at = models.DateTimeField(db_default=Now())
    updated_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )

    class Meta:
        verbose_name = "secret"

    def __str__(self) -> str:
        return self.name


class SkillCount(models.Model):
    """How often a skill ran, and was refused, in one clock hour (UTC)."""

    skill = models.CharField(max_length=64)
    hour = models.DateTimeField()
    used = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "skill count"
        constraints = [models.UniqueConstraint(fields=["skill", "hour"], name="skill_count_hour")]

    def __str__(self) -> str:
        return f"skill:rate:{self.skill}:{self.hour:%Y%m%d%H}"


class Question(models.Model):
    """A question of an agent to a person. Its session waits; the answer is the result of the call that asked.

    status: pending ──► answered | expired | cancelled
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="questions", db_index=False)
    call_key = models.CharField(max_length=96)
    text = models.TextField()
    status = models.CharField(max_length=12, choices=QuestionStatus, default=QuestionStatus.PENDING)
    answer = models.TextField(blank=True)
    asked_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="answered_questions"
    )
    reminders_sent = models.PositiveSmallIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "call_key"], name="question_place"),
            models.CheckConstraint(condition=Q(status__in=QuestionStatus.values), name="question_status"),
        ]
        indexes = [
            models.Index(fields=["asked_at"], condition=Q(status=QuestionStatus.PENDING), name="question_pending")
        ]

    def __str__(self) -> str:
        return f"{self.text[:60]} ({self.status})"


class Message(models.Model):
    """One entry of a transcript. It is never changed or left out; what is sent to a model is chosen from it."""

    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="messages", db_index=False)
    seq = models.PositiveIntegerField()
    turn = models.PositiveIntegerField(default=0, help_text="The turn of a loop in which it was said.")
    role = models.CharField(max_length=12)
    content = SharedTextField(blank=True)
    calls = models.JSONField(default=list, blank=True)
    call_id = models.CharField(max_length=128, blank=True)
    stop = models.CharField(max_length=24, blank=True, help_text="Why a reply ended, as the model's server said.")
    failed = models.BooleanField(default=False)
    outcome = models.CharField(
        max_length=128, blank=True, default="", db_default="", help_text="Of the call whose result it is, by its code."
    )
    reason = models.CharField(max_length=32, blank=True, help_text="Why lqops itself wrote it; empty for all others.")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["session_id", "seq"]
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="message_place")]
        indexes = [models.Index(fields=["session", "turn", "seq"], name="message_turn")]

    def __str__(self) -> str:
        return f"{self.role} {self.seq}"


class StreamPart(models.Model):
    """A piece of a reply while it is being written, for those who watch; removed when the run is over."""

    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="stream_parts")
    text = models.TextField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.session_id}: {self.text[:40]}"
