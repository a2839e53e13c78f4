"""A model that is away, suspended or too dear, or whose key is refused: its fallbacks are asked first."""

from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine

from agents.enums import BudgetScope, Outcome, Status, ToolIntent
from agents.exceptions import (
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    ModelSuspended,
    RetryLater,
    SessionHalted,
)
from agents.guard import guard, guarded_tool_call, metering
from agents.guard.calls import plan_call
from agents.ledger.budgets import budget_set_cap
from agents.ledger.prices import invalidate_estimates, price_set
from agents.models import AgentSession, InferenceLog, ModelOutage, SuspendedModel, ToolCall
from agents.policy.costs import COLD_START_USD
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.leases import model_waiters_wake
from agents.types import Usage
from audit.models import AuditEvent
from audit.receipts import event_sentence, label_of
from tests.agents.conftest import MODEL, ask, script
from tests.factories import NOW, make_price, make_session, make_waiting_for_model
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "other-model"
DOWN = Step(error=ProviderError("503 from the model server", fault=Fault.SERVER, usage=Usage(0, 0)))
REFUSED = Step(error=ProviderError("401: the server refused the key in THE_KEY", fault=Fault.AUTH, usage=Usage(0, 0)))
ANSWER = Step("from the other one", usage=Usage(100, 100))


@pytest.fixture(autouse=True)
def _declared(settings, monkeypatch):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", "fallback": [OTHER]}}
    monkeypatch.setattr(metering.Meter, "_wait", lambda *_: None)
    make_price(MODEL, input_usd="1", output_usd="1")
    make_price(OTHER, input_usd="2", output_usd="2")
    with time_machine.travel(NOW, tick=False):
        yield


def call(session, key="turn:1"):
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key=key)


def test_a_run_goes_on_with_the_fallback_and_pays_its_price():
    session = make_session()
    with script(DOWN) as main, serving(OTHER, ScriptedProvider([ANSWER])) as other:
        result = call(session)
        assert (result.outcome, result.data["text"]) == (Outcome.SUCCESS, "from the other one")
        assert (len(main.requests), len(other.requests)) == (3, 1)
        assert other.requests[0].model == OTHER
        again = call(session, key="turn:2")
        assert (again.ok, len(main.requests)) == (True, 3), "a model that is away is not asked"
        assert call(session).replayed, "the same place of the run gets the same answer"
    session.refresh_from_db()
    assert session.cost_actual_usd == Decimal("0.0008")  # two calls of 200 tokens at 2 USD per million
    assert list(ToolCall.objects.order_by("pk").values_list("model", "attempt", "outcome")) == [
        (MODEL, 1, "gateway_error"),
        (OTHER, 2, "success"),
        (OTHER, 1, "success"),
    ]
    last = AuditEvent.objects.filter(kind="autonomous_session.tool_call").latest("id")
    assert last.details["instead_of"] == MODEL
    assert f"Model call to {OTHER} instead of {MODEL}" in event_sentence(last.kind, last.details)


def test_a_suspended_model_is_replaced_too():
    SuspendedModel.objects.create(model=MODEL, bound_usd=1, actual_usd=2, suspended_at=NOW)
    with serving(OTHER, ScriptedProvider([ANSWER])):
        assert call(make_session()).data["text"] == "from the other one"


def test_a_run_waits_for_its_own_model_when_the_fallback_is_away_as_well():
    with script(DOWN), serving(OTHER, ScriptedProvider([DOWN])), pytest.raises(RetryLater) as raised:
        call(make_session())
    assert raised.value.model == MODEL
    assert set(ModelOutage.objects.values_list("model", flat=True)) == {MODEL, OTHER}
    SuspendedModel.objects.create(model=MODEL, bound_usd=1, actual_usd=2, suspended_at=NOW)
    with pytest.raises(ModelSuspended):
        call(make_session())


def test_a_model_that_took_long_to_fail_leaves_its_fallback_to_the_next_slice(monkeypatch):
    monkeypatch.setattr(guard, "FALLBACK_SECONDS", 0)
    with script(DOWN), serving(OTHER, ScriptedProvider([ANSWER])) as other, pytest.raises(RetryLater):
        call(make_session())
    assert other.requests == []


