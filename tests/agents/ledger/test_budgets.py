"""The books of shared budgets: one row per scope and day, locked in order, with caps that hold at once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from threading import Barrier

import pytest
from django.contrib.auth.models import Permission
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from agents.enums import BudgetScope
from agents.exceptions import LeaseLost
from agents.ledger import budgets
from agents.ledger.budgets import (
    budget_set_cap,
    budgets_lock,
    budgets_reserve,
    budgets_settle,
    budgets_tell,
    warn_at_80_percent,
)
from agents.models import Agent, AgentSession, Budget, Installation, Notification, Trigger
from audit.models import SYSTEM_CHAIN, AuditEvent
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

USD = Decimal
TODAY = NOW.date()
SCOPES = list(BudgetScope)


def lock(agent=None, trigger=None, now=NOW):
    return budgets_lock(agent_id=agent and agent.pk, trigger_id=trigger and trigger.pk, now=now)


def set_cap(scope, subject, cap, now=NOW):
    cap = None if cap is None else USD(cap)
    budget_set_cap(scope=scope, subject_id=subject, cap_usd=cap, by=None, now=now)


def owner_of(scope):
    """The row that holds a scope's cap, and the id that the service knows it by."""
    if scope == BudgetScope.INSTALLATION:
        return Installation.objects.get(), 0
    row = make_agent() if scope == BudgetScope.AGENT else make_trigger()
    return row, row.pk


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
def test_open_books_take_one_query(django_assert_num_queries):
    agent, trigger = make_agent(), make_trigger()
    lock(agent, trigger)
    with django_assert_num_queries(1):
        lock(agent, trigger)


# --- locks ---


@pytest.mark.django_db
def test_books_are_locked_lowest_id_first():
    agent, trigger = make_agent(), make_trigger()
    set_cap(BudgetScope.TRIGGER, trigger.pk, "9")  # so that ids do not follow the order of the scopes
    with CaptureQueriesContext(
        connection,
    ) as seen:
        ledgers = lock(agent, trigger)
    assert [ledger.name.partition(":")[0] for ledger in ledgers] == ["installation", "trigger", "agent"]
    assert [ledger.id for ledger in ledgers] == sorted(ledger.id for ledger in ledgers)
    last = seen.captured_queries[-1]["sql"]
    assert 'ORDER BY "agents_budget"."id" ASC' in last
    assert last.endswith("FOR NO KEY UPDATE") is (connection.vendor == "postgresql")


@pytest.mark.django_db
def test_settling_locks_in_the_same_order():
    ids = [ledger.id for ledger in lock(make_agent(), make_trigger())]
    with CaptureQueriesContext(connection) as seen:
        budgets_settle(ids[::-1], approved=USD(0), held=USD(0), charged=USD(0), actual=USD(0))
    assert 'ORDER BY "agents_budget"."id" ASC' in seen.captured_queries[0]["sql"]
    assert len(seen) == 2


@pytest.mark.django_db
@pytest.mark.parametrize("scope", SCOPES)
def test_the_installations_books_of_a_day_are_the_first_to_be_opened(scope):
    _, subject = owner_of(scope)
    set_cap(scope, subject, "1")
    assert Budget.objects.earliest("pk").scope == BudgetScope.INSTALLATION


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


@pytest.mark.django_db
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("opened", [False, True])
def test_a_new_cap_is_what_the_very_next_call_is_judged_by(scope, opened):
    owner, subject = owner_of(scope)
    of = {"agent": owner} if scope == BudgetScope.AGENT else {"trigger": owner} if scope == BudgetScope.TRIGGER else {}
    if opened:
        lock(**of)
    set_cap(scope, subject, "0.5")
    [ledger] = [ledger for ledger in lock(**of) if ledger.name.startswith(scope)]
    owner.refresh_from_db()
    assert ledger.cap == owner.max_cost_per_day_usd == USD("0.5")
    assert lock(**of, now=NOW + timedelta(days=1))[-1].cap == USD("0.5")


