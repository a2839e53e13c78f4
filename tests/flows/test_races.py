"""Money, tickets, leases and precedents under real concurrency, on SQLite and on PostgreSQL."""

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission

from agents.conf import clock
from agents.enums import BudgetPeriod, BudgetScope, Level, Outcome, Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.ledger.boundary import is_halted
from agents.ledger.budgets import budget_set_cap, caps_set
from agents.models import AgentSession, Approval, Budget, Precedent, ToolCall
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.approvals import approval_approve
from agents.sessions.leases import lease_claim
from agents.types import Usage
from audit.verify import verify_log
from tests.agents.conftest import Probe, tool
from tests.factories import make_agent, make_price, make_project, make_session, make_user
from tests.flows.processes import Worker, in_threads
from tests.flows.workers import MODEL, spend
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

CALLS = 37
ESTIMATE = Decimal("0.005")


def books_balance(session):
    session.refresh_from_db()
    calls = ToolCall.objects.filter(session=session)
    assert session.cost_reserved_usd == session.cost_held_usd == 0
    assert session.cost_total_usd == sum(call.charged_usd for call in calls)
    assert session.cost_actual_usd == sum(call.actual_usd for call in calls)


def race_on_one_session(*, cap, output_tokens):
    session = make_session(max_cost_usd=cap)
    with serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(0, output_tokens))])):
        made = in_threads(16, lambda _: spend(AgentSession.objects.get(pk=session.pk)))
    books_balance(session)
    return session, sum(made)


def sixteen_threads_on_one_session():
    """Each call really costs what it was estimated at, so the rolling average does not move."""
    make_price(MODEL, input_usd="0", output_usd="10")
    session, made = race_on_one_session(cap=CALLS * ESTIMATE, output_tokens=500)
    assert made == CALLS
    assert session.cost_total_usd == session.cost_actual_usd == CALLS * ESTIMATE == session.max_cost_usd
    assert session.cost_cap_reached


def test_sixteen_threads_spend_a_session_s_cap_to_the_last_call_and_not_one_more():
    sixteen_threads_on_one_session()


def test_calls_that_were_paid_for_are_made_though_the_cap_is_reached_meanwhile(monkeypatch):
    """The threads that find the cap reached do so while the last calls have not left yet."""

    def late(session):
        time.sleep(0.1)
        return is_halted(session)

    monkeypatch.setattr("agents.guard.guard.is_halted", late)
    sixteen_threads_on_one_session()


def test_sixteen_threads_never_really_spend_more_than_the_cap():
    """The real ledger binds: each call really costs twice its estimate, and 37 of those fit."""
    make_price(MODEL, input_usd="0", output_usd="20")
    per_call = Decimal("0.01")
    session, made = race_on_one_session(cap=CALLS * per_call, output_tokens=500)
    assert made == CALLS
    assert session.cost_actual_usd == CALLS * per_call == session.max_cost_usd


def four_processes_under_one_cap(scope, period, row):
    make_price(MODEL, input_usd="0", output_usd="10")
    subject_id = 0 if row is None else row.pk
    cap = CALLS * ESTIMATE
    budget_set_cap(scope=scope, subject_id=subject_id, period=period, cap_usd=cap, by=None, now=clock())
    sessions = [make_session(**({} if row is None else {str(scope): row})) for _ in range(40)]
    pks = [session.pk for session in sessions]
    workers = [Worker("spend_in_threads", session_pks=pks[n : n + 10], output_tokens=500) for n in range(0, 40, 10)]
    made = sum(worker.result() for worker in workers)
    budget = Budget.objects.get(scope=scope, period=period, cap_usd=cap)
    assert made == CALLS
    assert (budget.charged_usd, budget.reserved_usd, budget.held_usd) == (CALLS * ESTIMATE, 0, 0)
    assert budget.actual_usd == CALLS * ESTIMATE
    for session in sessions:
        books_balance(session)
    assert not any(session.cost_cap_reached for session in sessions)


def test_four_processes_of_ten_threads_spend_an_agent_s_budget_to_the_last_call_and_not_one_more():
    four_processes_under_one_cap(BudgetScope.AGENT, BudgetPeriod.DAY, make_agent())
    assert verify_log().problems == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("scope", "period", "make"),
    [
        (BudgetScope.OWNER, BudgetPeriod.DAY, make_user),
        (BudgetScope.PROJECT, BudgetPeriod.MONTH, make_project),
        (BudgetScope.INSTALLATION, BudgetPeriod.MONTH, lambda: None),
    ],
)
def test_four_processes_spend_a_cap_of_any_kind_to_the_last_call_and_not_one_more(scope, period, make):
    four_processes_under_one_cap(scope, period, make())


