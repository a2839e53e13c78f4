"""Figures by UTC day: spend, outcomes, durations, waiting times, wakes avoided, cost per finding.

Each reads a bounded range of days through an index and is grouped by the database. Days that are over do not change:
each process remembers them for an hour, and reads those that may change. *Spent* is the larger of approved and reported
cost.
"""

from calendar import monthrange
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import wraps
from typing import Any, Final

from django.db.models import (
    BigIntegerField,
    Count,
    DateField,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Window,
)
from django.db.models.functions import Greatest, RowNumber

from agents.conf import clock
from agents.enums import BudgetScope, Mode, RunResult
from agents.models import Agent, AgentSession, Approval, Budget, GateDay
from agents.models.fields import MicroUSDField
from agents.models.sessions import spent_by_run
from agents.types import ZERO

RANGES: Final = (7, 30, 90)
AGENTS_SHOWN: Final = 5
AVERAGED_DAYS: Final = 7
MONTH_DAYS: Final = 30
REST: Final = "Other"
SPENT: Final = "Spent"

Value = Decimal | int | float | None


@dataclass(frozen=True)
class Period:
    """Whole UTC days, both ends included."""

    first: date
    last: date

    @classmethod
    def last_days(cls, number: int, now: datetime) -> "Period":
        today = now.astimezone(UTC).date()
        return cls(today - timedelta(days=number - 1), today)

    @property
    def days(self) -> tuple[date, ...]:
        return tuple(self.first + timedelta(days=one) for one in range((self.last - self.first).days + 1))

    @property
    def begin(self) -> datetime:
        return datetime.combine(self.first, time.min, UTC)

    @property
    def end(self) -> datetime:
        return datetime.combine(self.last, time.min, UTC) + timedelta(days=1)


@dataclass(frozen=True)
class Subject:
    """Whose figures: all, or those of one agent or one trigger."""

    agent_id: int | None = None
    trigger_id: int | None = None

    def of_session(self, at: str = "") -> Q:
        """The condition on the session at this place of a query."""
        place = f"{at}__" if at else ""
        given = {"agent_id": self.agent_id, "trigger_id": self.trigger_id}
        return Q(**{f"{place}{name}": pk for name, pk in given.items() if pk is not None})


ALL: Final = Subject()


@dataclass(frozen=True)
class Series:
    """One line or one part of each bar, with a value for each day; None: there was nothing to measure."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Figures:
    days: tuple[date, ...]
    series: tuple[Series, ...]

    @property
    def is_empty(self) -> bool:
        return not any(value for one in self.series for value in one.values)


class UtcDay(Func):
    """The UTC day of a time, by functions of the database itself: Django's own for SQLite are slow on many rows."""

    output_field = DateField()
    template = "(%(expressions)s AT TIME ZONE 'UTC')::date"

    def as_sqlite(self, compiler: Any, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="substr(%(expressions)s, 1, 10)", **more)


class SecondsBetween(Func):
    """The seconds from the first time to the second."""

    output_field = FloatField()
    template = "EXTRACT(EPOCH FROM (%(expressions)s))"
    arg_joiner = " - "

    def __init__(self, begin: str, end: str) -> None:
        super().__init__(F(end), F(begin))

    def as_sqlite(self, compiler: Any, connection: Any, **more: Any) -> Any:
        end, begin = (compiler.compile(one) for one in self.get_source_expressions())
        return f"((julianday({end[0]}) - julianday({begin[0]})) * 86400.0)", (*end[1], *begin[1])


# --- Days that are over ---

# A run that ended just before midnight may be committed after it.
SETTLES_AFTER: Final = timedelta(hours=1)
REMEMBERED: Final = timedelta(hours=1)
MOST_REMEMBERED: Final = 20_000

_Read = Callable[[Period, Subject], Figures]
_past: dict[tuple[str, Subject, date], tuple[datetime, dict[str, Value]]] = {}


