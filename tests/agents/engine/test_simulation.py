"""Predictions before dangerous calls never end, block or starve the run."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.core.cache import cache

from agents.engine.loop import Answered
from agents.engine.skills import ARGUMENT_CHARS, SEARCH, SIMULATION_PREFIX, SKIPPED, SkillExecutor, anticipate
from agents.enums import BudgetScope, Outcome, Phase, Purpose, Risk, ToolIntent, WaitingOn
from agents.exceptions import BudgetRefused, LeaseLost, SessionHalted, ToolNotGranted
from agents.guard import guarded_tool_call
from agents.ledger.budgets import budget_set_cap
from agents.models import Approval, InferenceLog, SuspendedModel, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider
from agents.sessions.approval_rules import rule_create
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.halts import session_halt
from agents.skills.parsing import SkillCall
from agents.skills.registry import installed_skills, skill_named
from agents.types import Usage, Waiting
from tests.agents.skills import samples
from tests.factories import NOW, make_session, make_user
from tests.serving import serving

from .conftest import MODEL, Step, calls, script

pytestmark = pytest.mark.django_db

ACTS = calls('act(what="it")')
DONE = Step("All done.")


@pytest.fixture(autouse=True)
def frozen():
    with time_machine.travel(NOW, tick=False) as clock:
        yield clock


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


# --- Asked once ---


def small_model(settings, monkeypatch):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": ["another"]}


def description(settings, monkeypatch):
    monkeypatch.setattr(samples, "act", replace(samples.act, description="Changes the world, better said."))
    installed_skills.cache_clear()


@pytest.mark.parametrize("changed", [small_model, description])
def test_changes_during_an_approval_repeat_no_prediction(loop, messages, approver, changed, settings, monkeypatch):
    with script(ACTS, Step("risky"), DONE) as model:
        assert loop().run() == Waiting(WaitingOn.APPROVAL)
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, digest=ticket.digest, by=approver, now=NOW)
        changed(settings, monkeypatch)
        assert loop().run() == Answered("All done.")

    assert messages(role="tool")[0].content == f"did it\n{SIMULATION_PREFIX}risky"
    assert len(model.requests) == 3


def test_lost_prediction_is_not_requested_again(loop, unattended, messages):
    def lost():
        ToolCall.objects.filter(key="step:call_1_1:simulation").update(outcome=Outcome.WORKER_LOST, settled_at=NOW)
        raise KeyboardInterrupt

    with script(ACTS, Step("never heard", before_reply=lost), DONE) as model:
        with pytest.raises(KeyboardInterrupt):
            loop().run()
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == "did it"
    assert len(model.requests) == 3


# --- The same question in another run: its process knows nothing of the first ---


def predict(session, *, key="step:1:simulation", what="it", context="It is late."):
    skill = skill_named("act")
    return anticipate(session, skill, {"what": what}, context=context, key=key)


def another(session, **fields):
    return make_session(
        **{"owner": session.owner, "agent": session.agent, "mode": session.mode, "max_cost_usd": 5, **fields}
    )


def test_the_same_question_is_answered_from_the_journal_of_another_run(session):
    with script(Step("risky"), Step("harmless")) as model:
        first = predict(session)
        cache.clear()  # what a process keeps in memory, another does not have
        assert predict(another(session)) == first == f"{SIMULATION_PREFIX}risky"
        assert predict(session, key="step:2:simulation") == first
    assert len(model.requests) == simulated() == 1


def of_another_owner(session, clock):
    return {"session": another(session, owner=make_user())}


def with_other_arguments(session, clock):
    return {"session": another(session), "what": "them"}


def in_another_context(session, clock):
    return {"session": another(session), "context": "It is early."}


def five_minutes_later(session, clock):
    clock.shift(timedelta(minutes=5))
    return {"session": another(session)}


def after_one_that_failed(session, clock):
    ToolCall.objects.update(outcome=Outcome.ERROR)
    return {"session": another(session)}


@pytest.mark.parametrize(
    "changed",
    [of_another_owner, with_other_arguments, in_another_context, five_minutes_later, after_one_that_failed],
)
def test_another_question_is_asked(session, frozen, changed):
    with script(Step("risky"), Step("harmless")) as model:
        predict(session)
        given = changed(session, frozen)
        assert predict(given.pop("session"), **given) == f"{SIMULATION_PREFIX}harmless"
    assert len(model.requests) == 2


# --- Nothing is paid for a call that is not made ---


def denied_by_a_rule(session, by):
    rule_create(by=None, now=NOW, name="Nobody acts", effect="deny", skill="act")


def denied_by_a_person(session, by):
    params = {"skill": "act", "arguments": {"what": "it"}}
    before = guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key="before", risk=Risk.HIGH, now=NOW)
    ticket = Approval.objects.get(public_id=before.data["approval_id"])
    approval_reject(ticket.pk, by=by, digest=ticket.digest, now=NOW)


def not_granted(session, by):
    type(session).objects.filter(pk=session.pk).update(current_phase=Phase.INTAKE)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("why", [denied_by_a_rule, denied_by_a_person, not_granted, None])
def test_call_that_is_denied_anyway_is_not_predicted(session, approver, why):
    if why is not None:
        why(session, approver)
    session.refresh_from_db()
    asked = []

    def predict(*given, **more):
        asked.append(given)
        return ""

    executor = SkillExecutor(dict(installed_skills()), predict, session=session)
    with suppress(ToolNotGranted):
        result = executor.execute_one("k", SkillCall("act", {"what": "it"}))
        assert result.failed == (why is not None)
    assert len(asked) == (why is None)


@pytest.mark.parametrize("is_denied", [True, False])
def test_search_that_is_denied_pays_for_no_vector(session, is_denied, monkeypatch):
    if is_denied:
        rule_create(by=None, now=NOW, name="Nobody searches", effect="deny", skill=SEARCH)
    asked = []
    monkeypatch.setattr("agents.engine.skills.fetch_query_vector", lambda *given, **_: asked.append(given))
    executor = SkillExecutor(dict(installed_skills()), session=session)
    result = executor.execute_one("k", SkillCall(SEARCH, {"query": "what"}))
    assert (result.failed, len(asked)) == (is_denied, not is_denied)


def test_arguments_that_hold_a_secret_are_not_predicted(session):
    asked = []
    executor = SkillExecutor(dict(installed_skills()), lambda *given, **_: asked.append(given) or "", session=session)
    result = executor.execute_one("k", SkillCall("act", {"what": f"sk-{'a1B2' * 12}"}))
    assert ("secret" in result.error, asked) == (True, [])


# --- A missing prediction does not stop the run ---


def unpriced(settings, session):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": ["nobody-knows"]}


def unreadable_name(settings, session):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": ["a name with spaces"]}


def suspended(settings, session):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [f"{MODEL}-small"]}
    SuspendedModel.objects.create(model=f"{MODEL}-small", bound_usd=1, actual_usd=2)


@pytest.mark.parametrize("prepare", [unpriced, unreadable_name, suspended])
def test_unusable_small_model_skips_the_prediction(loop, unattended, messages, settings, prepare):
    prepare(settings, unattended)
    with script(ACTS, DONE):
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == "did it"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", sorted(set(Fault) - {Fault.FORM}))
def test_failing_small_model_is_not_retried(loop, unattended, messages, settings, fault):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [f"{MODEL}-small"]}
    failing = ScriptedProvider([Step(error=ProviderError("no", fault=fault))])
    with script(ACTS, DONE), serving(f"{MODEL}-small", failing) as small:
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == "did it"
    assert len(small.requests) == 1


def test_prediction_leaves_the_daily_budget_to_the_run(loop, unattended, messages):
    cap, agent = Decimal("0.011"), unattended.agent_id  # two questions, and nothing besides
    budget_set_cap(scope=BudgetScope.AGENT, subject_id=agent, cap_usd=cap, by=None, now=NOW)
    with script(ACTS, DONE):
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == f"did it\n{SKIPPED}"
    assert simulated() == 0


def test_free_skill_runs_after_the_daily_budget_is_used_up(loop, unattended, messages):
    cap, agent = Decimal("0.006"), unattended.agent_id
    budget_set_cap(scope=BudgetScope.AGENT, subject_id=agent, cap_usd=cap, by=None, now=NOW)
    with script(ACTS, DONE), pytest.raises(BudgetRefused):
        loop().run()
    assert messages(role="tool")[0].content == f"did it\n{SKIPPED}"


@pytest.mark.parametrize(
    ("cap", "text"), [("0.012", f"did it\n{SKIPPED}"), ("0.015", f"did it\n{SIMULATION_PREFIX}fine")]
)
def test_prediction_leaves_money_for_another_request(loop, unattended, messages, cap, text):
    change(unattended, max_cost_usd=Decimal(cap))
    steps = [ACTS, DONE] if SKIPPED in text else [ACTS, Step("fine"), DONE]
    with script(*steps):
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == text


def test_prediction_leaves_tokens_for_another_request(loop, unattended, messages):
    change(unattended, token_budget=1_000)
    with script(replace(ACTS, usage=Usage(200, 200)), DONE):
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == f"did it\n{SKIPPED}"


def test_prediction_is_made_when_the_budget_suffices(loop, unattended, messages):
    change(unattended, token_budget=100_000)
    with script(ACTS, Step("fine"), DONE):
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == f"did it\n{SIMULATION_PREFIX}fine"
    assert simulated() == 1


def test_halt_during_a_prediction_stops_the_run(loop, unattended):
    def halt():
        session_halt(unattended.pk, by=None, reason="enough", now=NOW)

    with script(ACTS, Step("fine", before_reply=halt)), pytest.raises(SessionHalted):
        loop().run()
    assert not ToolCall.objects.filter(name="act").exists()


def test_lease_lost_during_a_prediction_stops_the_work(loop, unattended):
    with (
        script(ACTS, Step("fine", before_reply=lambda: change(unattended, fencing=99))),
        pytest.raises(LeaseLost),
    ):
        loop().run()
    assert not ToolCall.objects.filter(name="act").exists()


def test_prediction_prompt_truncates_long_arguments(loop, unattended):
    with script(calls(f'act(what="{"x" * 9_000}")'), Step("fine"), DONE) as model:
        loop().run()
    asked = model.requests[1].messages[0]["content"]
    assert ARGUMENT_CHARS < len(asked) < ARGUMENT_CHARS + 1_500
