"""Shared budgets: one row per scope and UTC day or month, locked in ascending id before it is judged.

Days of the installation, of agents and of triggers are always counted. A month, and a day of an owner or project, is
counted while it has a cap. Lock order everywhere: session → budgets → system chain. Whoever changes a cap has all
budgets to itself. Nothing here decides; agents/policy/brakes.py does.
"""

# ruff: noqa: S608 the statements are put together from names of our own columns

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Case, F, Q, QuerySet, Sum, Value, When

from agents.conf import clock
from agents.enums import BudgetPeriod, BudgetScope, NoticeKind, Outcome
from agents.exceptions import LeaseLost, NotFound
from agents.models import Agent, AgentSession, Budget, Cap, Installation, Project, ToolCall, Trigger
from agents.models.fields import MicroUSDField
from agents.models.money import COUNTED_DAILY, budget_name
from agents.people.access import actor_of, bound_owners, record_act, require_access, require_may_loosen
from agents.people.notifications import notification_create, notify_operators
from agents.policy.costs import WARN_FRACTION, passes_warning
from agents.policy.loosening import loosened
from agents.types import ZERO, Ledger
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.receipts import usd


def micro(amount: Decimal) -> Value:
    """Convert an amount for use inside an SQL expression."""
    return Value(amount, output_field=MicroUSDField())


# --- Which budgets a session draws on: one definition, also for the statements of agents/ledger/at_once.py ---

_SCOPES: Final = tuple(BudgetScope)
# Of the session in `held`, with its agent, trigger, owner and project.
APPLYING: Final = f"""
    SELECT '{BudgetScope.INSTALLATION}' AS scope, 0 AS subject_id, '{BudgetPeriod.DAY}' AS period FROM held
    UNION ALL SELECT '{BudgetScope.AGENT}', agent_id, '{BudgetPeriod.DAY}' FROM held WHERE agent_id IS NOT NULL
    UNION ALL SELECT '{BudgetScope.TRIGGER}', trigger_id, '{BudgetPeriod.DAY}' FROM held WHERE trigger_id IS NOT NULL
    UNION ALL SELECT c.scope, c.subject_id, c.period FROM held JOIN agents_cap c ON
        (c.scope = '{BudgetScope.INSTALLATION}' AND c.subject_id = 0)
        OR (c.scope = '{BudgetScope.OWNER}' AND c.subject_id = held.owner_id)
        OR (c.scope = '{BudgetScope.PROJECT}' AND c.subject_id = held.project_id)
        OR (c.scope = '{BudgetScope.AGENT}' AND c.subject_id = held.agent_id)
        OR (c.scope = '{BudgetScope.TRIGGER}' AND c.subject_id = held.trigger_id)"""
THEIR_BUDGETS: Final = f"""
    applying JOIN agents_budget b ON b.scope = applying.scope AND b.subject_id = applying.subject_id
        AND b.period = applying.period
        AND b.day = CASE applying.period WHEN '{BudgetPeriod.MONTH}' THEN %(month)s ELSE %(day)s END"""
_OF_SESSION: Final = f"""
WITH held AS (SELECT agent_id, trigger_id, owner_id, project_id FROM agents_agentsession WHERE id = %(session)s),
    applying AS ({APPLYING})"""
# All of them or none: nobody waits for a budget that is being opened while it holds others.
_LOCKED: Final = f"""{_OF_SESSION}
SELECT b.* FROM {THEIR_BUDGETS}
WHERE (SELECT count(*) FROM applying) = (SELECT count(*) FROM {THEIR_BUDGETS})
ORDER BY b.id"""