def past_days_once(read: _Read) -> Callable[..., Figures]:
    """Remember the figures of days that are over; of the others, and of those that are not known yet, read them."""

    @wraps(read)
    def remembering(period: Period, subject: Subject = ALL) -> Figures:
        now = clock()
        name = read.__name__
        settled = [day for day in period.days if day < (now - SETTLES_AFTER).astimezone(UTC).date()]
        kept = {day: _past.get((name, subject, day)) for day in settled}
        found = {day: one[1] for day, one in kept.items() if one and timedelta(0) <= now - one[0] < REMEMBERED}
        unknown = [day for day in period.days if day not in found]
        if unknown:
            read_now = _days_of(read(Period(unknown[0], unknown[-1]), subject))
            if len(_past) + len(settled) > MOST_REMEMBERED:
                _past.clear()
            _past.update({(name, subject, day): (now, read_now[day]) for day in settled if day in read_now})
            found |= read_now
        names = next(iter(found.values()))
        return Figures(period.days, tuple(Series(one, tuple(found[day][one] for day in period.days)) for one in names))

    return remembering


def _days_of(figures: Figures) -> dict[date, dict[str, Value]]:
    return {
        day: {series.name: series.values[place] for series in figures.series} for place, day in enumerate(figures.days)
    }


# --- Spend ---


def spend_by_day(period: Period, subject: Subject = ALL) -> Figures:
    """Return the spend of each day: of one agent or trigger, or of all, by agent."""
    scope, pk = _scope(subject)
    if scope == BudgetScope.INSTALLATION:
        return _spend_by_agent(period)
    rows = Budget.objects.daily().filter(scope=scope, subject_id=pk, day__range=(period.first, period.last))
    spent = {row.day: row.spent_usd for row in rows}
    return _figures(period, {SPENT: spent}, ZERO)


def _scope(subject: Subject) -> tuple[BudgetScope, int]:
    if subject.trigger_id is not None:
        return BudgetScope.TRIGGER, subject.trigger_id
    return (BudgetScope.INSTALLATION, 0) if subject.agent_id is None else (BudgetScope.AGENT, subject.agent_id)


def _spend_by_agent(period: Period) -> Figures:
    return _stacked(period, _days_by_agent(period))


@dataclass(frozen=True)
class _DaysByAgent:
    """The budgets of the installation and of the agents that spent most, by day and agent; 0 is the installation."""

    names: Mapping[int, str]
    by_day: Mapping[date, Mapping[int, Budget]]


def _days_by_agent(period: Period) -> _DaysByAgent:
    rows = Budget.objects.daily().filter(day__range=(period.first, period.last))
    name = Subquery(Agent.objects.filter(pk=OuterRef("subject_id")).values("name")[:1])
    of_agents = rows.filter(scope=BudgetScope.AGENT).order_by().values("subject_id")
    total = Greatest(Sum("charged_usd"), Sum("actual_usd"), output_field=MicroUSDField())
    top = of_agents.annotate(total=total, known_as=name).filter(total__gt=0).order_by("-total", "subject_id")
    found = top.values_list("subject_id", "known_as")[:AGENTS_SHOWN]
    names = {pk: known_as or f"agent {pk}" for pk, known_as in found}
    shown = Q(scope=BudgetScope.INSTALLATION) | Q(scope=BudgetScope.AGENT, subject_id__in=names)
    by_day: dict[date, dict[int, Budget]] = defaultdict(dict)
    for row in rows.filter(shown):
        by_day[row.day][row.subject_id] = row
    return _DaysByAgent(names, by_day)


