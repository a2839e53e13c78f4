"""The session: one governed run with brakes, a journal and a receipt."""

import uuid
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Greatest, Now

from agents.conf import lease_lifetime
from agents.enums import (
    AgentState,
    HaltState,
    Mode,
    Phase,
    RunResult,
    Status,
    TerminalReason,
    TriggerKind,
    Urgency,
    WaitingOn,
)
from agents.models.agents import Agent, Project, Trigger
from agents.models.expressions import ChatOf, Likely
from agents.models.fields import MicroUSDField
from agents.policy.run_spec import RunSpec
from agents.policy.transitions import TERMINAL, agent_state
from agents.types import ZERO, Ledger

_TERMINAL = Q(status__in=sorted(TERMINAL))


UNFINISHED = (RunResult.PARTIAL, RunResult.FAILED)
RETRY = "retry:"  # slots of further runs for the same input begin with it


def spent_by_run() -> Greatest:
    """The cost of a session inside a query, as `spent_usd` gives it: the sum of several is what their pages show."""
    return Greatest("cost_total_usd", "cost_actual_usd", output_field=MicroUSDField())


class AgentSessionQuerySet(models.QuerySet["AgentSession"]):
    def active(self) -> "AgentSessionQuerySet":
        return self.exclude(_TERMINAL)

    def active_of(self, owner_id: int) -> "AgentSessionQuerySet":
        """Those of one owner, by the index of the status: an owner may have very many that are over."""
        return self.filter(Likely(Q(owner_id=owner_id)), status__in=[one for one in Status if one not in TERMINAL])

    def active_count(self) -> int:
        """Count the active ones, status by status: each has an index of its own."""
        return sum(self.filter(status=status).count() for status in Status if status not in TERMINAL)

    def taking_room(self) -> "AgentSessionQuerySet":
        """Those that an owner may have only so many of at once. Sensors have workers of their own, and urgent runs go
        first.
        """
        return self.filter(status=Status.RUNNING, urgency=Urgency.BATCH).exclude(mode=Mode.SENSOR)

    def chatted(self, owner_id: int) -> "models.QuerySet[Any]":
        """Messages of a person's chats, each with the id of its `chat` as the index has it."""
        return self.filter(owner_id=owner_id, mode=Mode.CHAT).annotate(chat=ChatOf())

    def of_chat(self, owner_id: int, chat: object) -> "models.QuerySet[Any]":
        return self.chatted(owner_id).filter(chat=str(chat))

    def lost(self, now: datetime) -> "AgentSessionQuerySet":
        """Their worker was not heard of for a whole lease. One that lies too far ahead was given by a wrong clock."""
        over = Q(lease_until__lte=now) | Q(lease_until__gt=now + 2 * lease_lifetime())
        return self.filter(over, status=Status.RUNNING)