def budgets_lock(*, session_id: int, now: datetime) -> tuple[Ledger, ...]:
    """Lock and return the current budgets that the session draws on, lowest id first; create those of a new period."""
    day = now.astimezone(UTC).date()
    rows = _lock_applying(session_id, day)
    if not rows:
        with connection.cursor() as cursor:
            cursor.execute(f"{_OF_SESSION} SELECT scope, subject_id, period FROM applying", {"session": session_id})
            applying = cursor.fetchall()
        # Everybody creates them in the same order, so that no two transactions wait for each other.
        for scope, subject_id, period in sorted(applying, key=lambda row: (_SCOPES.index(row[0]), row[2])):
            _open(BudgetScope(scope), subject_id, BudgetPeriod(period), day)
        rows = _lock_applying(session_id, day)
    if not rows:  # those of the installation always apply
        raise RuntimeError("The budgets of a session cannot be read; without them nothing is paid.")
    return tuple(_ledger(row) for row in rows)


def _lock_applying(session_id: int, day: date) -> list[Budget]:
    lock = " FOR NO KEY UPDATE OF b" if connection.features.has_select_for_update else ""
    days = {"day": day, "month": _begin(BudgetPeriod.MONTH, day)}
    given = {name: connection.ops.adapt_datefield_value(value) for name, value in days.items()}
    return list(Budget.objects.raw(_LOCKED + lock, {"session": session_id, **given}))


def budgets_reserve(ledgers: Sequence[Ledger], *, estimate: Decimal, held: Decimal) -> None:
    """Add a call to the budgets that `budgets_lock` has locked."""
    Budget.objects.filter(pk__in=[ledger.id for ledger in ledgers]).update(
        reserved_usd=F("reserved_usd") + micro(estimate), held_usd=F("held_usd") + micro(held)
    )


def budgets_lock_again(ids: Sequence[int]) -> tuple[Ledger, ...]:
    """Lock and return the budgets that a call was reserved in, lowest id first."""
    return tuple(_ledger(row) for row in _lock(Budget.objects.filter(pk__in=ids)))


def budgets_book(ids: Sequence[int], *, actual: Decimal) -> None:
    """Add what an attempt cost to locked budgets."""
    Budget.objects.filter(pk__in=ids).update(actual_usd=F("actual_usd") + micro(actual))


def budgets_settle(ids: Sequence[int], *, approved: Decimal, held: Decimal, charged: Decimal, actual: Decimal) -> None:
    """Close a call in the budgets it was reserved in, whatever the day is now."""
    _lock(Budget.objects.filter(pk__in=ids))
    Budget.objects.filter(pk__in=ids).update(
        reserved_usd=F("reserved_usd") - micro(approved),
        held_usd=F("held_usd") - micro(held),
        charged_usd=F("charged_usd") + micro(charged),
        actual_usd=F("actual_usd") + micro(actual),
    )


def warn_at_80_percent(session: AgentSession, ledgers: Sequence[Ledger], *, estimate: Decimal, now: datetime) -> None:
    """Record, once per budget, the call that brings it to 80 % of its cap. The caller holds the locks."""
    for ledger in ledgers:
        if not passes_warning(ledger, estimate):
            continue
        if ledger.id is None:
            AgentSession.objects.filter(pk=session.pk).update(budget_warned=True)
        else:
            Budget.objects.filter(pk=ledger.id).update(warned=True)
        details = {
            "budget": ledger.name,
            "percent": int(WARN_FRACTION * 100),
            "cap_usd": str(ledger.cap),
            "spent_usd": str(ledger.approved + estimate),
        }
        recorder.append(session.chain, "budget.warned", now=now, details=details)


# --- Caps ---

_SUBJECTS: Final[dict[BudgetScope, type[Installation | User | Project | Agent | Trigger]]] = {
    BudgetScope.INSTALLATION: Installation,
    BudgetScope.OWNER: User,
    BudgetScope.PROJECT: Project,
    BudgetScope.AGENT: Agent,
    BudgetScope.TRIGGER: Trigger,
}
# By the names that caps have as settings.
PERIODS: Final = {"max_cost_per_day_usd": BudgetPeriod.DAY, "max_cost_per_month_usd": BudgetPeriod.MONTH}
_MAY_CHANGE: Final = {scope: f"agents.change_{scope}" for scope in BudgetScope} | {
    BudgetScope.OWNER: "agents.change_profile"
}


