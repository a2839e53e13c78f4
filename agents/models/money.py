"""Shared budgets, prices of models, halts, pauses, and the installation's row."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import OuterRef, Q
from django.db.models.functions import Now

from agents.enums import BudgetPeriod, BudgetScope, HaltScope, PauseScope
from agents.models.agents import Agent, Trigger
from agents.models.fields import MicroUSDField
from agents.models.sessions import AgentSession

# Their days are always counted, and their daily caps are columns of their own rows.
COUNTED_DAILY = (BudgetScope.INSTALLATION, BudgetScope.AGENT, BudgetScope.TRIGGER)


class Cap(models.Model):
    """A cap for a month, or for a day of an owner or project. Who has one is counted in budgets of that period."""

    scope = models.CharField(max_length=16, choices=BudgetScope)
    subject_id = models.BigIntegerField(default=0)
    period = models.CharField(max_length=8, choices=BudgetPeriod)
    cap_usd = MicroUSDField()

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["scope", "subject_id", "period"], name="cap_one_per_period"),
            models.CheckConstraint(
                condition=~Q(period=BudgetPeriod.DAY, scope__in=COUNTED_DAILY), name="cap_not_on_its_row"
            ),
        ]

    def __str__(self) -> str:
        return f"{budget_name(self.scope, self.subject_id, self.period)}: {self.cap_usd} USD"


def budget_name(scope: str, subject_id: int, period: str = BudgetPeriod.DAY) -> str:
    """Return how the audit log and refusals name a budget."""
    name = f"{scope}:{subject_id}" if subject_id else str(scope)
    return name if period == BudgetPeriod.DAY else f"{name}/{period}"


class BudgetQuerySet(models.QuerySet["Budget"]):
    def daily(self) -> "BudgetQuerySet":
        return self.filter(period=BudgetPeriod.DAY)

    def current(self, now: datetime) -> "BudgetQuerySet":
        """Those of this UTC day and this month."""
        day = now.astimezone(UTC).date()
        return self.filter(Q(period=BudgetPeriod.DAY, day=day) | Q(period=BudgetPeriod.MONTH, day=day.replace(day=1)))


class Budget(models.Model):
    """Cap and spending of one scope in one UTC day or month, in two ledgers, with the open amounts."""

    scope = models.CharField(max_length=16, choices=BudgetScope)
    subject_id = models.BigIntegerField(default=0)
    period = models.CharField(max_length=8, choices=BudgetPeriod, default=BudgetPeriod.DAY, db_default=BudgetPeriod.DAY)
    day = models.DateField(help_text="Of a month, its first.")
    cap_usd = MicroUSDField(null=True, blank=True)
    charged_usd = MicroUSDField(default=0)
    reserved_usd = MicroUSDField(default=0)
    actual_usd = MicroUSDField(default=0)
    held_usd = MicroUSDField(default=0)
    warned = models.BooleanField(default=False)
    told_percent = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="The part of the cap that people were last told of."
    )

    objects = BudgetQuerySet.as_manager()

    class Meta:
        verbose_name = "spending of a period"
        verbose_name_plural = "spending and caps"
        constraints = [
            models.UniqueConstraint(fields=["scope", "subject_id", "period", "day"], name="budget_one_per_period"),
            models.CheckConstraint(
                condition=~Q(scope=BudgetScope.INSTALLATION, period=BudgetPeriod.DAY) | Q(cap_usd__isnull=False),
                name="budget_installation_cap",
            ),
            models.CheckConstraint(
                condition=Q(charged_usd__gte=0) & Q(reserved_usd__gte=0) & Q(actual_usd__gte=0) & Q(held_usd__gte=0),
                name="budget_money",
            ),
        ]
        indexes = [models.Index(fields=["day", "scope"], name="budget_day")]

    def __str__(self) -> str:
        return f"{self.name} {'in' if self.period == BudgetPeriod.MONTH else 'on'} {self.when}"

    @property
    def spent_usd(self) -> Decimal:
        """Return the cost of the period: the larger of approved and reported cost."""
        return Decimal(max(self.charged_usd, self.actual_usd))

    @property
    def when(self) -> str:
        """Return the day, or the month, as it is written."""
        return str(self.day) if self.period == BudgetPeriod.DAY else f"{self.day:%Y-%m}"

    @property
    def subject(self) -> str:
        """Return what was counted, whatever the period."""
        return budget_name(self.scope, self.subject_id)

    @property
    def name(self) -> str:
        return budget_name(self.scope, self.subject_id, self.period)


class Halt(models.Model):
    """An operator's halt: who, why, and until when. The audit log has its id and the digest of its reason."""

    scope = models.CharField(max_length=16, choices=HaltScope)
    session = models.ForeignKey(AgentSession, models.CASCADE, null=True, blank=True, related_name="halts")
    reason = models.TextField(blank=True)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="lqops_halts"
    )
    requested_at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=64, blank=True, help_text="Who the audit log names if it was no user.")
    released_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    released_at = models.DateTimeField(null=True, blank=True)
    spares_waiting = models.BooleanField(
        default=False, help_text="Whether runs that only wait for a person are paused instead of ended."
    )

    class Meta:
        permissions = [("halt_everything", "Can halt and release all work of the installation")]

    def __str__(self) -> str:
        return f"halt of {self.session_id or 'all work'}"