def test_processes_with_different_budgets_and_caps_that_change_wait_for_nobody_for_ever():
    """Each session draws on other budgets, whose ids are in no order of scopes; caps come and go meanwhile."""
    make_price(MODEL, input_usd="0", output_usd="10")
    owners, projects, agents = ([make() for _ in range(2)] for make in (make_user, make_project, make_agent))
    subjects = [projects[1], owners[0], agents[1], projects[0], agents[0], owners[1]]
    for subject in subjects:
        caps_set(subject=subject, by=None, now=clock(), max_cost_per_month_usd=Decimal(90))
    sessions = [
        make_session(
            owner=owners[n % 2], project=projects[n // 2 % 2], agent=agents[n // 4 % 2], max_cost_usd=ESTIMATE * 5
        )
        for n in range(16)
    ]
    pks = [session.pk for session in sessions]
    workers = [Worker("spend_in_threads", session_pks=pks[n : n + 8], output_tokens=500) for n in (0, 8)]
    for number in range(12):
        cap = None if number % 2 else Decimal(90 + number)
        caps_set(subject=subjects[number % 6], by=None, now=clock(), max_cost_per_month_usd=cap)
        time.sleep(0.1)
    assert sum(worker.result() for worker in workers) == 16 * 5
    for subject in subjects:
        caps_set(subject=subject, by=None, now=clock(), max_cost_per_month_usd=None)
        caps_set(subject=subject, by=None, now=clock(), max_cost_per_month_usd=Decimal(90))
    months = Budget.objects.filter(period="month")
    assert {(row.charged_usd, row.actual_usd, row.reserved_usd, row.held_usd) for row in months} == {
        (8 * 5 * ESTIMATE, 8 * 5 * ESTIMATE, 0, 0)
    }


def test_twenty_sightings_at_once_are_one_precedent_seen_twenty_times():
    owner = make_user()
    sessions = [make_session(owner=owner, current_phase=Phase.ANALYSIS) for _ in range(20)]
    sighting = {"pattern_kind": "clause", "summary": "liability is not capped"}
    results = in_threads(20, lambda n: guarded_tool_call(sessions[n], ToolIntent.PROPOSE_PRECEDENT, sighting))
    assert sorted(result.data["observed_count"] for result in results) == list(range(1, 21))
    assert Precedent.objects.get().observed_count == 20


def test_a_dismissed_precedent_does_not_stand_in_the_way_of_a_new_one():
    session = make_session(current_phase=Phase.ANALYSIS)
    sighting = {"pattern_kind": "clause", "summary": "liability is not capped"}
    guarded_tool_call(session, ToolIntent.PROPOSE_PRECEDENT, sighting)
    Precedent.objects.update(dismissed_at=clock())
    again = guarded_tool_call(session, ToolIntent.PROPOSE_PRECEDENT, sighting)
    assert again.data["observed_count"] == 1
    assert Precedent.objects.count() == 2


def test_a_hundred_sessions_claimed_by_two_processes_have_one_holder_each():
    sessions = [make_session(status=Status.QUEUED) for _ in range(100)]
    pks = [session.pk for session in sessions]
    workers = [Worker("claim", session_pks=pks, owner=f"worker-{n}", at=clock()) for n in (1, 2)]
    for worker in workers:
        worker.wait_for("ready")
    for worker in workers:
        worker.tell("go")
    first, second = (set(worker.result()) for worker in workers)
    assert first | second == set(pks)
    assert not first & second
    assert set(AgentSession.objects.values_list("fencing", flat=True)) == {1}
    assert verify_log().problems == []


def test_sixteen_claims_at_once_have_one_winner():
    session = make_session(status=Status.QUEUED)
    claims = in_threads(16, lambda n: lease_claim(session.pk, owner=f"worker-{n}", now=clock()))
    assert sum(claim is not None for claim in claims) == 1


def race_on_one_ticket(racers):
    approver = make_user()
    approver.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    session = make_session()
    probe = Probe()
    now = clock()

    def send(key):
        with tool(probe=probe, level=Level.RESTRICTED):
            return guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key=key, now=now)

    assert send("turn:1").outcome == Outcome.APPROVAL_PENDING
    ticket = Approval.objects.get(session=session)
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=now)

    def racer(_):
        try:
            return send("turn:1")
        except Exception as error:  # noqa: BLE001 a loser may find the call in flight
            return error

    in_threads(racers, racer)
    assert len(probe.calls) == 1
    assert ToolCall.objects.filter(session=session).count() == 1


def test_fifty_racers_on_one_ticket_use_it_once():
    race_on_one_ticket(50)


def test_one_day_is_opened_once_by_many():
    make_price(MODEL, input_usd="0", output_usd="0")
    agent = make_agent()
    sessions = [make_session(agent=agent, owner=agent.owner) for _ in range(12)]
    midnight = datetime.now(UTC) + timedelta(days=30)
    with serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(0, 0))])):
        results = in_threads(
            12,
            lambda n: guarded_tool_call(
                sessions[n],
                ToolIntent.RUN_SKILL,
                {"model": MODEL, "prompt": "?", "max_tokens": 1},
                now=midnight,
            ),
        )
    assert all(result.ok for result in results)
    assert set(Budget.objects.values_list("charged_usd", flat=True)) == {12 * ESTIMATE}


@pytest.mark.stress
@pytest.mark.parametrize("repetition", range(5))
def test_the_money_races_five_times_over(repetition):
    sixteen_threads_on_one_session()
    AgentSession.objects.all().delete()
    from agents.models import ModelPrice

    ModelPrice.objects.all().delete()
    four_processes_under_one_cap(BudgetScope.AGENT, BudgetPeriod.DAY, make_agent())


@pytest.mark.stress
def test_two_hundred_tickets_with_fifty_racers_each():
    for _ in range(200):
        race_on_one_ticket(50)
