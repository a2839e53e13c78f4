"""The timeline of a session: approvals, calls, and an end by budget."""

from decimal import Decimal

import pytest

from agents.enums import TerminalReason, ToolIntent
from agents.guard.calls import plan_call
from agents.guard.refusals import refuse_unaffordable
from agents.models import AgentSession
from agents.policy.brakes import SpentUp
from agents.sessions.ending import session_finish
from audit import recorder
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.ask.rows import make_question
from tests.agents.conftest import ask
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db
CALL = "8a296ba9-0000-4000-8000-000000000001"


def show(client, session):
    return client.get(page(AgentSession, "change", session.pk))


def test_timeline_names_approvals_and_approvers(client):
    owner = sign_in(client)
    session = make_session(owner=owner)
    about = {"approval_id": str(make_approval(session, action="send_email").public_id), "digest": "d"}
    standing = {**about, "standing_id": "s1"}
    by = f"user:{owner.pk}"
    for kind, actor, details in (
        ("approval.standing_created", by, {**standing, "action": "drop_table", "uses": 3}),
        ("approval.approved", "system", standing),
        ("approval.consumed", "system", {**about, "call_id": CALL}),
        ("approval.cancelled", "system", {**about, "cause": "halt"}),
    ):
        recorder.append(session.chain, kind, now=NOW, actor=actor, details=details)
    skill = {
        "tool": "run_skill",
        "name": "drop_table",
        "call_id": CALL,
        "outcome": "success",
    }
    recorder.append(session.chain, "autonomous_session.tool_call", now=NOW, details=skill)

    found = text_of(show(client, session))

    for words in (
        f"Approval of send_email was granted, by {owner.username} (standing approval).",
        "Approval of send_email was used by call",
        "Approval of send_email was cancelled.",
        "Skill drop_table",
        "success",
    ):
        assert words in found, words
    assert (": none." in found, by in found, "run_skill" in found) == (False, False, False)


def test_timeline_names_skills_that_requested_approval(client):
    owner = sign_in(client)
    session = make_session(owner=owner)
    asked = make_approval(session, action="send_email", intent=ToolIntent.RUN_SKILL, status="rejected")
    pending = {"outcome": "approval_pending", "approval_id": str(asked.public_id)}
    told = {"tool": "run_skill", "phase": "turn", **pending}
    recorder.append(session.chain, "autonomous_session.tool_call", now=NOW, details=told)
    assert "Skill send_email" in text_of(show(client, session))


def test_timeline_quotes_questions_and_shows_costs(client):
    session = make_session(owner=sign_in(client))
    question = make_question(session, text="Which of the two leases?")
    about = {"question_id": str(question.public_id)}
    for kind, details in (("question.asked", about), ("question.closed", {**about, "status": "answered"})):
        recorder.append(session.chain, kind, now=NOW, details=details)
    paid = {"tool": "run_skill", "model": "m", "outcome": "success", "cost_usd": "0.005", "actual_usd": "0.00018"}
    recorder.append(session.chain, "autonomous_session.tool_call", now=NOW, details=paid)

    found = text_of(show(client, session))

    assert found.count('<div class="lq-faint">“Which of the two leases?”</div>') == 2
    for words in ("The run asked a person.", "Its question was answered.", '<div class="lq-faint">$0.005</div>'):
        assert words in found, words


def test_budget_end_says_how_much_was_missing(client):
    owner = sign_in(client)
    session = make_session(owner=owner, max_cost_usd=Decimal("0.005"))
    verdict = SpentUp("cost", Decimal("0.02"), Decimal("0.005"))
    call = plan_call(session, ToolIntent.RUN_SKILL, ask(), key="turn:1", now=NOW)
    brake = refuse_unaffordable(call, verdict)
    session_finish(session, TerminalReason.BUDGET_EXCEEDED, now=NOW, error=str(brake))

    found = text_of(show(client, session))

    assert "the next model call could have brought the budget session to" in found
    assert "The next question could cost up to $0.02; $0.005 was left of the session&#x27;s cap." in found
    assert "used up" not in found
