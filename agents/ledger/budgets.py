"""Shared budgets: one row per scope and UTC day, locked in ascending id before it is judged.

Lock order everywhere: session → budgets → system chain. Nothing here decides; agents/policy/brakes.py does.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet, Value

from agents.conf import clock
from agents.enums import BudgetScope, NoticeKind
from agents.exceptions import LeaseLost
from agents.models import Agent, AgentSession, Budget, Installation, Trigger
from agents.models.fields import MicroUSDField
from agents.people.access import actor_of, bound_owners, record_act, require_may_loosen
from agents.people.notifications import notification_create, notify_operators
from agents.policy.costs import WARN_FRACTION, passes_warning
from agents.policy.loosening import loosened
from agents.types import Ledger
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.receipts import usd


def micro(amount: Decimal) -> Value:
    """Convert an amount for use inside an SQL expression."""
    return Value(amount, output_field=MicroUSDField())


def budgets_lock(*, agent_id: int | None, trigger_id: int | None, now: datetime) -> tuple[Ledger, ...]:
    """Lock and return today's budgets that the session draws on, lowest id first; create those of a new day."""
    day = now.astimezone(UTC).date()
    wanted = {BudgetScope.INSTALLATION: 0, BudgetScope.AGENT: agent_id, BudgetScope.TRIGGER: trigger_id}
    scopes = {scope: subject for scope, subject in wanted.items() if subject is not None}
    rows = _lock(_today(scopes, day))
    if len(rows) < len(scopes):
        _open_day(scopes, day)
        rows = _lock(_today(scopes, day))
    return tuple(_ledger(row) for row in rows)


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


_CAPPED: dict[BudgetScope, type[Installation | Agent | Trigger]] = {
    BudgetScope.INSTALLATION: Installation,
    BudgetScope.AGENT: Agent,
    BudgetScope.TRIGGER: Trigger,
}


@transaction.atomic
def budget_set_cap(
    *, scope: BudgetScope, subject_id: int, cap_usd: Decimal | None, by: User | None, now: datetime | None = None
) -> None:
    """Set a scope's daily cap, for today's row too: the next call is judged by it. Raising it loosens."""
    if scope == BudgetScope.INSTALLATION and cap_usd is None:
        raise ValueError("The installation must have a daily cap; set an amount of US dollars.")
    subject_id = 0 if scope == BudgetScope.INSTALLATION else subject_id
    now = now or clock()
    whole = scope == BudgetScope.INSTALLATION
    capped: QuerySet[Any] = _CAPPED[scope].objects.filter(pk=1 if whole else subject_id)
    old = capped.values_list("max_cost_per_day_usd", flat=True).get()
    day = now.astimezone(UTC).date()
    # Lock the installation's row first, as every call does, so that nobody opens the day with the old cap and no two
    # transactions wait for each other.
    _open_day({BudgetScope.INSTALLATION: 0, scope: subject_id}, day)
    Budget.objects.filter(scope=scope, subject_id=subject_id, day=day).update(
        cap_usd=cap_usd, warned=False, told_percent=0
    )
    looser = loosened({"max_cost_per_day_usd": old}, {"max_cost_per_day_usd": cap_usd})
    require_may_loosen(by, looser, bound=bound_owners() if whole else capped.values_list("owner_id", flat=True))
    name = Budget(scope=scope, subject_id=subject_id).name
    details = {"budget": name, "cap_usd": _text(cap_usd), "old_cap_usd": _text(old)}
    recorder.append(SYSTEM_CHAIN, "budget.cap_set", now=now, actor=actor_of(by), subject=name, details=details)
    capped.update(max_cost_per_day_usd=cap_usd)  # last: a halt of all work waits for this row


# --- News of budgets: people are told when one is half, mostly and nearly used up ---

TOLD_AT: Final = (95, 80, 50)


def budgets_tell(now: datetime) -> int:
    """Tell people of today's budgets that have reached 50, 80 or 95 % of their cap, each once. Return how many."""
    rows = Budget.objects.filter(day=now.astimezone(UTC).date(), cap_usd__gt=0, told_percent__lt=TOLD_AT[0])
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
    found: Any = None
    if scope != BudgetScope.INSTALLATION:
        found = _CAPPED[scope].objects.filter(pk=row.subject_id).first()
        if found is None:
            return False
    name = "the installation" if found is None else f"{scope} {found.name}"
    given: dict[str, Any] = {
        "title": f"{percent} % of today's budget of {name} is spent",
        "body": f"{usd(row.spent_usd)} of {usd(row.cap_usd)} on {row.day:%-d %B %Y} (UTC). At the cap its runs stop.",
        "page": "/admin/agents/installation/1/change/"
        if found is None
        else f"/admin/agents/{scope}/{found.pk}/change/",
        "now": now,
    }
    if found is None:
        notify_operators(NoticeKind.BUDGET, **given)
    else:
        notification_create(owner_id=found.owner_id, kind=NoticeKind.BUDGET, **given)
    record_act("budget.told", by=None, now=now, subject=row.name, budget=row.name, percent=percent)
    return True


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _today(scopes: dict[BudgetScope, int], day: date) -> QuerySet[Budget]:
    which = Q()
    for scope, subject in scopes.items():
        which |= Q(scope=scope, subject_id=subject)
    return Budget.objects.filter(which, day=day)


def _lock(rows: QuerySet[Budget]) -> list[Budget]:
    ordered = rows.order_by("pk")
    if connection.features.has_select_for_update:
        ordered = ordered.select_for_update(no_key=True)
    return list(ordered)


def _open_day(scopes: dict[BudgetScope, int], day: date) -> None:
    """Create the budgets of a new day. If two do so at once, the second's rows are ignored.

    The installation's row is created and locked before any other, so that no two transactions wait for each other.
    """
    for scope, subject in scopes.items():
        pk = 1 if scope == BudgetScope.INSTALLATION else subject
        cap = _CAPPED[scope].objects.filter(pk=pk).values_list("max_cost_per_day_usd", flat=True).first()
        if scope == BudgetScope.INSTALLATION and cap is None:
            raise LeaseLost("The installation's row is missing; run migrate.")
        Budget.objects.bulk_create(
            [Budget(scope=scope, subject_id=subject, day=day, cap_usd=cap)], ignore_conflicts=True
        )
        if scope == BudgetScope.INSTALLATION:
            _lock(_today({scope: subject}, day))


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
        resets_at=datetime.combine(row.day, time.min, UTC) + timedelta(days=1),
    )
