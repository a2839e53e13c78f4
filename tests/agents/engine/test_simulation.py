"""Predictions before dangerous calls: advice that never ends, stalls or starves the run that it is about."""

from dataclasses import replace
from decimal import Decimal

import pytest
import time_machine
from django.core.cache import cache

from agents.engine.loop import Answered
from agents.engine.skills import ARGUMENT_CHARS, PREFIX, SKIPPED
from agents.enums import BudgetScope, Outcome, Purpose, WaitingOn
from agents.exceptions import BudgetRefused, LeaseLost, SessionHalted
from agents.ledger.budgets import budget_set_cap
from agents.models import Approval, InferenceLog, SuspendedModel, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.sessions.approvals import approval_approve
from agents.sessions.halts import session_halt
from agents.skills.registry import installed_skills
from agents.types import Usage, Waiting
from tests.agents.skills import samples
from tests.factories import NOW

from .conftest import MODEL, Step, calls, script

pytestmark = pytest.mark.django_db

ACTS = calls('act(what="it")')
DONE = Step("All done.")


@pytest.fixture(autouse=True)
def _time():
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.fixture
def unattended(session):
    """A session whose agent asks nobody."""
    session.agent.mode = "auto"
    session.agent.save()
    return session


def change(session, **fields):
    type(session).objects.filter(pk=session.pk).update(**fields)


def simulated():
    return InferenceLog.objects.filter(purpose=Purpose.SIMULATION).count()


# --- What was asked is not asked again ---


def small_model(settings, monkeypatch):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": ["another"]}


def description(settings, monkeypatch):
    monkeypatch.setattr(samples, "act", replace(samples.act, description="Changes the world, better said."))
    installed_skills.cache_clear()


@pytest.mark.parametrize("changed", [small_model, description])
def test_what_changes_while_a_person_decides_does_not_matter(loop, said, approver, changed, settings, monkeypatch):
    with script(ACTS, Step("risky"), DONE) as model:
        assert loop().run() == Waiting(WaitingOn.APPROVAL)
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, digest=ticket.digest, by=approver, now=NOW)
        changed(settings, monkeypatch)
        cache.clear()
        assert loop().run() == Answered("All done.")

    assert said(role="tool")[0].content == f"did it\n{PREFIX}risky"
    assert len(model.requests) == 3


def test_prediction_that_was_lost_with_its_worker_is_not_asked_for_again(loop, unattended, said):
    def lost():
        ToolCall.objects.filter(key="step:call_1_1:simulation").update(outcome=Outcome.WORKER_LOST, settled_at=NOW)
        raise KeyboardInterrupt

    with script(ACTS, Step("never heard", before_reply=lost), DONE) as model:
        with pytest.raises(KeyboardInterrupt):
            loop().run()
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == "did it"
    assert len(model.requests) == 3


# --- Nothing that keeps it from being made ends or stalls the run ---


def unpriced(settings, session):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": ["nobody-knows"]}


def unreadable_name(settings, session):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": ["a name with spaces"]}


def suspended(settings, session):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [f"{MODEL}-small"]}
    SuspendedModel.objects.create(model=f"{MODEL}-small", bound_usd=1, actual_usd=2)


@pytest.mark.parametrize("prepare", [unpriced, unreadable_name, suspended])
def test_small_model_that_cannot_be_asked_leaves_the_run_without_a_prediction(
    loop, unattended, said, settings, prepare
):
    prepare(settings, unattended)
    with script(ACTS, DONE):
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == "did it"


@pytest.mark.parametrize("fault", list(Fault))
def test_small_model_that_fails_is_not_waited_for(loop, unattended, said, fault):
    with script(ACTS, Step(error=ProviderError("no", fault=fault)), DONE) as model:
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == "did it"
    assert len(model.requests) == 3


def test_daily_budget_of_the_agent_is_kept_for_its_questions(loop, unattended, said):
    cap, agent = Decimal("0.011"), unattended.agent_id  # two questions, and nothing besides
    budget_set_cap(scope=BudgetScope.AGENT, subject_id=agent, cap_usd=cap, actor="system", now=NOW)
    with script(ACTS, DONE):
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == f"did it\n{SKIPPED}"
    assert simulated() == 0


def test_skill_that_costs_nothing_runs_though_the_day_s_budget_is_used_up(loop, unattended, said):
    cap, agent = Decimal("0.006"), unattended.agent_id
    budget_set_cap(scope=BudgetScope.AGENT, subject_id=agent, cap_usd=cap, actor="system", now=NOW)
    with script(ACTS, DONE), pytest.raises(BudgetRefused):
        loop().run()
    assert said(role="tool")[0].content == f"did it\n{SKIPPED}"


@pytest.mark.parametrize(("cap", "text"), [("0.012", f"did it\n{SKIPPED}"), ("0.015", f"did it\n{PREFIX}fine")])
def test_prediction_leaves_enough_of_the_session_s_money_for_another_question(loop, unattended, said, cap, text):
    change(unattended, max_cost_usd=Decimal(cap))
    steps = [ACTS, DONE] if SKIPPED in text else [ACTS, Step("fine"), DONE]
    with script(*steps):
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == text


def test_prediction_leaves_tokens_for_another_question(loop, unattended, said):
    change(unattended, token_budget=1_000)
    with script(replace(ACTS, usage=Usage(200, 200)), DONE):
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == f"did it\n{SKIPPED}"


def test_prediction_is_made_where_there_is_enough_of_everything(loop, unattended, said):
    change(unattended, token_budget=100_000)
    with script(ACTS, Step("fine"), DONE):
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == f"did it\n{PREFIX}fine"
    assert simulated() == 1


def test_halt_during_a_prediction_is_a_halt(loop, unattended):
    def halt():
        session_halt(unattended.pk, by=None, reason="enough", now=NOW)

    with script(ACTS, Step("fine", before_reply=halt)), pytest.raises(SessionHalted):
        loop().run()
    assert not ToolCall.objects.filter(name="act").exists()


def test_lease_that_is_lost_during_a_prediction_ends_the_work(loop, unattended):
    with (
        script(ACTS, Step("fine", before_reply=lambda: change(unattended, fencing=99))),
        pytest.raises(LeaseLost),
    ):
        loop().run()
    assert not ToolCall.objects.filter(name="act").exists()


def test_long_arguments_are_shown_in_part(loop, unattended):
    with script(calls(f'act(what="{"x" * 9_000}")'), Step("fine"), DONE) as model:
        loop().run()
    asked = model.requests[1].messages[0]["content"]
    assert ARGUMENT_CHARS < len(asked) < ARGUMENT_CHARS + 1_500