def _stacked(period: Period, read: _DaysByAgent) -> Figures:
    """Divide the spend of each day between the agents that spent most and the rest.

    On each day the ledger counts that is the larger for the whole installation, so that the parts add up to its spend.
    """
    labels = {pk: _label(read.names, pk) for pk in read.names}
    rest = REST if labels else SPENT
    found: dict[str, dict[date, Decimal]] = {label: {} for label in [*labels.values(), rest]}
    for day, budgets in read.by_day.items():
        whole = budgets.get(0)
        if whole is None:
            continue
        ledger = "charged_usd" if whole.charged_usd >= whole.actual_usd else "actual_usd"
        parts = {label: getattr(budgets[pk], ledger) for pk, label in labels.items() if pk in budgets}
        for label, amount in parts.items():
            found[label][day] = amount
        found[rest][day] = getattr(whole, ledger) - sum(parts.values(), ZERO)
    if labels and not any(found[rest].values()):
        del found[rest]
    return _figures(period, found, ZERO)


def _label(names: Mapping[int, str], pk: int) -> str:
    """The name of an agent; with its number if another one shown is called the same."""
    name = names[pk]
    is_shared = name == REST or sum(one == name for one in names.values()) > 1
    return f"{name} (no. {pk})" if is_shared else name


@dataclass(frozen=True)
class Spend:
    """What was spent today and this month, and what the month will have cost if it goes on so."""

    today_usd: Decimal
    in_flight_usd: Decimal
    cap_usd: Decimal
    month_usd: Decimal
    forecast_usd: Decimal
    month_days: int
    own_month_cap_usd: Decimal | None = None

    @property
    def month_cap_usd(self) -> Decimal:
        """The most that the month can cost: its own cap, or that of each day."""
        days = self.cap_usd * self.month_days
        return days if self.own_month_cap_usd is None else min(self.own_month_cap_usd, days)

    @property
    def is_capped_by_month(self) -> bool:
        return self.month_cap_usd == self.own_month_cap_usd


def _average(spent: Mapping[date, Decimal], today: date) -> Decimal:
    """Return the average of the seven days before today; days before the first spend do not count."""
    first = min(spent, default=today)
    before = [today - timedelta(days=one) for one in range(1, AVERAGED_DAYS + 1)]
    days = [day for day in before if day >= first] or [today]
    return sum((spent.get(day, ZERO) for day in days), ZERO) / len(days)


def spend_of_installation(cap: Decimal, now: datetime, *, month_cap: Decimal | None = None) -> tuple[Spend, Figures]:
    """Return the spend of the installation, and that of the last 30 days by agent, by two statements.

    The cap is that of a day without calls; `month_cap` that of a month, if there is one.
    """
    period = Period.last_days(MONTH_DAYS, now)
    today = period.last
    read = _days_by_agent(Period(min(period.first, today.replace(day=1)), today))
    rows = {day: budgets[0] for day, budgets in read.by_day.items() if 0 in budgets}
    spent = {day: row.spent_usd for day, row in rows.items()}
    month = sum((amount for day, amount in spent.items() if day >= today.replace(day=1)), ZERO)
    days = monthrange(today.year, today.month)[1]
    current = rows.get(today)
    spend = Spend(
        today_usd=spent.get(today, ZERO),
        in_flight_usd=current.reserved_usd if current else ZERO,
        cap_usd=current.cap_usd if current and current.cap_usd is not None else cap,
        month_usd=month,
        forecast_usd=month + _average(spent, today) * (days - today.day),
        month_days=days,
        own_month_cap_usd=month_cap,
    )
    return spend, _stacked(period, read)


# --- Runs ---


def _ended(period: Period, subject: Subject) -> QuerySet[AgentSession]:
    """Return the runs that ended in these days. Loops, chats and sensors have no result."""
    return AgentSession.objects.filter(
        subject.of_session(),
        completed_at__isnull=False,
        completed_at__gte=period.begin,
        completed_at__lt=period.end,
        mode=Mode.PHASED,
    )


