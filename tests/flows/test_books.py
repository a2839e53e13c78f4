"""The books equal what the provider reported, to the micro-dollar, however its calls end."""

import random
from decimal import Decimal
from unittest.mock import patch

import pytest

from agents.enums import ToolIntent
from agents.exceptions import RetryLater
from agents.guard import guarded_tool_call
from agents.ledger.budgets import budget_set_cap
from agents.ledger.outages import outage_try_now
from agents.models import Budget, InferenceLog, ToolCall
from agents.policy.costs import cost_of
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.types import Price, Usage
from tests.factories import NOW, make_agent, make_price, make_session
from tests.serving import serving

pytestmark = pytest.mark.django_db

MODEL = "test-model"
PRICE = Price(MODEL, Decimal("0.15"), Decimal("0.60"))


def scripted(rng, calls):
    """Successes, failures that report, rejections; each with the usage that the provider says it had."""
    steps = []
    for _ in range(calls):
        usage = Usage(rng.randint(0, 400), rng.randint(0, 64))
        kind = rng.random()
        if kind < 0.8:
            steps.append(Step("ok", usage=usage))
        elif kind < 0.9:
            fault = rng.choice([Fault.SERVER, Fault.TIMEOUT, Fault.INVALID_REQUEST])
            steps.append(Step(usage=usage, error=ProviderError("x", fault=fault, usage=usage)))
        else:
            rejected = ProviderError("429", fault=Fault.RATE_LIMITED, usage=Usage(0, 0))
            steps.append(Step(usage=Usage(0, 0), error=rejected))
    return steps


def many_calls(count, seed):
    rng = random.Random(seed)
    make_price(MODEL, input_usd="0.15", output_usd="0.60", overhead_tokens=400)
    agent = make_agent()
    for scope, subject in (("installation", 0), ("agent", agent.pk)):
        budget_set_cap(scope=scope, subject_id=subject, cap_usd=Decimal(10_000), by=None, now=NOW)
    sessions = [make_session(agent=agent, owner=agent.owner, max_cost_usd=Decimal(1_000)) for _ in range(5)]
    steps = scripted(rng, count)
    asked = {"model": MODEL, "prompt": "Is it in order?", "max_tokens": 64}
    with serving(MODEL, ScriptedProvider(steps)) as model, patch("agents.guard.metering.Meter._wait"):
        number = 0
        while len(model.requests) < count:
            number += 1
            try:
                guarded_tool_call(sessions[number % 5], ToolIntent.RUN_SKILL, asked, key=f"call:{number}", now=NOW)
            except RetryLater:
                outage_try_now(MODEL, now=NOW)
    played = [steps[min(n, count - 1)].usage for n in range(len(model.requests))]
    reported = sum((cost_of(PRICE, usage) for usage in played), Decimal(0))
    for session in sessions:
        session.refresh_from_db()
        mine = ToolCall.objects.filter(session=session)
        assert session.cost_actual_usd == sum(call.actual_usd for call in mine)
        assert session.cost_total_usd == sum(call.charged_usd for call in mine)
        assert session.cost_reserved_usd == session.cost_held_usd == 0
    assert sum(session.cost_actual_usd for session in sessions) == reported
    assert InferenceLog.objects.count() == len(model.requests)
    for budget in Budget.objects.all():
        assert budget.actual_usd == reported
        assert budget.charged_usd == sum(session.cost_total_usd for session in sessions)
    return reported


def test_the_books_equal_the_reported_usage():
    assert many_calls(40, seed=7) > 0


@pytest.mark.stress
def test_the_books_equal_the_reported_usage_over_ten_thousand_calls():
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}: {many_calls(10_000, seed)} USD")
