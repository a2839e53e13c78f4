"""set_state, through the guard: an agent writes the fields that were declared for it, and no others."""

import pytest

from agents.enums import Outcome, Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.loop.state import STATE_VALUE_BYTES
from agents.models import AgentSession, ToolCall
from tests.factories import NOW, make_agent, make_session

pytestmark = pytest.mark.django_db


def running(fields, mode="auto"):
    return make_session(
        Status.RUNNING,
        current_phase=Phase.ANALYSIS,
        agent=make_agent(mode=mode),
        params={"state_fields": fields} if fields is not None else {},
        metadata={"inputs": {"kept": True}},
    )


def put(session, name, value):
    params = {"skill": "set_state", "arguments": {"name": name, "value": value}}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, now=NOW)


def test_declared_field_is_set_and_others_stay():
    session = running(["mood", "seen"])

    assert put(session, "mood", "calm").data == {"state": {"mood": "calm"}}
    assert put(session, "seen", {"count": 3, "last": [1, 2.5, None, True]}).ok
    assert put(session, "mood", None).data["state"]["mood"] is None

    row = AgentSession.objects.get(pk=session.pk)
    assert row.metadata["state"] == {"mood": None, "seen": {"count": 3, "last": [1, 2.5, None, True]}}
    assert row.metadata["state_set_at"] == {"mood": NOW.isoformat(), "seen": NOW.isoformat()}
    assert row.metadata["inputs"] == {"kept": True}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["mood", "seen"], "There is no field 'plan' of the state: declared are mood, seen."),
        ([], "There is no field 'plan' of the state: none is declared for this run."),
        (None, "none is declared for this run."),
        ("plan", "none is declared for this run."),
        ([1, "mood"], "declared are mood."),
    ],
)
def test_refusal_of_an_undeclared_field_lists_declared_ones(fields, said):
    session = running(fields)

    refused = put(session, "plan", 1)

    assert refused.outcome == Outcome.ERROR
    assert refused.error.endswith(said)
    assert "state" not in AgentSession.objects.get(pk=session.pk).metadata


def test_value_size_is_bounded():
    session = running(["mood"])

    assert put(session, "mood", "x" * (STATE_VALUE_BYTES - 2)).ok
    refused = put(session, "mood", "ä" * (STATE_VALUE_BYTES // 2))

    assert refused.outcome == Outcome.ERROR
    assert f"is {STATE_VALUE_BYTES + 2} bytes long; at most {STATE_VALUE_BYTES} are kept" in refused.error
    assert AgentSession.objects.get(pk=session.pk).metadata["state"]["mood"].startswith("x")


def test_set_state_is_retried_after_a_crash():
    put(running(["mood"]), "mood", 1)

    assert ToolCall.objects.get().repeatable is True


def test_manual_mode_requires_approval(approver):
    assert put(running(["mood"], mode="manual"), "mood", 1).outcome == Outcome.APPROVAL_PENDING
