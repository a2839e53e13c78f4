"""A model that is away or suspended: the models that are declared as its fallback are asked first."""

from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine

from agents.enums import Outcome, Status, ToolIntent
from agents.exceptions import ModelSuspended, RetryLater
from agents.guard import guard, guarded_tool_call, metering
from agents.guard.calls import plan_call
from agents.models import ModelOutage, SuspendedModel, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.leases import model_waiters_wake
from agents.types import Usage
from audit.models import AuditEvent
from audit.receipts import event_sentence
from tests.agents.conftest import MODEL, ask, script
from tests.factories import NOW, make_price, make_session, make_waiting_for_model
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "other-model"
DOWN = Step(error=ProviderError("503 from the model server", fault=Fault.SERVER, usage=Usage(0, 0)))
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
