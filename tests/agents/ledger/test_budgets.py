"""The books of shared budgets: one row per scope and period, locked in order, with caps that hold at once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from threading import Barrier

import pytest
from django.contrib.auth.models import Permission
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from agents.enums import BudgetPeriod, BudgetScope
from agents.exceptions import LeaseLost, NotAllowed, NotFound
from agents.ledger import budgets
from agents.ledger.budgets import (
    budget_set_cap,
    budgets_lock,
    budgets_reserve,
    budgets_settle,
    budgets_tell,
    cap_of,
    caps_of,
    caps_set,
    warn_at_80_percent,
)
from agents.models import AgentSession, Budget, Cap, Installation, Notification, ToolCall
from audit.models import SYSTEM_CHAIN, AuditEvent
from tests.factories import NOW, make_agent, make_project, make_session, make_trigger, make_user

USD = Decimal
TODAY = NOW.date()
MONTH = NOW.date().replace(day=1)
SCOPES = list(BudgetScope)
KINDS = [(scope, period) for scope in BudgetScope for period in BudgetPeriod]
WITH_CAP_ALONE = [kind for kind in KINDS if kind[1] == "month" or kind[0] in {"owner", "project"}]


def lock(agent=None, trigger=None, now=NOW, **of):
    return budgets_lock(session_id=make_session(agent=agent, trigger=trigger, **of).pk, now=now)


def set_cap(scope, subject, cap, now=NOW, period=BudgetPeriod.DAY):
    cap = None if cap is None else USD(cap)
    budget_set_cap(scope=scope, subject_id=subject, period=period, cap_usd=cap, by=None, now=now)


def owner_of(scope):
    """The row of a scope, and the id that the service knows it by."""
    if scope == BudgetScope.INSTALLATION:
        return Installation.objects.get(), 0
    make = {
        BudgetScope.OWNER: make_user,
        BudgetScope.PROJECT: make_project,
        BudgetScope.AGENT: make_agent,
        BudgetScope.TRIGGER: make_trigger,
    }
    row = make[scope]()
    return row, row.pk


def runs_of(scope, row):
    """Return the fields of a session that draws on the scope."""
    return {} if scope == BudgetScope.INSTALLATION else {str(scope): row}


def named(scope, subject, period):
    name = "installation" if scope == BudgetScope.INSTALLATION else f"{scope}:{subject}"
    return name if period == BudgetPeriod.DAY else f"{name}/month"


# --- opening a day ---


@pytest.mark.django_db
def test_the_first_call_of_a_day_opens_books_for_each_scope_with_its_cap():
    agent, trigger = make_agent(max_cost_per_day_usd=USD(3)), make_trigger()
    ledgers = lock(agent, trigger)
    assert [(ledger.name, ledger.cap) for ledger in ledgers] == [
        ("installation", USD(20)),
        (f"agent:{agent.pk}", USD(3)),
        (f"trigger:{trigger.pk}", None),
    ]
    assert all(ledger.approved == ledger.exposed == 0 and not ledger.warned for ledger in ledgers)
    assert {row.day for row in Budget.objects.all()} == {TODAY}


@pytest.mark.django_db
def test_a_session_without_agent_and_trigger_draws_on_the_installation_alone():
    assert [ledger.name for ledger in lock()] == ["installation"]


@pytest.mark.django_db
def test_books_are_opened_once_a_day():
    agent = make_agent()
    first, again, tomorrow = lock(agent), lock(agent), lock(agent, now=NOW + timedelta(days=1))
    assert first == again
    assert Budget.objects.count() == 4
    assert {ledger.id for ledger in first}.isdisjoint(ledger.id for ledger in tomorrow)


@pytest.mark.django_db
def test_a_second_scope_joins_the_books_that_are_open():
    [installation] = lock()
    agent = make_agent()
    assert lock(agent)[0] == installation
    assert Budget.objects.count() == 2


@pytest.mark.django_db
def test_a_day_is_a_day_of_utc_and_resets_at_its_midnight():
    late = datetime(2026, 3, 14, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    [ledger] = lock(now=late)
    assert Budget.objects.get().day == date(2026, 3, 15)
    assert ledger.resets_at == datetime(2026, 3, 16, tzinfo=UTC)


@pytest.mark.django_db
def test_without_the_installations_row_nothing_can_be_spent():
    Installation.objects.all().delete()
    with pytest.raises(LeaseLost, match="migrate"):
        lock()
    assert not Budget.objects.exists()


@pytest.mark.django_db
def test_budgets_that_cannot_be_read_let_nothing_through(monkeypatch):
    monkeypatch.setattr(budgets, "_lock_applying", lambda *_: [])
    with pytest.raises(RuntimeError, match="nothing is paid"):
        lock()


@pytest.mark.django_db
def test_open_books_take_one_query(django_assert_num_queries):
    project = make_project()
    session = make_session(agent=make_agent(), trigger=make_trigger(), project=project)
    set_cap(BudgetScope.PROJECT, project.pk, "1", period=BudgetPeriod.MONTH)
    budgets_lock(session_id=session.pk, now=NOW)
    with django_assert_num_queries(1):
        assert len(budgets_lock(session_id=session.pk, now=NOW)) == 4


# --- locks ---


@pytest.mark.django_db
def test_books_are_locked_lowest_id_first():
    agent, trigger = make_agent(), make_trigger()
    set_cap(BudgetScope.TRIGGER, trigger.pk, "9")  # so that ids do not follow the order of the scopes
    with CaptureQueriesContext(
        connection,
    ) as seen:
        ledgers = lock(agent, trigger)
    assert [ledger.name.partition(":")[0] for ledger in ledgers] == ["trigger", "installation", "agent"]
    assert [ledger.id for ledger in ledgers] == sorted(ledger.id for ledger in ledgers)
    last = seen.captured_queries[-1]["sql"]
    assert "ORDER BY b.id" in last
    assert last.endswith("FOR NO KEY UPDATE OF b") is (connection.vendor == "postgresql")


@pytest.mark.django_db
def test_settling_locks_in_the_same_order():
    ids = [ledger.id for ledger in lock(make_agent(), make_trigger())]
    with CaptureQueriesContext(connection) as seen:
        budgets_settle(ids[::-1], approved=USD(0), held=USD(0), charged=USD(0), actual=USD(0))
    assert 'ORDER BY "agents_budget"."id" ASC' in seen.captured_queries[0]["sql"]
    assert len(seen) == 2


def in_threads(number, act):
    """Runs `act(n)` in so many threads at once, each with a connection of its own."""
    barrier = Barrier(number)

    def run(n):
        try:
            barrier.wait(timeout=60)
            return act(n)
        finally:
            connection.close()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


@pytest.mark.django_db(transaction=True)
def test_openers_at_once_agree_on_one_row_per_scope():
    agents, trigger = [make_agent(), make_agent()], make_trigger()

    def open_day(n):
        with transaction.atomic():
            return lock(agents[n % 2], trigger if n % 3 else None)

    seen = in_threads(8, open_day)
    assert Budget.objects.count() == 4
    assert len({ledger.id for ledgers in seen for ledger in ledgers}) == 4


@pytest.mark.django_db(transaction=True)
def test_reservations_at_once_never_pass_the_cap():
    agent = make_agent(max_cost_per_day_usd=37 * USD("0.005"))
    price = USD("0.005")

    def reserve(n):
        granted = 0
        for _ in range(8):
            with transaction.atomic():
                ledgers = lock(agent)
                if all(ledger.approved + price <= ledger.cap for ledger in ledgers):
                    budgets_reserve(ledgers, estimate=price, held=price)
                    granted += 1
        return granted

    assert sum(in_threads(6, reserve)) == 37
    assert Budget.objects.get(scope="agent").reserved_usd == agent.max_cost_per_day_usd


@pytest.mark.django_db(transaction=True)
def test_caps_that_are_set_while_the_day_is_opened_hold_and_nobody_waits_for_ever():
    agents = [make_agent(max_cost_per_day_usd=USD(9)) for _ in range(3)]

    def act(n):
        if n % 2:
            set_cap(BudgetScope.AGENT, agents[n // 2].pk, "1")
        else:
            with transaction.atomic():
                lock(agents[n // 2])

    in_threads(6, act)
    assert {row.cap_usd for row in Budget.objects.filter(scope="agent")} == {USD(1)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("scope", [BudgetScope.INSTALLATION, BudgetScope.AGENT])
def test_no_call_is_missing_in_a_cap_that_is_set_while_calls_are_made(scope):
    """Whoever waits for a budget while the cap is set finds the new budget, or is counted in what it takes over."""
    agent = make_agent()
    sessions = [make_session(agent=agent) for _ in range(6)]

    def act(n):
        if n == 0:
            for cap in ("9", None) * 4:
                set_cap(scope, 0 if scope == BudgetScope.INSTALLATION else agent.pk, cap, period=BudgetPeriod.MONTH)
            set_cap(scope, 0 if scope == BudgetScope.INSTALLATION else agent.pk, "9", period=BudgetPeriod.MONTH)
            return
        for _ in range(12):
            with transaction.atomic():
                ledgers = budgets_lock(session_id=sessions[n - 1].pk, now=NOW)
                budgets_reserve(ledgers, estimate=USD("0.01"), held=USD("0.02"))

    in_threads(7, act)
    month, day = (Budget.objects.get(scope=scope, period=period) for period in ("month", "day"))
    assert day.reserved_usd == 72 * USD("0.01")
    assert month.charged_usd + month.reserved_usd == day.charged_usd + day.reserved_usd
    assert month.actual_usd + month.held_usd == day.actual_usd + day.held_usd


@pytest.mark.sampled(3)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("scope", "period"), WITH_CAP_ALONE)
def test_reservations_at_once_never_pass_a_cap_of_the_new_kinds(scope, period):
    row, subject = owner_of(scope)
    price = USD("0.005")
    set_cap(scope, subject, str(17 * price), period=period)
    sessions = [make_session(**runs_of(scope, row)) for _ in range(4)]

    def reserve(n):
        granted = 0
        for _ in range(6):
            with transaction.atomic():
                ledgers = budgets_lock(session_id=sessions[n].pk, now=NOW)
                if all(ledger.cap is None or ledger.approved + price <= ledger.cap for ledger in ledgers):
                    budgets_reserve(ledgers, estimate=price, held=price)
                    granted += 1
        return granted

    assert sum(in_threads(4, reserve)) == 17
    assert Budget.objects.get(scope=scope, period=period).reserved_usd == 17 * price


# --- reserving and settling ---


def amounts(pk):
    return Budget.objects.values_list("reserved_usd", "held_usd", "charged_usd", "actual_usd").get(pk=pk)


@pytest.mark.django_db
def test_a_call_is_reserved_in_every_book_and_closed_with_what_it_cost():
    ledgers = lock(make_agent(), make_trigger())
    ids = [ledger.id for ledger in ledgers]
    budgets_reserve(ledgers, estimate=USD("0.005"), held=USD("0.02"))
    budgets_reserve(ledgers, estimate=USD("0.001"), held=USD("0.01"))
    assert {amounts(pk) for pk in ids} == {(USD("0.006"), USD("0.03"), 0, 0)}
    budgets_settle(ids, approved=USD("0.005"), held=USD("0.02"), charged=USD("0.005"), actual=USD("0.013"))
    assert {amounts(pk) for pk in ids} == {(USD("0.001"), USD("0.01"), USD("0.005"), USD("0.013"))}


@pytest.mark.django_db
def test_a_call_is_closed_in_the_books_of_the_day_it_was_reserved_on():
    agent = make_agent()
    yesterday = lock(agent)
    budgets_reserve(yesterday, estimate=USD("0.005"), held=USD("0.02"))
    today = lock(agent, now=NOW + timedelta(days=1))
    ids = [ledger.id for ledger in yesterday]
    budgets_settle(ids, approved=USD("0.005"), held=USD("0.02"), charged=USD("0.005"), actual=USD("0.01"))
    assert {amounts(pk) for pk in ids} == {(0, 0, USD("0.005"), USD("0.01"))}
    assert {amounts(ledger.id) for ledger in today} == {(0, 0, 0, 0)}


@pytest.mark.django_db
def test_a_call_cannot_be_closed_twice():
    ledgers = lock()
    budgets_reserve(ledgers, estimate=USD("0.005"), held=USD("0.02"))
    close = {"approved": USD("0.005"), "held": USD("0.02"), "charged": USD("0.005"), "actual": USD("0.01")}
    budgets_settle([ledgers[0].id], **close)
    with pytest.raises(IntegrityError), transaction.atomic():
        budgets_settle([ledgers[0].id], **close)


@pytest.mark.django_db
def test_other_books_are_left_alone():
    other = lock(make_agent())
    mine = lock(make_agent())
    budgets_reserve(mine[1:], estimate=USD("0.005"), held=USD("0.02"))
    assert amounts(other[1].id) == (0, 0, 0, 0)


# --- caps ---


@pytest.mark.sampled(12)
@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "period"), KINDS)
@pytest.mark.parametrize("opened", [False, True])
def test_a_new_cap_is_what_the_very_next_call_is_judged_by(scope, period, opened):
    row, subject = owner_of(scope)
    of = runs_of(scope, row)
    if opened:
        lock(**of)
    set_cap(scope, subject, "0.5", period=period)

    def cap(now):
        [ledger] = [ledger for ledger in lock(**of, now=now) if ledger.name == named(scope, subject, period)]
        return ledger.cap

    assert cap(NOW) == cap_of(scope, subject, period) == USD("0.5")
    assert cap(NOW + timedelta(days=1)) == cap(NOW + timedelta(days=40)) == USD("0.5")


@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "period"), KINDS)
def test_a_new_cap_is_recorded_with_the_old_one(scope, period):
    _, subject = owner_of(scope)
    old = cap_of(scope, subject, period)
    set_cap(scope, subject, "0.5", period=period)
    event = AuditEvent.objects.get(kind="budget.cap_set")
    name = named(scope, subject, period)
    assert (event.chain, event.actor, event.subject, event.at) == (SYSTEM_CHAIN, "system", name, NOW)
    assert event.details == {"budget": name, "cap_usd": "0.5", "old_cap_usd": None if old is None else str(old)}


@pytest.mark.django_db
@pytest.mark.parametrize("scope", [BudgetScope.AGENT, BudgetScope.TRIGGER])
def test_an_agent_or_trigger_may_be_without_a_cap(scope):
    owner, subject = owner_of(scope)
    set_cap(scope, subject, "1")
    set_cap(scope, subject, None)
    owner.refresh_from_db()
    assert owner.max_cost_per_day_usd is None
    assert Budget.objects.get(scope=scope).cap_usd is None
    assert AuditEvent.objects.filter(kind="budget.cap_set").latest("seq").details["cap_usd"] is None


@pytest.mark.django_db
def test_the_installation_may_not_be_without_a_cap():
    with pytest.raises(ValueError, match="must have a daily cap"):
        set_cap(BudgetScope.INSTALLATION, 0, None)
    assert Installation.objects.get().max_cost_per_day_usd == 20
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("subject", [0, 1, 99])
def test_there_is_one_installation_whatever_id_it_is_called_by(subject):
    set_cap(BudgetScope.INSTALLATION, subject, "0.5")
    assert [(row.subject_id, row.cap_usd) for row in Budget.objects.all()] == [(0, USD("0.5"))]


@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "period"), [kind for kind in KINDS if kind[0] != "installation"])
@pytest.mark.parametrize("subject", [0, 10**9])
def test_a_cap_for_nobody_is_refused(scope, period, subject):
    owner_of(scope)
    with pytest.raises(NotFound, match="any more"):
        set_cap(scope, subject, "1", period=period)


@pytest.mark.django_db
@pytest.mark.parametrize("make", [make_agent, make_trigger])
@pytest.mark.parametrize("name", sorted(budgets.PERIODS))
def test_who_sets_a_cap_has_changed_the_row(make, name):
    row, admin = make(), make_user(is_superuser=True)
    budgets.caps_set(subject=row, by=admin, now=NOW, **{name: USD("1")})
    row.refresh_from_db()
    assert row.edited_by == admin


@pytest.mark.django_db
@pytest.mark.parametrize("cap", ["-1", "NaN", "Infinity", "0.0000001"])
def test_a_cap_that_is_not_an_amount_changes_nothing(cap):
    with pytest.raises(ValueError, match="cap_usd"), transaction.atomic():
        set_cap(BudgetScope.INSTALLATION, 0, cap)
    assert Installation.objects.get().max_cost_per_day_usd == 20


@pytest.mark.django_db
def test_a_cap_is_set_for_the_day_that_the_clock_shows(monkeypatch):
    monkeypatch.setattr(budgets, "clock", lambda: NOW)
    budget_set_cap(scope=BudgetScope.INSTALLATION, subject_id=0, cap_usd=USD(0), by=None)
    assert (Budget.objects.get().day, Budget.objects.get().cap_usd) == (TODAY, 0)


@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "period"), WITH_CAP_ALONE)
def test_a_budget_is_counted_while_it_has_a_cap(scope, period):
    row, subject = owner_of(scope)
    of, name = runs_of(scope, row), named(scope, subject, period)
    assert name not in {ledger.name for ledger in lock(**of)}
    set_cap(scope, subject, "1", period=period)
    assert name in {ledger.name for ledger in lock(**of)}
    set_cap(scope, subject, None, period=period)
    assert name not in {ledger.name for ledger in lock(**of)}
    assert (Cap.objects.count(), Budget.objects.get(scope=scope, period=period).cap_usd) == (0, None)
    set_cap(scope, subject, None, period=period, now=NOW + timedelta(days=40))
    assert Budget.objects.filter(scope=scope, period=period).count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("scope", SCOPES)
def test_a_cap_of_somebody_else_does_not_count(scope):
    _, subject = owner_of(scope)
    set_cap(scope, subject, "1", period=BudgetPeriod.MONTH)
    other = {} if scope == BudgetScope.INSTALLATION else runs_of(scope, owner_of(scope)[0])
    found = {ledger.name for ledger in lock(**other)}
    assert (named(scope, subject, BudgetPeriod.MONTH) in found) is (scope == BudgetScope.INSTALLATION)


@pytest.mark.django_db
def test_a_month_is_a_month_of_utc_and_resets_with_the_next():
    set_cap(BudgetScope.INSTALLATION, 0, "9", period=BudgetPeriod.MONTH)
    late = datetime(2026, 12, 31, 23, 30, tzinfo=timezone(timedelta(hours=1)))
    ledgers = [
        ledger
        for now in (NOW, NOW + timedelta(days=17), NOW + timedelta(days=18), late, late + timedelta(hours=1))
        for ledger in lock(now=now)
        if ledger.name == "installation/month"
    ]
    assert [ledger.resets_at.date() for ledger in ledgers] == [
        date(2026, 4, 1), date(2026, 4, 1), date(2026, 5, 1), date(2027, 1, 1), date(2027, 1, 1)
    ]  # fmt: skip
    assert [row.day for row in Budget.objects.filter(period="month").order_by("day")] == [
        date(2026, 3, 1), date(2026, 4, 1), date(2026, 12, 1)
    ]  # fmt: skip


def call(session, started_at=NOW, **money):
    """A call in the journal, open unless it says how it ended."""
    ended = {"outcome": "success", "settled_at": started_at} if "charged_usd" in money else {}
    key = f"call-{ToolCall.objects.count()}"
    given = {"intent": "run_skill", "phase": "turn", "arguments": {}, "fencing": 0, "model": "m", "key": key}
    return ToolCall.objects.create(session=session, started_at=started_at, **given, **ended, **money)


@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "period"), WITH_CAP_ALONE)
def test_a_new_cap_counts_what_the_period_has_cost_with_calls_in_flight_at_their_worst(scope, period):
    row, subject = owner_of(scope)
    session = make_session(**runs_of(scope, row))
    call(session, charged_usd=USD("0.2"), actual_usd=USD("0.3"), approved_usd=USD("0.2"), held_usd=USD(7))
    call(session, approved_usd=USD("0.5"), held_usd=USD(2), actual_usd=USD("0.1"))
    call(session, charged_usd=USD(50), actual_usd=USD(50), started_at=NOW - timedelta(days=14))
    call(make_session(), charged_usd=USD(60), actual_usd=USD(60))
    ledgers = budgets_lock(session_id=session.pk, now=NOW)
    budgets_reserve(ledgers, estimate=USD("0.5"), held=USD(2))
    Budget.objects.update(charged_usd=USD("0.2"), actual_usd=USD("0.4"))
    before = {"charged_usd": USD(50), "actual_usd": USD(50), "cap_usd": USD(99)}
    Budget.objects.create(scope=scope, subject_id=subject, day=MONTH - timedelta(days=1), **before)
    set_cap(scope, subject, "90", period=period)
    [ledger] = [
        ledger
        for ledger in budgets_lock(session_id=session.pk, now=NOW)
        if ledger.name == named(scope, subject, period)
    ]
    assert (ledger.charged, ledger.actual, ledger.reserved, ledger.held) == (USD("0.7"), USD("2.4"), 0, 0)


@pytest.mark.django_db
@pytest.mark.parametrize("scope", SCOPES)
def test_a_cap_that_comes_back_counts_what_was_spent_without_it(scope):
    row, subject = owner_of(scope)
    session = make_session(**runs_of(scope, row))
    set_cap(scope, subject, "9", period=BudgetPeriod.MONTH)
    in_flight = budgets_lock(session_id=session.pk, now=NOW)
    budgets_reserve(in_flight, estimate=USD(1), held=USD(3))
    open_call = call(session, approved_usd=USD(1), held_usd=USD(3))
    set_cap(scope, subject, None, period=BudgetPeriod.MONTH)
    ids = [ledger.id for ledger in budgets_lock(session_id=session.pk, now=NOW)]
    budgets_reserve(budgets_lock(session_id=session.pk, now=NOW), estimate=USD(2), held=USD(2))
    budgets_settle(ids, approved=USD(2), held=USD(2), charged=USD(2), actual=USD(2))
    call(session, charged_usd=USD(2), actual_usd=USD(2), approved_usd=USD(2), held_usd=USD(2))
    set_cap(scope, subject, "9", period=BudgetPeriod.MONTH)
    month = Budget.objects.get(scope=scope, subject_id=subject, period="month")
    assert amounts(month.pk) == (1, 3, 2, 2)
    ids = [ledger.id for ledger in in_flight]
    budgets_settle(ids, approved=USD(1), held=USD(3), charged=USD(1), actual=USD("0.5"))
    assert (amounts(month.pk), open_call.approved_usd) == ((0, 0, 3, USD("2.5")), 1)


@pytest.mark.django_db
def test_a_new_cap_counts_runs_whose_calls_are_archived():
    project = make_project()
    end = {"status": "completed", "terminal_reason": "completed", "cost_total_usd": USD(3), "cost_actual_usd": USD(4)}
    make_session(project=project, completed_at=NOW, archived_at=NOW, **end)
    make_session(project=project, completed_at=NOW - timedelta(days=30), archived_at=NOW, **end)
    set_cap(BudgetScope.PROJECT, project.pk, "9", period=BudgetPeriod.MONTH)
    assert amounts(Budget.objects.get().pk) == (0, 0, 3, 4)


@pytest.mark.django_db
@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope != "installation"])
def test_caps_are_set_together_and_equal_values_are_no_change(scope):
    row, subject = owner_of(scope)
    given = {"max_cost_per_day_usd": USD(1), "max_cost_per_month_usd": USD(9)}
    for _ in range(2):
        caps_set(subject=row, by=None, now=NOW, **given)
    assert caps_of(scope, subject) == given
    assert AuditEvent.objects.filter(kind="budget.cap_set").count() == 2
    with pytest.raises(NotFound):
        caps_set(subject=row, by=make_user(), now=NOW, max_cost_per_month_usd=USD(1))
    person = row if scope == BudgetScope.OWNER else row.owner
    caps_set(subject=row, by=person, now=NOW, max_cost_per_month_usd=USD(8))
    with pytest.raises(NotAllowed, match="the cap of a month"):
        caps_set(subject=row, by=person, now=NOW, max_cost_per_month_usd=None)
    assert caps_of(scope, subject) == {**given, "max_cost_per_month_usd": USD(8)}


@pytest.mark.django_db
def test_raising_the_installations_month_loosens():
    set_cap(BudgetScope.INSTALLATION, 0, "9", period=BudgetPeriod.MONTH)
    month = {"scope": BudgetScope.INSTALLATION, "subject_id": 0, "period": BudgetPeriod.MONTH, "now": NOW}
    budget_set_cap(**month, cap_usd=USD(8), by=make_user())
    for cap in (USD(9), None):
        with pytest.raises(NotAllowed, match="the cap of a month"):
            budget_set_cap(**month, cap_usd=cap, by=make_user())
    assert cap_of(BudgetScope.INSTALLATION, 0, BudgetPeriod.MONTH) == 8


# --- 80 % ---


def warn(session, ledgers, estimate):
    warn_at_80_percent(session, ledgers, estimate=USD(estimate), now=NOW)
    return [event.details for event in AuditEvent.objects.filter(kind="budget.warned").order_by("seq")]


@pytest.mark.django_db
def test_each_budget_warns_once_at_80_percent():
    agent = make_agent(max_cost_per_day_usd=USD("0.1"))
    session = make_session(max_cost_usd=USD("0.2"), agent=agent)

    def ledgers():
        return (session.ledger, *budgets_lock(session_id=session.pk, now=NOW))

    assert warn(session, ledgers(), "0.079999") == []
    [first] = warn(session, ledgers(), "0.08")
    assert first == {
        "budget": f"agent:{agent.pk}",
        "percent": 80,
        "cap_usd": "0.100000",
        "spent_usd": str(USD("0.000000") + USD("0.08")),
    }
    assert len(warn(session, ledgers(), "0.09")) == 1
    assert warn(session, ledgers(), "0.16")[1]["budget"] == "session"
    session = AgentSession.objects.get()
    assert session.budget_warned
    assert len(warn(session, ledgers(), "0.2")) == 2
    assert AuditEvent.objects.filter(kind="budget.warned", chain=session.chain).count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "period"), WITH_CAP_ALONE)
def test_new_kinds_of_budgets_warn_too(scope, period):
    row, subject = owner_of(scope)
    session = make_session(**runs_of(scope, row))
    set_cap(scope, subject, "0.1", period=period)
    [warned] = warn(session, budgets_lock(session_id=session.pk, now=NOW), "0.08")
    assert warned["budget"] == named(scope, subject, period)


@pytest.mark.django_db
def test_a_new_cap_and_a_new_day_warn_anew():
    agent, session = make_agent(max_cost_per_day_usd=USD("0.1")), make_session()
    assert len(warn(session, lock(agent), "0.1")) == 1
    set_cap(BudgetScope.AGENT, agent.pk, "0.12")
    assert len(warn(session, lock(agent), "0.1")) == 2
    assert len(warn(session, lock(agent, now=NOW + timedelta(days=1)), "0.1")) == 3


# --- People are told at 50, 80 and 95 % ---


def spend(scope, subject, *, charged="0", actual="0", period=BudgetPeriod.DAY):
    day = TODAY if period == BudgetPeriod.DAY else MONTH
    rows = Budget.objects.filter(scope=scope, subject_id=subject, period=period, day=day)
    rows.update(charged_usd=USD(charged), actual_usd=USD(actual))


def news():
    return list(Notification.objects.filter(kind="budget").order_by("pk").values_list("title", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "period"), [kind for kind in KINDS if kind[0] != "installation"])
def test_owner_is_told_once_at_each_part_of_the_cap(scope, period):
    row, subject = owner_of(scope)
    set_cap(scope, subject, "10", period=period)
    for charged, percent in (("4.99", None), ("5", 50), ("7.99", None), ("8", 80), ("9.5", 95), ("10", None)):
        spend(scope, subject, charged=charged, period=period)
        assert budgets_tell(NOW) == (1 if percent else 0), charged
        assert budgets_tell(NOW) == 0
    name = row.username if scope == BudgetScope.OWNER else row.name
    when = "this month's" if period == BudgetPeriod.MONTH else "today's"
    assert news() == [f"{part} % of {when} budget of {scope} {name} is spent" for part in (50, 80, 95)]
    told = Notification.objects.filter(kind="budget").first()
    page = "/admin/agents/budget/" if scope == BudgetScope.OWNER else f"/admin/agents/{scope}/{row.pk}/change/"
    assert (told.owner, told.page) == (row if scope == BudgetScope.OWNER else row.owner, page)
    day = "in March 2026" if period == BudgetPeriod.MONTH else "on 14 March 2026"
    assert f"of $10.00 {day} (UTC)" in told.body
    assert AuditEvent.objects.filter(kind="budget.told").count() == 3


@pytest.mark.django_db
@pytest.mark.parametrize("period", BudgetPeriod)
def test_operators_are_told_of_the_installation_and_of_the_highest_part_alone(period):
    operator = make_user()
    operator.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    make_user()
    set_cap(BudgetScope.INSTALLATION, 0, "10", period=period)
    spend(BudgetScope.INSTALLATION, 0, actual="9.6", period=period)
    assert budgets_tell(NOW) == 1
    when = "this month's" if period == BudgetPeriod.MONTH else "today's"
    assert news() == [f"95 % of {when} budget of the installation is spent"]
    assert Notification.objects.get().owner == operator


@pytest.mark.django_db
def test_new_cap_and_new_day_are_told_of_anew():
    row, subject = owner_of(BudgetScope.AGENT)
    set_cap(BudgetScope.AGENT, subject, "10")
    spend(BudgetScope.AGENT, subject, charged="8")
    budgets_tell(NOW)
    set_cap(BudgetScope.AGENT, subject, "16")
    assert budgets_tell(NOW) == 1
    assert budgets_tell(NOW + timedelta(days=1)) == 0
    lock(agent=row, now=NOW + timedelta(days=1))
    Budget.objects.filter(scope=BudgetScope.AGENT, day=TODAY + timedelta(days=1)).update(charged_usd=USD(9))
    assert budgets_tell(NOW + timedelta(days=1)) == 1
    assert [title.partition(" ")[0] for title in news()] == ["80", "50", "50"]


@pytest.mark.django_db
def test_budget_without_cap_or_of_a_deleted_agent_is_no_news():
    row, subject = owner_of(BudgetScope.AGENT)
    lock(agent=row)
    spend(BudgetScope.AGENT, subject, charged="100")
    assert budgets_tell(NOW) == 0
    set_cap(BudgetScope.AGENT, subject, "10")
    row.delete()
    assert (budgets_tell(NOW), news()) == (0, [])


@pytest.mark.django_db
def test_of_two_who_see_the_same_spend_one_tells():
    _, subject = owner_of(BudgetScope.AGENT)
    set_cap(BudgetScope.AGENT, subject, "10")
    spend(BudgetScope.AGENT, subject, charged="8")
    seen = Budget.objects.get()
    assert [budgets._tell(seen, 80, NOW) for _ in range(2)] == [True, False]
    assert len(news()) == 1
