"""Callable skills as an operator has set them, how often they ran, and questions that agents put to people."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.enums import Level, QuestionStatus
from agents.models.sessions import AgentSession


class SkillSetting(models.Model):
    """What an operator has decided about a skill; without a row it is as its author declared it."""

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
    """What an agent asks a person. Its session waits; the answer is the result of the call that asked.

    status: pending ──► answered | expired | cancelled
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="questions")
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

    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="messages")
    seq = models.PositiveIntegerField()
    turn = models.PositiveIntegerField(default=0, help_text="The turn of a loop in which it was said.")
    role = models.CharField(max_length=12)
    content = models.TextField(blank=True)
    calls = models.JSONField(default=list, blank=True)
    call_id = models.CharField(max_length=128, blank=True)
    stop = models.CharField(max_length=24, blank=True, help_text="Why a reply ended, as the model's server said.")
    failed = models.BooleanField(default=False)
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