_EDITED: Final = {BudgetScope.AGENT, BudgetScope.TRIGGER}  # rows that say who last changed them


@transaction.atomic
def caps_set(
    *,
    subject: Installation | User | Project | Agent | Trigger,
    by: User | None,
    now: datetime,
    **caps: Decimal | None,
) -> None:
    """Set the caps per day and month of the installation, or of one of the others. Equal values are no change."""
    scope = next(scope for scope, kind in _SUBJECTS.items() if isinstance(subject, kind))
    require_access(by, owner_id=_owner_of(subject), permission=_MAY_CHANGE[scope])
    subject_id = 0 if scope == BudgetScope.INSTALLATION else subject.pk
    for name, cap in caps.items():
        if cap != cap_of(scope, subject_id, PERIODS[name]):
            budget_set_cap(scope=scope, subject_id=subject_id, period=PERIODS[name], cap_usd=cap, by=by, now=now)


def _owner_of(subject: Any) -> int:
    """Return the person whose runs a row binds; 0 of the installation, which belongs to nobody."""
    return int(subject.pk if isinstance(subject, User) else getattr(subject, "owner_id", 0))


def caps_of(scope: BudgetScope, subject_id: int) -> dict[str, Decimal | None]:
    """Return the caps of a scope by the names that they have as settings."""
    return {name: cap_of(scope, subject_id, period) for name, period in PERIODS.items()}


def cap_of(scope: BudgetScope, subject_id: int, period: BudgetPeriod) -> Decimal | None:
    """Return a cap; None if there is none, or no such scope."""
    if period == BudgetPeriod.DAY and scope in COUNTED_DAILY:
        rows: QuerySet[Any] = _SUBJECTS[scope].objects.filter(pk=subject_id or 1)
        return rows.values_list("max_cost_per_day_usd", flat=True).first()
    caps = Cap.objects.filter(scope=scope, subject_id=subject_id, period=period)
    return caps.values_list("cap_usd", flat=True).first()


def budgets_lock_all() -> None:
    """Wait until nobody holds a budget, and keep everybody from one until the transaction ends.

    Whoever looks for the budgets that apply after that finds the new cap; what was reserved before counts in it. Take
    it before the first budget and the first audit event. On SQLite the transaction is the lock.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE agents_budget IN EXCLUSIVE MODE")


@transaction.atomic
def budget_set_cap(
    *,
    scope: BudgetScope,
    subject_id: int,
    cap_usd: Decimal | None,
    by: User | None,
    now: datetime | None = None,
    period: BudgetPeriod = BudgetPeriod.DAY,
) -> None:
    """Set a scope's cap, for the current period too: the next call is judged by it. Raising it loosens."""
    whole = scope == BudgetScope.INSTALLATION
    on_its_row = period == BudgetPeriod.DAY and scope in COUNTED_DAILY
    if whole and on_its_row and cap_usd is None:
        raise ValueError("The installation must have a daily cap; set an amount of US dollars.")
    subject_id = 0 if whole else subject_id
    now = now or clock()
    subjects: QuerySet[Any] = _SUBJECTS[scope].objects.filter(pk=1 if whole else subject_id)
    if scope in _EDITED | {BudgetScope.PROJECT}:
        subjects = subjects.select_for_update(no_key=True)  # they are locked before budgets
    if subjects.first() is None:
        raise NotFound(f"There is no {scope} {subject_id} any more; its cap cannot be set.")
    budgets_lock_all()
    old = cap_of(scope, subject_id, period)
    name = next(name for name, its in PERIODS.items() if its == period)
    require_may_loosen(by, loosened({name: old}, {name: cap_usd}), bound=_bound(scope, subjects))
    if not on_its_row:
        caps = Cap.objects.filter(scope=scope, subject_id=subject_id, period=period)
        if cap_usd is None:
            caps.delete()
        else:
            Cap.objects.update_or_create(
                scope=scope, subject_id=subject_id, period=period, defaults={"cap_usd": cap_usd}
            )
    _set_in_budgets(scope, subject_id, period, cap_usd, now=now, is_new=not on_its_row and old is None)
    budget = budget_name(scope, subject_id, period)
    details = {"budget": budget, "cap_usd": _text(cap_usd), "old_cap_usd": _text(old)}
    recorder.append(SYSTEM_CHAIN, "budget.cap_set", now=now, actor=actor_of(by), subject=budget, details=details)
    if scope in _EDITED:
        subjects.update(edited_by=by)  # who raises a cap decides on no call that it lets through
    if on_its_row:
        subjects.update(max_cost_per_day_usd=cap_usd)  # last: a halt of all work waits for this row


