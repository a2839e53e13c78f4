"""High-risk calls need approval in every mode, unless a superuser waived it for skills in mode auto."""

import pytest

from agents.enums import Outcome, Phase, Risk, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import Agent, Approval
from tests.agents.admin.rows import page, sign_in
from tests.factories import NOW, make_agent, make_session

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sample_skills")]


def outcome(agent, intent=ToolIntent.RUN_SKILL, params=None):
    phase = Phase.ANALYSIS if intent == ToolIntent.RUN_SKILL else Phase.DELIVERY
    session = make_session(Status.RUNNING, current_phase=phase, agent=agent)
    given = params or {"skill": "look", "arguments": {"place": "x"}}
    return guarded_tool_call(session, intent, given, key="a:1", risk=Risk.HIGH, now=NOW).outcome


@pytest.mark.parametrize(
    ("mode", "waived", "asks"),
    [("auto", False, True), ("auto", True, False), ("semi", True, True), ("manual", True, True)],
)
@pytest.mark.usefixtures("approver")
def test_mode_and_waiver_decide(mode, waived, asks):
    found = outcome(make_agent(mode=mode, allow_high_risk=waived))
    assert found == (Outcome.APPROVAL_PENDING if asks else Outcome.SUCCESS)


@pytest.mark.usefixtures("approver")
def test_waiver_is_read_when_the_call_is_made():
    agent = make_agent(mode="auto", allow_high_risk=True)
    Agent.objects.update(allow_high_risk=False)
    assert outcome(agent) == Outcome.APPROVAL_PENDING


@pytest.mark.usefixtures("approver")
def test_review_required_by_a_trigger_is_not_waived():
    notice = {"title": "Run completed", "body": "Concerns: 1."}
    agent = make_agent(mode="auto", allow_high_risk=True)
    assert outcome(agent, ToolIntent.NOTIFY, notice) == Outcome.APPROVAL_PENDING
    assert Approval.objects.get().risk_level == Risk.HIGH


@pytest.mark.parametrize(("role", "allowed"), [("operator", False), ("superuser", True)])
def test_only_superusers_may_set_the_waiver_on_the_page(client, role, allowed):
    user = sign_in(client) if role == "superuser" else sign_in(client, role)
    agent = make_agent(owner=user, mode="auto")
    given = {"name": agent.name, "mode": "auto", "enabled": "on", "allow_high_risk": "on"}

    client.post(page(Agent, "change", agent.pk), given)

    agent.refresh_from_db()
    assert agent.allow_high_risk == allowed