def test_waiting_runs_go_on_as_soon_as_a_fallback_is_there():
    waiting = make_waiting_for_model(MODEL)
    away = ModelOutage.objects.create(model=OTHER, since=NOW, next_try_at=NOW + timedelta(hours=1))
    assert model_waiters_wake(NOW) == 0
    away.delete()
    assert model_waiters_wake(NOW) == 1
    waiting.refresh_from_db()
    assert waiting.status == Status.QUEUED


def test_a_group_of_calls_is_made_by_the_fallback_one_by_one():
    session = make_session()
    calls = [plan_call(session, ToolIntent.RUN_SKILL, ask(), key=f"turn:{number}", now=NOW) for number in (1, 2)]
    with script(DOWN), serving(OTHER, ScriptedProvider([ANSWER])) as other:
        results = guard.guarded_group(calls)
    assert [result.data["text"] for result in results] == ["from the other one"] * 2
    assert len(other.requests) == 2


def test_a_group_whose_model_is_away_waits_if_it_has_no_fallback(settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted"}}
    session = make_session()
    ModelOutage.objects.create(model=MODEL, since=NOW, next_try_at=NOW + timedelta(hours=1))
    calls = [plan_call(session, ToolIntent.RUN_SKILL, ask(), key=f"turn:{number}", now=NOW) for number in (1, 2)]
    with script(ANSWER) as main, pytest.raises(RetryLater):
        guard.guarded_group(calls)
    assert main.requests == []


# --- Too dear ---


def reprice(model, rate):
    price_set(model=model, input_usd=Decimal(rate), output_usd=Decimal(rate), overhead_tokens=0, actor="test", now=NOW)


@pytest.fixture
def dear():
    """The model costs a thousand times what its fallback does, and more than a run with a cap of 10 cents can pay."""
    reprice(MODEL, "1000")
    reprice(OTHER, "1")


def refusals(session):
    events = AuditEvent.objects.filter(chain=session.chain).order_by("id")
    return [(event.kind.removeprefix("autonomous_session."), event.details.get("detail")) for event in events]


def test_a_cheaper_fallback_answers_when_the_model_is_too_dear(dear):
    session = make_session(max_cost_usd=Decimal("0.10"))
    with script(ANSWER) as main, serving(OTHER, ScriptedProvider([ANSWER])) as other:
        assert call(session).data["text"] == "from the other one"
    assert (len(main.requests), len(other.requests)) == (0, 1)
    session.refresh_from_db()
    assert (session.cost_cap_reached, session.halt_state) == (False, "running")
    assert session.cost_actual_usd == Decimal("0.0002")
    assert refusals(session) == [("tool_call", "too_dear"), ("tool_call", None), ("tool_call", None)]
    refused = AuditEvent.objects.filter(chain=session.chain).earliest("id")
    assert (refused.details["model"], refused.details["outcome"]) == (MODEL, "denied")
    assert "too dear for what is left" in label_of("detail", refused.details["detail"])


def test_the_refusal_is_that_of_the_model_when_no_fallback_is_cheap_enough(dear):
    reprice(OTHER, "2000")
    session = make_session(max_cost_usd=Decimal("0.10"))
    with script(ANSWER) as main, serving(OTHER, ScriptedProvider([ANSWER])) as other, pytest.raises(BudgetExceeded):
        call(session)
    assert main.requests == other.requests == []
    assert refusals(session) == [("tool_call", "too_dear"), ("tool_call", "too_dear"), ("tool_call", "dimension:cost")]
    assert not ToolCall.objects.filter(session=session).exists()


def estimate(model, usd):
    for _ in range(5):
        InferenceLog.objects.create(
            model=model, purpose="autonomous_executor", cost_estimate=usd, created_at=NOW, outcome="success"
        )
    invalidate_estimates()


def test_the_cap_is_latched_only_when_no_fallback_serves():
    estimate(MODEL, Decimal("0.2"))
    estimate(OTHER, Decimal("0.04"))
    session = make_session(max_cost_usd=Decimal("0.10"))
    with serving(OTHER, ScriptedProvider([ANSWER])):
        assert call(session, "turn:1").ok
        assert call(session, "turn:2").ok
        session.refresh_from_db()
        assert not session.cost_cap_reached
        with pytest.raises(CostCapReached):
            call(session, "turn:3")
    session.refresh_from_db()
    assert (session.cost_cap_reached, session.halt_state) == (True, "halted")
    assert refusals(session)[-1] == ("cost_cap_reached", None)
    assert [kind for kind, _ in refusals(session)].count("cost_cap_reached") == 1
    invalidate_estimates()


def test_a_shared_budget_that_is_used_up_leaves_a_cheaper_fallback(dear):
    budget_set_cap(scope=BudgetScope.INSTALLATION, subject_id=0, cap_usd=Decimal("0.10"), by=None, now=NOW)
    with serving(OTHER, ScriptedProvider([ANSWER])):
        assert call(make_session()).ok
    reprice(OTHER, "2000")
    with pytest.raises(BudgetRefused):
        call(make_session())


def test_used_up_tokens_are_no_question_of_the_price():
    session = make_session(token_budget=10, total_tokens=10)
    with serving(OTHER, ScriptedProvider([ANSWER])) as other, pytest.raises(BudgetExceeded):
        call(session)
    assert (other.requests, refusals(session)) == ([], [("tool_call", "dimension:tokens")])


def test_a_halt_between_the_model_and_its_fallback_stops_the_run(dear, monkeypatch):
    session = make_session(max_cost_usd=Decimal("0.10"))
    refuse = guard.refuse_too_dear

    def halted_meanwhile(*arguments, **more):
        found = refuse(*arguments, **more)
        AgentSession.objects.filter(pk=session.pk).update(halt_state="halt_requested")
        return found

    monkeypatch.setattr(guard, "refuse_too_dear", halted_meanwhile)
    with serving(OTHER, ScriptedProvider([ANSWER])) as other, pytest.raises(SessionHalted):
        call(session)
    assert other.requests == []


def test_a_model_that_is_away_is_waited_for_when_its_fallback_is_too_dear(dear):
    reprice(MODEL, "1")
    reprice(OTHER, "1000")
    session = make_session(max_cost_usd=Decimal("0.10"))
    with script(DOWN), serving(OTHER, ScriptedProvider([ANSWER])), pytest.raises(RetryLater) as raised:
        call(session)
    assert raised.value.model == MODEL
    session.refresh_from_db()
    assert not session.cost_cap_reached


def test_a_group_that_is_too_dear_is_made_by_the_fallback(dear):
    session = make_session(max_cost_usd=Decimal("0.10"))
    calls = [plan_call(session, ToolIntent.RUN_SKILL, ask(), key=f"turn:{number}", now=NOW) for number in (1, 2)]
    with script(ANSWER), serving(OTHER, ScriptedProvider([ANSWER])) as other:
        results = guard.guarded_group(calls)
    assert ([result.ok for result in results], len(other.requests)) == ([True, True], 2)


# --- A key that is refused ---


def test_a_refused_key_is_answered_by_the_fallback_and_costs_nothing():
    session = make_session()
    with script(REFUSED) as main, serving(OTHER, ScriptedProvider([ANSWER])) as other:
        assert call(session).data["text"] == "from the other one"
        assert call(session).replayed
        assert (len(main.requests), len(other.requests)) == (1, 1)
    assert list(
        ToolCall.objects.order_by("pk").values_list("model", "attempt", "outcome", "detail", "charged_usd")
    ) == [
        (MODEL, 1, "gateway_error", "key_refused", Decimal(0)),
        (OTHER, 2, "success", "", COLD_START_USD),
    ]
    assert not ModelOutage.objects.exists(), "it will not mend itself"


def test_a_refused_key_fails_the_call_when_no_fallback_answers(settings):
    with script(REFUSED), serving(OTHER, ScriptedProvider([DOWN])):
        result = call(make_session())
    assert (result.outcome, result.detail) == (Outcome.GATEWAY_ERROR, "key_refused")
    assert "the server refused the key in THE_KEY" in result.error
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted"}}
    session = make_session()
    with script(REFUSED) as main:
        assert call(session).detail == "key_refused"
        assert call(session).replayed
    assert len(main.requests) == 1


@pytest.mark.parametrize("fallback", [[OTHER], []])
def test_calls_of_a_group_whose_key_is_refused_are_made_by_the_fallback(fallback, settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, MODEL: {"provider": "scripted", "fallback": fallback}}
    session = make_session()
    calls = [plan_call(session, ToolIntent.RUN_SKILL, ask(), key=f"turn:{number}", now=NOW) for number in (1, 2)]
    with script(ANSWER, REFUSED), serving(OTHER, ScriptedProvider([ANSWER])) as other:
        results = guard.guarded_group(calls)
    assert sorted(result.ok for result in results) == ([True, True] if fallback else [False, True])
    assert len(other.requests) == len(fallback)