def _bound(scope: BudgetScope, subjects: QuerySet[Any]) -> Iterable[int]:
    """Return the people whose runs a cap of this scope binds."""
    if scope == BudgetScope.INSTALLATION:
        return bound_owners()
    return subjects.values_list("pk" if scope == BudgetScope.OWNER else "owner_id", flat=True)


def _set_in_budgets(
    scope: BudgetScope, subject_id: int, period: BudgetPeriod, cap: Decimal | None, *, now: datetime, is_new: bool
) -> None:
    """Write the cap into the budget of the current period; one that begins to count takes over what was spent."""
    day = now.astimezone(UTC).date()
    begin = _begin(period, day)
    if cap is not None:
        _open(scope, subject_id, period, day)
    rows = Budget.objects.filter(scope=scope, subject_id=subject_id, period=period)
    rows.filter(day__gte=begin).update(cap_usd=cap, warned=False, told_percent=0)
    if is_new and cap is not None:
        approved, exposed = _spent_since(scope, subject_id, begin)
        row = rows.get(day=begin)  # with what is reserved by calls that will be settled in it
        row.charged_usd, row.actual_usd = approved - row.reserved_usd, exposed - row.held_usd
        row.save(update_fields=["charged_usd", "actual_usd"])


def _spent_since(scope: BudgetScope, subject_id: int, begin: date) -> tuple[Decimal, Decimal]:
    """Return what was approved and what may have been billed since a day, with calls in flight at their worst case."""
    money = MicroUSDField()
    if scope in COUNTED_DAILY:
        days = Budget.objects.filter(scope=scope, subject_id=subject_id, period=BudgetPeriod.DAY, day__gte=begin)
        sums = days.aggregate(
            approved=Sum(F("charged_usd") + F("reserved_usd"), output_field=money),
            exposed=Sum(F("actual_usd") + F("held_usd"), output_field=money),
        )
        return sums["approved"] or ZERO, sums["exposed"] or ZERO
    since = datetime.combine(begin, time.min, UTC)
    sessions = AgentSession.objects.filter(**{f"{scope}_id": subject_id})
    open_ = When(outcome=Outcome.STARTED, then=F("approved_usd"))
    held = When(outcome=Outcome.STARTED, then=F("actual_usd") + F("held_usd"))
    lately = sessions.filter(Q(completed_at__isnull=True) | Q(completed_at__gte=since))
    calls = ToolCall.objects.filter(session__in=lately, started_at__gte=since)
    sums = calls.aggregate(
        approved=Sum(Case(open_, default=F("charged_usd"), output_field=money)),
        exposed=Sum(Case(held, default=F("actual_usd"), output_field=money)),
    )
    # The calls of archived runs are gone: the whole run counts.
    gone = sessions.filter(archived_at__isnull=False, completed_at__gte=since)
    more = gone.aggregate(approved=Sum("cost_total_usd"), exposed=Sum("cost_actual_usd"))
    approved, exposed = ((sums[name] or ZERO) + (more[name] or ZERO) for name in ("approved", "exposed"))
    return approved, exposed


# --- News of budgets: people are told when one is half, mostly and nearly used up ---

TOLD_AT: Final = (95, 80, 50)