@pytest.mark.django_db
@pytest.mark.parametrize("scope", SCOPES)
def test_a_new_cap_is_recorded_with_the_old_one(scope):
    owner, subject = owner_of(scope)
    old = owner.max_cost_per_day_usd
    set_cap(scope, subject, "0.5")
    event = AuditEvent.objects.get(kind="budget.cap_set")
    name = "installation" if scope == BudgetScope.INSTALLATION else f"{scope}:{subject}"
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
@pytest.mark.parametrize(("scope", "model"), [(BudgetScope.AGENT, Agent), (BudgetScope.TRIGGER, Trigger)])
@pytest.mark.parametrize("subject", [0, 10**9])
def test_a_cap_for_nobody_is_refused(scope, model, subject):
    owner_of(scope)
    with pytest.raises(model.DoesNotExist):
        set_cap(scope, subject, "1")


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


# --- 80 % ---


def warn(session, ledgers, estimate):
    warn_at_80_percent(session, ledgers, estimate=USD(estimate), now=NOW)
    return [event.details for event in AuditEvent.objects.filter(kind="budget.warned").order_by("seq")]


@pytest.mark.django_db
def test_each_budget_warns_once_at_80_percent():
    agent = make_agent(max_cost_per_day_usd=USD("0.1"))
    session = make_session(max_cost_usd=USD("0.2"))
    assert warn(session, (session.ledger, *lock(agent)), "0.079999") == []
    [first] = warn(session, (session.ledger, *lock(agent)), "0.08")
    assert first == {
        "budget": f"agent:{agent.pk}",
        "percent": 80,
        "cap_usd": "0.100000",
        "spent_usd": str(USD("0.000000") + USD("0.08")),
    }
    assert len(warn(session, (session.ledger, *lock(agent)), "0.09")) == 1
    assert warn(session, (session.ledger, *lock(agent)), "0.16")[1]["budget"] == "session"
    session = AgentSession.objects.get()
    assert session.budget_warned
    assert len(warn(session, (session.ledger, *lock(agent)), "0.2")) == 2
    assert AuditEvent.objects.filter(kind="budget.warned", chain=session.chain).count() == 2


@pytest.mark.django_db
def test_a_new_cap_and_a_new_day_warn_anew():
    agent, session = make_agent(max_cost_per_day_usd=USD("0.1")), make_session()
    assert len(warn(session, lock(agent), "0.1")) == 1
    set_cap(BudgetScope.AGENT, agent.pk, "0.12")
    assert len(warn(session, lock(agent), "0.1")) == 2
    assert len(warn(session, lock(agent, now=NOW + timedelta(days=1)), "0.1")) == 3


# --- People are told at 50, 80 and 95 % ---


def spend(scope, subject, *, charged="0", actual="0"):
    rows = Budget.objects.filter(scope=scope, subject_id=subject, day=TODAY)
    rows.update(charged_usd=USD(charged), actual_usd=USD(actual))


def news():
    return list(Notification.objects.filter(kind="budget").order_by("pk").values_list("title", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize("scope", [BudgetScope.AGENT, BudgetScope.TRIGGER])
def test_owner_is_told_once_at_each_part_of_the_cap(scope):
    row, subject = owner_of(scope)
    set_cap(scope, subject, "10")
    for charged, percent in (("4.99", None), ("5", 50), ("7.99", None), ("8", 80), ("9.5", 95), ("10", None)):
        spend(scope, subject, charged=charged)
        assert budgets_tell(NOW) == (1 if percent else 0), charged
        assert budgets_tell(NOW) == 0
    assert news() == [f"{part} % of today's budget of {scope} {row.name} is spent" for part in (50, 80, 95)]
    told = Notification.objects.filter(kind="budget").first()
    assert (told.owner, told.page) == (row.owner, f"/admin/agents/{scope}/{row.pk}/change/")
    assert "of $10.00" in told.body
    assert AuditEvent.objects.filter(kind="budget.told").count() == 3


@pytest.mark.django_db
def test_operators_are_told_of_the_installation_and_of_the_highest_part_alone():
    operator = make_user()
    operator.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    make_user()
    set_cap(BudgetScope.INSTALLATION, 0, "10")
    spend(BudgetScope.INSTALLATION, 0, actual="9.6")
    assert budgets_tell(NOW) == 1
    assert news() == ["95 % of today's budget of the installation is spent"]
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
