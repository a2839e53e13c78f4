"""Skills and the step loop through real processes and connections: limits, groups, caps."""

import threading
import time
from decimal import Decimal

import pytest

from agents.conf import clock
from agents.engine.skills import SkillExecutor
from agents.enums import Mode, Outcome, Phase, Status, ToolIntent
from agents.exceptions import CostCapReached
from agents.guard import guarded_group, guarded_tool_call
from agents.guard.calls import plan_call
from agents.models import AgentSession, SkillCount, ToolCall
from agents.providers.scripted import Step
from agents.skills.parsing import parse_skill_calls
from agents.skills.registry import installed_skills
from agents.skills.running import MAX_PARALLEL
from audit.models import SkillAudit
from audit.verify import verify_log
from tests.agents.conftest import MODEL, script
from tests.agents.skills import samples
from tests.factories import NOW, make_agent, make_price, make_session
from tests.flows.processes import Worker, in_threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _sample_skills(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "main": [MODEL], "small": [MODEL]}
    installed_skills.cache_clear()
    yield
    installed_skills.cache_clear()


def skill_call(session, skill, key, **arguments):
    asked = {"skill": skill, "arguments": arguments}
    return plan_call(session, ToolIntent.RUN_SKILL, asked, key=key, now=clock())


def working(**fields):
    agent = make_agent(mode="auto", waived_skills=["reign"])
    return make_session(Status.RUNNING, mode=Mode.CHAT, current_phase=Phase.TURN, agent=agent, **fields)


def test_forty_calls_at_once_over_two_workers_run_twenty_times():
    sessions = [working() for _ in range(40)]
    pks = [session.pk for session in sessions]

    workers = [Worker("reign", session_pks=part, at=NOW) for part in (pks[:20], pks[20:])]
    outcomes = [outcome for worker in workers for outcome in worker.result()]

    assert sorted(outcomes) == ["rate_limited"] * 20 + ["success"] * 20
    assert SkillCount.objects.values_list("used", "refused").get() == (20, 20)
    assert ToolCall.objects.filter(name="reign", outcome=Outcome.SUCCESS).count() == 20
    assert SkillAudit.objects.filter(skill_name="reign").count() == 40
    assert verify_log().verified


def test_skills_of_a_group_run_at_once():
    session = working()
    asked = [skill_call(session, "meet", f"step:1:{name}", name=name) for name in "abc"]

    results = guarded_group(asked)

    assert [result.data for result in results] == ["a", "b", "c"]


def test_group_of_more_than_may_run_at_once_runs_in_waves_and_keeps_its_order(monkeypatch):
    session, group = working(), [f"call {number:02}" for number in range(MAX_PARALLEL + 4)]
    monkeypatch.setattr(samples, "meeting", threading.Barrier(4, timeout=60))
    asked = [skill_call(session, "meet", f"step:1:{place}", name=name) for place, name in enumerate(group)]

    results = guarded_group(asked)

    assert [result.data for result in results] == group


def test_each_call_of_a_group_has_its_own_duration():
    session = working()
    asked = '<skill>dawdle(seconds=30)</skill><skill>wait_a_second(name="a")</skill><skill>look()</skill>'
    calls = parse_skill_calls(f"<parallel>{asked}</parallel>")
    executor = SkillExecutor(installed_skills(), session=session)

    results = executor.execute_batch([(f"step:1:{call.name}", call) for call in calls])

    (_, cut), (_, slow), (_, quick) = results
    assert (cut.output, cut.error) == (None, "TimeoutError: dawdle exceeded its timeout of 0.2 s")
    assert cut.metadata["duration_ms"] >= 200
    assert quick.metadata["duration_ms"] < 1_000 <= slow.metadata["duration_ms"]


@pytest.mark.stress
def test_three_skills_of_a_second_each_take_less_than_two_together():
    session = working()
    asked = [skill_call(session, "wait_a_second", f"step:1:{name}", name=name) for name in "abc"]
    began = time.monotonic()
    results = guarded_group(asked)
    took = time.monotonic() - began

    assert [result.data for result in results] == ["a", "b", "c"]
    assert 1 <= took < 2


def test_group_that_the_cap_does_not_cover_stops_before_anything_leaves():
    make_price(MODEL, input_usd="0", output_usd="10")
    session = working(max_cost_usd=Decimal("0.012"))  # two estimates of 0.005, and not three
    asked = [skill_call(session, "wonder", f"step:1:{name}", about=name) for name in "abc"]
    done = skill_call(session, "look", "step:1:done", place="here")
    guarded_tool_call(session, done.intent, done.arguments, key=done.key)
    with script(Step("well")) as model, pytest.raises(CostCapReached):
        guarded_group([done, *asked])

    assert model.requests == []
    session = AgentSession.objects.get(pk=session.pk)
    assert session.cost_cap_reached
    assert (session.cost_total_usd, session.cost_reserved_usd, session.cost_held_usd) == (0, 0, 0)
    made = ToolCall.objects.exclude(key=done.key)
    assert set(made.values_list("outcome", "detail")) == {("skipped", "group_stopped")}


def test_the_same_calls_singly_run_until_the_cap():
    make_price(MODEL, input_usd="0", output_usd="10")
    session = working(max_cost_usd=Decimal("0.012"))
    with script(Step("well")) as model:
        for name in "ab":
            params = {"skill": "wonder", "arguments": {"about": name}}
            assert guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=f"step:{name}").ok
        with pytest.raises(CostCapReached):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key="step:c")
    assert len(model.requests) == 2


def test_threads_of_one_session_count_as_one_another():
    session = working()
    results = in_threads(
        24,
        lambda number: (
            guarded_tool_call(
                session, ToolIntent.RUN_SKILL, {"skill": "reign", "arguments": {}}, key=f"step:{number}", now=NOW
            ).outcome
        ),
    )
    assert results.count(Outcome.SUCCESS) == 20
    assert threading.active_count() < 50