def budgets_tell(now: datetime) -> int:
    """Tell people of current budgets that have reached 50, 80 or 95 % of their cap, each once. Return how many."""
    rows = Budget.objects.current(now).filter(cap_usd__gt=0, told_percent__lt=TOLD_AT[0])
    return sum(_tell(row, percent, now) for row in rows.order_by("pk") if (percent := _to_tell(row)))


def _to_tell(row: Budget) -> int:
    """Return the highest part of the cap that is spent and was not told of; 0 if there is none."""
    spent = row.spent_usd * 100
    return next((part for part in TOLD_AT if part > row.told_percent and spent >= part * (row.cap_usd or 0)), 0)


@transaction.atomic
def _tell(row: Budget, percent: int, now: datetime) -> bool:
    """Tell the owner, or the operators if it is the installation's. Of two that look at once, one tells."""
    same = Budget.objects.filter(pk=row.pk, told_percent=row.told_percent, cap_usd=row.cap_usd)
    if not same.update(told_percent=percent):
        return False
    scope = BudgetScope(row.scope)
    found: Any = _SUBJECTS[scope].objects.filter(pk=row.subject_id or 1).first()
    if found is None:
        return False
    whole = scope == BudgetScope.INSTALLATION
    is_month = row.period == BudgetPeriod.MONTH
    when = f"in {row.day:%B %Y}" if is_month else f"on {row.day:%-d %B %Y}"
    # The page of a person is for those who manage people.
    page = "/admin/agents/budget/" if scope == BudgetScope.OWNER else f"/admin/agents/{scope}/{found.pk}/change/"
    given: dict[str, Any] = {
        "title": f"{percent} % of {'this month' if is_month else 'today'}'s budget of "
        f"{'the installation' if whole else f'{scope} {_known_as(found)}'} is spent",
        "body": f"{usd(row.spent_usd)} of {usd(row.cap_usd)} {when} (UTC). At the cap its runs stop.",
        "page": page,
        "now": now,
    }
    if whole:
        notify_operators(NoticeKind.BUDGET, **given)
    else:
        notification_create(owner_id=_owner_of(found), kind=NoticeKind.BUDGET, **given)
    record_act("budget.told", by=None, now=now, subject=row.name, budget=row.name, percent=percent)
    return True


def _known_as(subject: Any) -> str:
    return subject.get_username() if isinstance(subject, User) else str(subject.name)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _begin(period: BudgetPeriod, day: date) -> date:
    return day if period == BudgetPeriod.DAY else day.replace(day=1)


def _end(period: str, begin: date) -> date:
    """Return the first day after a period."""
    return _begin(BudgetPeriod(period), begin + timedelta(days=1 if period == BudgetPeriod.DAY else 31))


def _lock(rows: QuerySet[Budget]) -> list[Budget]:
    ordered = rows.order_by("pk")
    if connection.features.has_select_for_update:
        ordered = ordered.select_for_update(no_key=True)
    return list(ordered)


def _open(scope: BudgetScope, subject_id: int, period: BudgetPeriod, day: date) -> None:
    """Create the budget of a new period. If two do so at once, the second's row is ignored."""
    cap = cap_of(scope, subject_id, period)
    if scope == BudgetScope.INSTALLATION and period == BudgetPeriod.DAY and cap is None:
        raise LeaseLost("The installation's row is missing; run migrate.")
    budget = Budget(scope=scope, subject_id=subject_id, period=period, day=_begin(period, day), cap_usd=cap)
    Budget.objects.bulk_create([budget], ignore_conflicts=True)


def _ledger(row: Budget) -> Ledger:
    return Ledger(
        name=row.name,
        cap=row.cap_usd,
        charged=row.charged_usd,
        reserved=row.reserved_usd,
        actual=row.actual_usd,
        held=row.held_usd,
        warned=row.warned,
        id=row.pk,
        resets_at=datetime.combine(_end(row.period, row.day), time.min, UTC),
    )