class PauseQuerySet(models.QuerySet["Pause"]):
    def open(self) -> "PauseQuerySet":
        return self.filter(resumed_at__isnull=True)

    def of(self, row: AgentSession | None = None) -> "PauseQuerySet":
        """Those that hold up the session, or did; without a row, that of the outer query."""

        def its(name: str) -> Any:
            return OuterRef(name) if row is None else getattr(row, name)

        return self.filter(
            Q(scope=PauseScope.ORGANISATION)
            | Q(scope=PauseScope.SESSION, session=its("pk"))
            | Q(scope=PauseScope.AGENT, agent=its("agent_id"))
            | Q(scope=PauseScope.TRIGGER, trigger=its("trigger_id"), requested_at__gte=its("created_at"))
        )


class Pause(models.Model):
    """An operator's pause: of what, who, why, and until when. At most one of each thing is in force.

    That of a trigger holds up the runs that were there; a trigger can be run by hand while it is paused.
    """

    scope = models.CharField(max_length=16, choices=PauseScope)
    session = models.ForeignKey(AgentSession, models.CASCADE, null=True, blank=True, related_name="pauses")
    agent = models.ForeignKey(Agent, models.CASCADE, null=True, blank=True, related_name="pauses")
    trigger = models.ForeignKey(Trigger, models.CASCADE, null=True, blank=True, related_name="pauses")
    halt = models.ForeignKey(
        Halt, models.SET_NULL, null=True, blank=True, related_name="+", help_text="The halt that spared the run."
    )
    reason = models.TextField(blank=True)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="lqops_pauses"
    )
    requested_at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=64, blank=True, help_text="Who the audit log names if it was no user.")
    resumed_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    resumed_at = models.DateTimeField(null=True, blank=True)

    objects = PauseQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        constraints = [
            models.CheckConstraint(
                condition=Q(scope=PauseScope.SESSION, session__isnull=False, agent__isnull=True, trigger__isnull=True)
                | Q(scope=PauseScope.AGENT, session__isnull=True, agent__isnull=False, trigger__isnull=True)
                | Q(scope=PauseScope.TRIGGER, session__isnull=True, agent__isnull=True, trigger__isnull=False)
                | Q(scope=PauseScope.ORGANISATION, session__isnull=True, agent__isnull=True, trigger__isnull=True),
                name="pause_scope",
            ),
            *(
                models.UniqueConstraint(
                    fields=[name], condition=Q(resumed_at__isnull=True, scope=scope), name=f"pause_one_of_{scope}"
                )
                for name, scope in (
                    ("session", "session"),
                    ("agent", "agent"),
                    ("trigger", "trigger"),
                    ("scope", "organisation"),
                )
            ),
        ]

    def __str__(self) -> str:
        return f"pause of {self.session_id or self.agent_id or self.trigger_id or 'all work'}"


class Installation(models.Model):
    """The one row (id 1) that every call reads: is all work halted, and what may be spent on a day."""

    halt = models.ForeignKey(Halt, models.PROTECT, null=True, blank=True, related_name="+")
    max_cost_per_day_usd = MicroUSDField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="installation_one_row")]

    def __str__(self) -> str:
        return "installation"


class ModelPrice(models.Model):
    """Price of a model; the longest prefix of a model's name decides. Without one a model is not called."""

    model = models.CharField(max_length=128, unique=True, help_text="A model's name, or the beginning of it.")
    input_usd = MicroUSDField(help_text="US dollars per million input tokens; the dearest rate if there are several.")
    output_usd = MicroUSDField(help_text="US dollars per million output tokens.")
    overhead_tokens = models.PositiveIntegerField(
        default=1_024, help_text="Tokens that the server adds to a prompt on its own, at most."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.model


class DeclaredModel(models.Model):
    """What people have set of a model: over its declaration in the file, or a model of their own."""

    model = models.CharField(max_length=128, unique=True, help_text="The name by which lqops knows the model.")
    settings = models.JSONField(default=dict, help_text="Keys of the models file, and roles; never a key.")
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.model


class SuspendedModel(models.Model):
    """A model whose reply cost more than its bound. Nobody calls it until an operator accepts it."""

    model = models.CharField(max_length=128, unique=True)
    bound_usd = MicroUSDField()
    actual_usd = MicroUSDField()
    suspended_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.model


class ModelServer(models.Model):
    """The form in which a model's server takes requests, as it was found out. The catalogue's own word wins."""

    model = models.CharField(max_length=128, unique=True)
    endpoint = models.CharField(max_length=64, help_text="Digest of its address and name there; others are asked anew.")
    form = models.JSONField(default=dict, help_text="Parts of requests that the server takes in another form.")
    streams = models.BooleanField(default=True)
    reports_usage = models.BooleanField(default=True, help_text="Whether it says how many tokens it used.")
    found_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.model


class ModelTurn(models.Model):
    """A request that is out to a model whose concurrency is declared: at most that many hold a row at a time."""

    model = models.CharField(max_length=128)
    number = models.PositiveSmallIntegerField()
    holder = models.CharField(max_length=32, db_index=True)
    held_until = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="model_turn_once")]

    def __str__(self) -> str:
        return f"{self.model} {self.number}"


class ModelOutage(models.Model):
    """A model whose server does not answer. While the row exists, one call at a time tries it; the others wait."""

    model = models.CharField(max_length=128, unique=True)
    since = models.DateTimeField()
    next_try_at = models.DateTimeField()
    tries = models.PositiveIntegerField(default=0)
    woken_at = models.DateTimeField(null=True, blank=True, help_text="When a waiting run was last woken to try it.")
    error = models.CharField(max_length=500, blank=True)
    pinged_at = models.DateTimeField(null=True, blank=True, help_text="When its server was last asked for free.")
    is_gone = models.BooleanField(
        default=False, db_default=False, help_text="The server could not be reached, or did not answer that."
    )

    def __str__(self) -> str:
        return self.model