@past_days_once
def outcomes_by_day(period: Period, subject: Subject) -> Figures:
    """Return the number of runs that ended on each day, by result."""
    rows = _ended(period, subject).order_by().values(day=UtcDay("completed_at"), name=F("run_result"))
    found: dict[str, dict[date, int]] = {result: {} for result in RunResult.values}
    for row in rows.annotate(number=Count("pk")):
        if row["name"] in found:
            found[row["name"]][row["day"]] = row["number"]
    return _figures(period, found, 0)


@past_days_once
def durations_by_day(period: Period, subject: Subject) -> Figures:
    """Return how long runs took from their start to their end, waits included, in seconds: p50 and p95."""
    rows = _ended(period, subject).filter(started_at__isnull=False)
    return _percentiles(period, rows, "completed_at", SecondsBetween("started_at", "completed_at"))


@past_days_once
def approval_waits_by_day(period: Period, subject: Subject) -> Figures:
    """Return how long calls waited until somebody approved or denied them, in seconds: p50 and p95."""
    rows = Approval.objects.filter(
        subject.of_session("session"),
        resolved_by__isnull=False,
        resolved_at__gte=period.begin,
        resolved_at__lt=period.end,
    )
    return _percentiles(period, rows, "resolved_at", SecondsBetween("created_at", "resolved_at"))


PERCENTILES: Final = {"p50": 50, "p95": 95}


def _percentiles(period: Period, rows: QuerySet[Any], at: str, length: Func) -> Figures:
    """Return percentiles by nearest rank: of each day, the two rows that have it."""
    rows = rows.order_by().annotate(day=UtcDay(at), length=length)
    ranked = rows.annotate(
        rank=Window(RowNumber(), partition_by=[F("day")], order_by=[F("length").asc(), F("pk").asc()]),
        total=Window(Count("*"), partition_by=[F("day")]),
    )
    found: dict[str, dict[date, float]] = {}
    for name, percent in PERCENTILES.items():
        nearest = ExpressionWrapper((F("total") * percent + 99) / 100, output_field=BigIntegerField())
        chosen = ranked.annotate(nearest=nearest).filter(rank=F("nearest")).values_list("day", "length")
        found[name] = {day: round(max(float(length), 0.0), 1) for day, length in chosen}
    return _figures(period, found, None)


@past_days_once
def cost_per_finding_by_day(period: Period, subject: Subject) -> Figures:
    """Return the cost of the runs that ended on each day, divided by the number of their findings."""
    rows = _ended(period, subject).order_by()
    costs = rows.values(day=UtcDay("completed_at")).annotate(cost=Sum(spent_by_run())).values_list("day", "cost")
    with_work = rows.filter(findings__about_run=False).values(day=UtcDay("completed_at"))
    counts = dict(with_work.annotate(number=Count("findings")).values_list("day", "number"))
    found = {day: cost / counts[day] for day, cost in costs if counts.get(day)}
    return _figures(period, {"Cost per finding": found}, None)


# --- Loops ---


def wakes_by_day(period: Period, subject: Subject = ALL) -> Figures:
    """Return the wakes of loops on each day: turns that were taken, and those that the gate spared, by reason."""
    rows = GateDay.objects.filter(day__range=(period.first, period.last))
    if subject.agent_id is not None:
        rows = rows.filter(agent_id=subject.agent_id)
    names = ("Avoided: unchanged", "Avoided: immaterial", "Turns")
    sums = rows.order_by().values("day").annotate(a=Sum("unchanged"), b=Sum("immaterial"), c=Sum("opened"))
    found: dict[str, dict[date, int]] = {name: {} for name in names}
    for day, *numbers in sums.values_list("day", "a", "b", "c"):
        for name, number in zip(names, numbers, strict=True):
            found[name][day] = number
    return _figures(period, found, 0)


def _figures(period: Period, found: Mapping[str, Mapping[date, Any]], empty: Value) -> Figures:
    days = period.days
    return Figures(
        days, tuple(Series(name, tuple(values.get(day, empty) for day in days)) for name, values in found.items())
    )
