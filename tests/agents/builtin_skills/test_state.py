"""set_state, through the guard: an agent writes the declared fields of its loop, and no others."""

import pytest

from agents.enums import Mode, Outcome, Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import ToolCall
from tests.factories import NOW, make_agent, make_session

pytestmark = pytest.mark.django_db
DEFINITION = "hot_state: {fields: {mood: {type: string}}}"


def put(mode="auto", name="mood", session_mode=Mode.LOOP):
    agent = make_agent(mode=mode, definition=DEFINITION)
    session = make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=agent, mode=session_mode)
    params = {"skill": "set_state", "arguments": {"name": name, "value": "calm"}}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, now=NOW)


def test_declared_field_is_set_and_the_call_can_be_repeated_after_a_crash():
    assert put().data == {"state": {"mood": "calm"}}
    assert ToolCall.objects.get().repeatable is True


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": "plan"}, "There is no field 'plan' of the hot state: declared are mood."),
        ({"session_mode": Mode.PHASED}, "Only the loop of an agent has fields to set."),
    ],
)
def test_undeclared_field_and_run_without_a_loop_are_refused(given, error):
    refused = put(**given)

    assert refused.outcome == Outcome.ERROR
    assert refused.error.endswith(error)


def test_manual_mode_requires_approval(approver):
    assert put(mode="manual").outcome == Outcome.APPROVAL_PENDING
