"""Tools that sensors poll: through the guard, under the day's sensor session, or not at all."""

import pytest

from agents.conf import clock
from agents.enums import ApprovalMode, Mode, SensorState, Status, WaitingOn
from agents.models import AgentSession, Approval, SkillSetting, ToolCall
from agents.sensors.rows import sensors_start
from agents.skills.registry import installed_skills
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _skills(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    installed_skills.cache_clear()
    yield
    installed_skills.cache_clear()


def session_of(scene):
    return AgentSession.objects.get(agent=scene.agent, mode=Mode.SENSOR)


def test_tool_is_polled_through_the_guard_at_its_interval():
    scene = Scene(poll(tool="look", params={"place": "here"}), fields={"value": "object"})
    with running_slice(time_scale=0.1):
        until(lambda: ToolCall.objects.filter(session__agent=scene.agent).count() >= 4)

    assert scene.value("value") == {"seen": "here"}
    calls = ToolCall.objects.filter(session=session_of(scene))
    assert {(call.name, call.outcome, call.phase) for call in calls[:3]} == {("look", "success", "turn")}


def test_failing_tool_is_called_again_each_time():
    scene = Scene(poll(tool="fail", params={"words": "no luck"}), fields={"value": "object"})
    with running_slice(time_scale=0.05):
        until(lambda: scene.sensor().failures >= 3)

    assert "no luck" in scene.sensor().problem
    assert ToolCall.objects.filter(session=session_of(scene), outcome="error").count() >= 3


@pytest.mark.parametrize(
    ("source", "state", "problem"),
    [
        ({"tool": "absent"}, SensorState.UNRESOLVED, "the tool absent is not installed"),
        ({"tool": "echo", "params": {"texts": "x"}}, SensorState.INVALID, "echo cannot be called like this"),
        ({"tool": "act", "params": {"what": "x"}}, SensorState.INVALID, "has side effects"),
        ({"tool": "reign"}, SensorState.INVALID, "needs approval for each call"),
    ],
)
def test_unsuitable_tool_is_rejected_and_others_run(source, state, problem):
    scene = Scene(
        poll(**source), poll(name="other", tool="look", updates=["b"]), fields={"value": "object", "b": "object"}
    )
    with running_slice():
        until(lambda: scene.value("b") is not None)

    assert scene.sensor().state == state
    assert problem in scene.sensor().problem
    assert not AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR, tool_calls__name="act").exists()


def test_disabled_tool_is_not_polled_until_the_loop_restarts():
    SkillSetting.objects.create(name="look", enabled=False)
    scene = Scene(poll(tool="look"), fields={"value": "object"})
    with running_slice():
        until(lambda: scene.sensor().state == SensorState.UNRESOLVED)
    SkillSetting.objects.all().delete()
    sensors_start(scene.agent, clock())
    with running_slice():
        until(lambda: scene.value("value") is not None)


def test_call_that_needs_approval_asks_once(approver):
    scene = Scene(poll(tool="look"), fields={"value": "object"})
    with running_slice(time_scale=0.1):
        until(lambda: scene.value("value") is not None)
        type(scene.agent).objects.filter(pk=scene.agent.pk).update(mode=ApprovalMode.MANUAL)
        until(lambda: scene.sensor().failures >= 3)

    assert scene.sensor().problem == "the call waits for approval"
    assert Approval.objects.filter(session=session_of(scene)).count() == 1


def test_call_with_unknown_outcome_parks_the_session(monkeypatch):
    monkeypatch.setattr(
        "agents.sensors.validation.tool_problem", lambda held, agent: None
    )  # it changed after it was checked
    scene = Scene(poll(tool="dawdle_and_act", params={"seconds": 0.5}), fields={"value": "object"})
    with running_slice(time_scale=0.1):
        until(lambda: scene.sensor().failures >= 2)

    session = session_of(scene)
    assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.OPERATOR)
    assert ToolCall.objects.filter(session=session).count() == 1
    assert "waits for operator" in scene.sensor().problem