class AgentSession(models.Model):
    """One governed run.

    status, moved only by sessions/lifecycle.py and sessions/leases.py (agents/policy/transitions.py holds the table):

        queued ──► running ──► completed | halted | failed
          ▲          │  │
          │          │  └────► sleeping (next_wake_at) ─┐
          │          └───────► waiting  (waiting_on) ───┤
          └───────────────────── slice over, wake ◄─────┘

    halt_state is the operator's control: running ──► halt_requested ──► halted, and running ◄──► idle (the watchdog).
    paused_at is the other one: a paused session waits for `resume` and begins no call (sessions/pauses.py).
    Every write of a worker names the fencing number under which it claimed the session.
    """

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="lqops_sessions", db_index=False)
    agent = models.ForeignKey(Agent, models.SET_NULL, null=True, blank=True, related_name="sessions")
    trigger = models.ForeignKey(
        Trigger, models.SET_NULL, null=True, blank=True, related_name="sessions", db_index=False
    )
    project = models.ForeignKey(Project, models.SET_NULL, null=True, blank=True, related_name="sessions")
    parent = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="children", help_text="The run that started it."
    )
    handed_back_at = models.DateTimeField(
        null=True, blank=True, help_text="When the rest of its cap went back to the run that started it."
    )
    restarted_from = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="restarts")

    # What it is for
    mode = models.CharField(max_length=12, choices=Mode, default=Mode.PHASED)
    trigger_kind = models.CharField(max_length=12, choices=TriggerKind, default=TriggerKind.MANUAL)
    trigger_ref = models.CharField(max_length=64, blank=True)
    slot = models.CharField(max_length=96, blank=True, help_text="The one firing of its trigger that this run answers.")
    params = models.JSONField(default=dict, blank=True)
    depth = models.PositiveSmallIntegerField(default=0, help_text="How many runs led to this one.")
    context_version = models.PositiveIntegerField(
        null=True, blank=True, help_text="The version of its project's context that it read."
    )

    definition_version = models.PositiveIntegerField(
        null=True, blank=True, help_text="The version of its agent's definition that it runs by."
    )
    definition_digest = models.CharField(max_length=64, blank=True)

    # Where it stands
    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    halt_state = models.CharField(max_length=16, choices=HaltState, default=HaltState.RUNNING)
    waiting_on = models.CharField(max_length=12, choices=WaitingOn, blank=True)
    terminal_reason = models.CharField(max_length=24, choices=TerminalReason, null=True, blank=True)  # noqa: DJ001
    current_phase = models.CharField(max_length=16, choices=Phase, default=Phase.INTAKE)
    next_wake_at = models.DateTimeField(null=True, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True, help_text="Since when a pause holds it up.")
    idle_halt_minutes = models.PositiveIntegerField(default=5)
    last_activity_at = models.DateTimeField(db_default=Now())
    created_at = models.DateTimeField(db_default=Now())
    urgency = models.PositiveSmallIntegerField(choices=Urgency, default=Urgency.BATCH)
    enqueued_at = models.DateTimeField(null=True, blank=True, help_text="Since when it waits for a worker.")
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When a worker last took it.")
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    # Money and tokens: two ledgers (approved and real), and what is open in each
    max_cost_usd = MicroUSDField(
        null=True, blank=True, help_text="What it may spend itself: its cap without what it has lent."
    )
    starting_cap_usd = MicroUSDField(
        null=True, blank=True, help_text="The cap that it was created with; in a started run, what was lent to it."
    )
    cost_total_usd = MicroUSDField(default=0)
    cost_reserved_usd = MicroUSDField(default=0)
    cost_actual_usd = MicroUSDField(default=0)
    cost_held_usd = MicroUSDField(default=0)
    cost_cap_reached = models.BooleanField(default=False)
    budget_warned = models.BooleanField(default=False)
    token_budget = models.PositiveBigIntegerField(default=0, help_text="0 = unlimited.")
    total_tokens = models.PositiveBigIntegerField(default=0)

    # Who holds it
    lease_owner = models.CharField(max_length=96, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    fencing = models.PositiveBigIntegerField(default=0)
    recoveries = models.PositiveIntegerField(default=0)

    # What came of it
    metadata = models.JSONField(default=dict, blank=True)
    result = models.JSONField(null=True, blank=True, help_text="The receipt.")
    run_result = models.CharField(max_length=8, choices=RunResult, blank=True, help_text="Empty until it is over.")
    result_reason = models.CharField(max_length=300, blank=True, help_text="Why, in words.")
    error = models.CharField(max_length=2000, blank=True)
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="When its calls, transcript and audit events went into the archive."
    )

    objects = AgentSessionQuerySet.as_manager()

    class Meta:
        verbose_name = "session"
        constraints = [
            models.CheckConstraint(condition=Q(status__in=Status.values), name="session_status"),
            models.CheckConstraint(condition=Q(halt_state__in=HaltState.values), name="session_halt_state"),
            models.CheckConstraint(condition=Q(current_phase__in=Phase.values), name="session_phase"),
            models.CheckConstraint(condition=Q(mode__in=Mode.values), name="session_mode"),
            models.CheckConstraint(condition=Q(run_result__in=["", *RunResult.values]), name="session_result"),
            models.CheckConstraint(
                condition=Q(terminal_reason__isnull=True) | Q(terminal_reason__in=TerminalReason.values),
                name="session_terminal_reason",
            ),
            models.CheckConstraint(
                condition=Q(status=Status.WAITING, waiting_on__in=WaitingOn.values)
                | (~Q(status=Status.WAITING) & Q(waiting_on="")),
                name="session_waiting_on",
            ),
            models.CheckConstraint(
                condition=Q(_TERMINAL, terminal_reason__isnull=False, completed_at__isnull=False)
                | (~_TERMINAL & Q(completed_at__isnull=True)),
                name="session_end",
            ),
            models.CheckConstraint(
                condition=Q(cost_total_usd__gte=0)
                & Q(cost_reserved_usd__gte=0)
                & Q(cost_actual_usd__gte=0)
                & Q(cost_held_usd__gte=0),
                name="session_money",
            ),
            models.UniqueConstraint(fields=["trigger", "slot"], condition=~Q(slot=""), name="session_one_per_slot"),
        ]
        indexes = [
            models.Index(fields=["lease_until"], condition=Q(status=Status.RUNNING), name="session_lease"),
            models.Index(fields=["owner", "-id"], name="session_owner"),
            models.Index(fields=["created_at"], name="session_created"),
            models.Index(fields=["enqueued_at"], condition=Q(status=Status.QUEUED), name="session_queued"),
            models.Index(
                fields=["urgency", "owner", "trigger", "enqueued_at", "id"],
                condition=Q(status=Status.QUEUED),
                name="session_next",
            ),
            models.Index(
                fields=["owner", "claimed_at"], condition=Q(claimed_at__isnull=False), name="session_owner_served"
            ),
            models.Index(
                fields=["owner", "trigger", "claimed_at"],
                condition=Q(claimed_at__isnull=False),
                name="session_trigger_served",
            ),
            models.Index(fields=["next_wake_at"], condition=Q(status=Status.SLEEPING), name="session_asleep"),
            models.Index(fields=["next_wake_at"], condition=Q(status=Status.WAITING), name="session_waiting"),
            models.Index(fields=["id"], condition=Q(paused_at__isnull=False), name="session_paused"),
            models.Index(fields=["trigger", "-id"], name="session_trigger"),
            models.Index(fields=["run_result", "-id"], name="session_by_result"),
            models.Index(fields=["status", "-id"], name="session_by_status"),
            models.Index(
                fields=["parent"], condition=Q(parent__isnull=False, handed_back_at__isnull=True), name="session_lent"
            ),
            models.Index(fields=["completed_at"], condition=Q(run_result__in=UNFINISHED), name="session_unfinished"),
            models.Index(fields=["-id"], condition=Q(completed_at__isnull=True), name="session_active"),
            models.Index(
                fields=["completed_at", "id"],
                condition=Q(completed_at__isnull=False, archived_at__isnull=True),
                name="session_to_archive",
            ),
            models.Index(
                fields=["completed_at", "mode", "run_result"],
                condition=Q(completed_at__isnull=False),
                name="session_ended",
            ),
            models.Index(fields=["owner", "-id"], condition=Q(mode=Mode.CHAT), name="session_message"),
            models.Index("owner", ChatOf(), "id", condition=Q(mode=Mode.CHAT), name="session_chat"),
        ]

    # The keys of the calls that its first worker has made: the journal holds no others. None: read the journal.
    called_keys: set[str] | None = None

    def __str__(self) -> str:
        return f"{self.public_id} ({self.status})"

    def is_lost(self, now: datetime) -> bool:
        """The same as the query `lost`, for this row."""
        if self.status != Status.RUNNING or self.lease_until is None:
            return False
        return not now < self.lease_until <= now + 2 * lease_lifetime()

    @property
    def spec(self) -> RunSpec:
        """Target, inputs and options of this run, read from `params`."""
        return RunSpec.from_params(self.params or {})

    @property
    def is_retry(self) -> bool:
        """Whether it was started to read what a run before it did not."""
        return self.slot.startswith(RETRY)

    @cached_property
    def chain(self) -> str:
        """The name of this session's chain in the audit log."""
        return str(self.public_id)

    @property
    def cap_usd(self) -> Decimal | None:
        """Return the cap that it was given, with what it has lent of it."""
        cap: Decimal | None = self.max_cost_usd if self.starting_cap_usd is None else self.starting_cap_usd
        return cap

    @property
    def spent_usd(self) -> Decimal:
        """Return the cost: the larger of approved and reported cost."""
        return Decimal(max(self.cost_total_usd, self.cost_actual_usd))

    @property
    def left_usd(self) -> Decimal | None:
        """The rest of the cap after approved or reported cost, the larger, with calls in flight; None without a cap."""
        ledger = self.ledger
        return None if ledger.cap is None else max(ledger.cap - max(ledger.approved, ledger.exposed), ZERO)

    @property
    def ledger(self) -> Ledger:
        return Ledger(
            name="session",
            cap=self.max_cost_usd,
            charged=self.cost_total_usd,
            reserved=self.cost_reserved_usd,
            actual=self.cost_actual_usd,
            held=self.cost_held_usd,
            warned=self.budget_warned,
        )

    @property
    def state(self) -> AgentState:
        open_calls = self.status == Status.RUNNING and self.tool_calls.open().of_tools().exists()
        return agent_state(
            status=self.status,
            waiting_on=self.waiting_on,
            terminal_reason=self.terminal_reason,
            calls_open=open_calls,
        )
