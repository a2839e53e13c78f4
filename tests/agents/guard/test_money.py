"""R4 with worst cases, shared budgets and providers that do not keep their word."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from agents.enums import BudgetPeriod, BudgetScope, HaltState, Outcome, Phase, TerminalReason, ToolIntent
from agents.exceptions import BudgetExceeded, BudgetRefused, CostCapReached, ModelSuspended, UnpricedModel
from agents.guard import can_be_paid, guarded_tool_call
from agents.ledger.budgets import budget_set_cap
from agents.ledger.prices import model_accept
from agents.models import AgentSession, Budget, SuspendedModel, ToolCall
from agents.providers.scripted import Step
from agents.types import Usage
from audit.models import AuditEvent
from tests.agents.conftest import MODEL, ask, script
from tests.factories import NOW, make_agent, make_price, make_project, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db


def refusals(session):
    rows = AuditEvent.objects.filter(chain=session.chain, details__outcome="denied").order_by("seq")
    return [(row.details.get("detail"), row.details.get("budget")) for row in rows]


def run(session, **more):
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(**more), now=NOW)


def test_max_tokens_is_lowered_to_what_is_left(provider):
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session(current_phase=Phase.TURN, max_cost_usd=Decimal("0.0060"))
    run(session, max_tokens=4_000)
    assert provider.requests[0].max_tokens == 600
    assert ToolCall.objects.get().held_usd == Decimal("0.006")


def test_a_call_that_cannot_have_its_least_tokens_ends_the_run_without_the_latch(provider):
    make_price(MODEL, input_usd="0", output_usd="1000")
    session = make_session(current_phase=Phase.TURN, max_cost_usd=Decimal("0.1"))
    with pytest.raises(BudgetExceeded) as exceeded:
        run(session)
    session.refresh_from_db()
    assert exceeded.value.dimension == "cost"
    assert not session.cost_cap_reached
    assert refusals(session) == [("dimension:cost", "session")]
    assert provider.requests == []


def test_real_spending_that_uses_up_the_cap_stops_the_next_call():
    make_price(MODEL, input_usd="10", output_usd="10", overhead_tokens=100)
    session = make_session(current_phase=Phase.TURN, max_cost_usd=Decimal("0.05"))
    with script(Step("long", usage=Usage(200, 4_500))) as model:
        run(session, max_tokens=4_600)
        with pytest.raises(BudgetExceeded) as exceeded:
            run(session)
    assert len(model.requests) == 1
    needed, left = re.search(r"could cost up to (\S+) USD; (\S+) USD was left", str(exceeded.value)).groups()
    details = AuditEvent.objects.get(chain=session.chain, details__outcome="denied").details
    spent = Decimal("0.047")
    assert Decimal(left) == Decimal("0.05") - spent
    assert Decimal(details["projected_usd"]) == spent + Decimal(needed)
    assert Decimal(details["cap_usd"]) == Decimal("0.05")


def test_a_token_budget_that_is_used_up_stops_the_next_call():
    make_price(MODEL, overhead_tokens=1_000)
    session = make_session(current_phase=Phase.TURN, token_budget=1_000)
    with script(Step("x", usage=Usage(900, 100))) as model:
        run(session)
        with pytest.raises(BudgetExceeded) as exceeded:
            run(session)
    assert exceeded.value.dimension == "tokens"
    assert len(model.requests) == 1


def test_money_held_by_calls_in_flight_makes_a_call_wait_and_not_end(provider):
    make_price(MODEL, input_usd="0", output_usd="10")
    session = make_session(current_phase=Phase.TURN, max_cost_usd=Decimal("0.02"), cost_held_usd=Decimal("0.0199"))
    result = run(session)
    session.refresh_from_db()
    assert (result.outcome, result.detail) == (Outcome.DENIED, "budget_busy")
    assert refusals(session) == [("budget_busy", "session")]
    assert session.halt_state == HaltState.RUNNING
    AgentSession.objects.update(cost_held_usd=0)
    assert run(session).ok


@pytest.mark.sampled(6)
@pytest.mark.parametrize("period", list(BudgetPeriod))
@pytest.mark.parametrize("scope", list(BudgetScope))
def test_a_shared_budget_refuses_without_latching_and_says_which_and_until_when(scope, period, provider):
    make_price(MODEL, input_usd="0", output_usd="0")
    rows = {"agent": make_agent(), "trigger": make_trigger(), "project": make_project(), "owner": make_user()}
    session = make_session(current_phase=Phase.TURN, **rows)
    subject = rows[scope].pk if scope in rows else 0
    capped = {"scope": scope, "subject_id": subject, "period": period}
    budget_set_cap(**capped, cap_usd=Decimal("0.012"), by=None, now=NOW)
    run(session)
    run(session)
    with pytest.raises(BudgetRefused) as refused:
        run(session)
    session.refresh_from_db()
    name = f"{scope}:{subject}" if subject else str(scope)
    name = f"{name}/month" if period == BudgetPeriod.MONTH else name
    assert refused.value.budget == name
    reset = NOW.replace(month=NOW.month + 1, day=1) if period == BudgetPeriod.MONTH else NOW + timedelta(days=1)
    assert refused.value.resets_at == datetime(reset.year, reset.month, reset.day, tzinfo=UTC)
    assert refusals(session) == [("budget_spent", name)]
    assert not session.cost_cap_reached
    assert len(provider.requests) == 2


def test_the_books_of_every_scope_show_both_ledgers(provider):
    make_price(MODEL, input_usd="10", output_usd="10", overhead_tokens=100)
    session = make_session(current_phase=Phase.TURN, agent=make_agent(), trigger=make_trigger())
    run(session)
    books = Budget.objects.values_list("charged_usd", "actual_usd", "reserved_usd", "held_usd")
    assert len(books) == 3
    assert set(books) == {(Decimal("0.005"), Decimal("0.0002"), 0, 0)}


def test_one_warning_when_a_budget_reaches_80_percent(provider):
    make_price(MODEL, input_usd="0", output_usd="0")
    session = make_session(current_phase=Phase.TURN, max_cost_usd=Decimal("0.05"))
    for _ in range(10):
        run(session)
    warned = AuditEvent.objects.filter(chain=session.chain, kind="budget.warned")
    assert [(row.details["budget"], row.details["spent_usd"]) for row in warned] == [("session", "0.040000")]
    with pytest.raises(CostCapReached):
        run(session)


def test_a_model_without_a_price_is_never_contacted(provider):
    session = make_session(current_phase=Phase.TURN)
    with pytest.raises(UnpricedModel):
        run(session)
    assert provider.requests == []
    assert refusals(session) == [("unpriced_model", None)]


def test_a_declared_price_of_zero_runs_free_of_real_cost(provider):
    make_price(MODEL, input_usd="0", output_usd="0")
    session = make_session(current_phase=Phase.TURN)
    assert run(session).ok
    session.refresh_from_db()
    assert session.cost_actual_usd == 0


def test_a_provider_that_bills_beyond_its_bound_is_stopped_after_exactly_one_call():
    make_price(MODEL, input_usd="1", output_usd="1")
    liar = make_session(current_phase=Phase.TURN)
    other = make_session(current_phase=Phase.TURN)
    with script(Step("x", usage=Usage(10, 5_000_000))) as model:
        with pytest.raises(BudgetExceeded):
            run(liar)
        with pytest.raises(ModelSuspended):
            run(other)
        assert len(model.requests) == 1
    liar.refresh_from_db()
    assert liar.cost_actual_usd == Decimal("5.00001")  # booked in full
    assert (liar.halt_state, liar.terminal_reason) == (HaltState.HALTED, TerminalReason.BUDGET_EXCEEDED)
    assert SuspendedModel.objects.get().model == MODEL
    assert AuditEvent.objects.filter(chain=liar.chain, kind="model.suspended").count() == 1
    assert refusals(other) == [("model_suspended", None)]


def test_an_operator_lets_a_suspended_model_be_called_again(provider):
    make_price(MODEL)
    SuspendedModel.objects.create(model=MODEL, bound_usd=1, actual_usd=2)
    session = make_session(current_phase=Phase.TURN)
    with pytest.raises(ModelSuspended):
        run(session)
    assert model_accept(model=MODEL, actor="user:1", now=NOW)
    assert not model_accept(model=MODEL, actor="user:1", now=NOW)
    assert run(session).ok


# --- Asking beforehand ---


def can(session, intent=ToolIntent.RUN_SKILL, params=None):
    before = AuditEvent.objects.count()
    answer = can_be_paid(session, intent, ask() if params is None else params)
    assert (AuditEvent.objects.count(), ToolCall.objects.count()) == (before, 0), "it only asks"
    return answer


def test_call_that_would_pass_can_be_paid():
    make_price(MODEL)
    assert can(make_session(max_cost_usd=Decimal(1)))


def test_call_that_would_pass_the_cap_cannot_be_paid():
    make_price(MODEL)
    session = make_session(max_cost_usd=Decimal("0.01"), cost_total_usd=Decimal("0.009"))
    assert not can(session)
    session.refresh_from_db()
    assert not session.cost_cap_reached


def test_call_with_room_for_less_than_half_of_its_answer_cannot_be_paid():
    make_price(MODEL, output_usd="1000")
    long = ask(max_tokens=1_000)
    assert not can(make_session(max_cost_usd=Decimal("0.4")), params=long)
    assert can(make_session(max_cost_usd=Decimal("0.7")), params=long)


def test_money_that_other_calls_hold_can_be_paid_later():
    make_price(MODEL)
    assert can(make_session(max_cost_usd=Decimal("0.01"), cost_held_usd=Decimal("0.00999")))


def test_what_asks_no_model_or_one_without_a_price_is_no_question_of_money():
    session = make_session(max_cost_usd=Decimal(0))
    assert can(session, ToolIntent.EMIT_FINDING, {"title": "A", "content": "B"})
    assert can(session)


def test_call_that_only_a_cheaper_fallback_leaves_room_for_can_be_paid(settings):
    make_price(MODEL, output_usd="1000")
    make_price("cheap")
    session, long = make_session(max_cost_usd=Decimal("0.4")), ask(max_tokens=1_000)
    assert not can(session, params=long)
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", "fallback": ["cheap"]}}
    assert can(session, params=long)
