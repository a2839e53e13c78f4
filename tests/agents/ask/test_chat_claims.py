"""A chat runs only calls that the user asked for, and claims only what succeeded."""

import pytest
from django.core.cache import cache

from agents.ask.chats import chat, chat_answer, chat_send
from agents.enums import Status
from agents.models import Approval, Message, Question, ToolCall
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.questions import question_answer
from agents.skills.registry import installed_skills
from tests.agents.conftest import MODEL, script
from tests.factories import NOW, make_agent, make_price, make_user

pytestmark = pytest.mark.django_db

DELIVERS = Step('<skill>deliver(place="https://shop.example/", text="figures")</skill>')
SAYS_SO = Step("The figures are fine. I have sent them to the shop.")


@pytest.fixture
def owner(settings, monkeypatch):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)  # it would wait for the test's transaction
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "main": [MODEL], "small": [MODEL]}
    installed_skills.cache_clear()
    cache.clear()
    make_price(MODEL, input_usd="0", output_usd="10")
    yield make_user()
    installed_skills.cache_clear()


def clerk(owner, **fields):
    return make_agent(owner=owner, definition="name: Clerk\nskills: all\n", **fields)


def say(owner, text, **more):
    return chat_send(owner=owner, by=owner, text=text, now=NOW, **more)


def go_on(session):
    run_session(session.pk, chat, owner="worker")
    session.refresh_from_db()
    return session


def results(session):
    return [entry.content for entry in Message.objects.filter(session=session, role="tool").order_by("seq")]


def test_question_about_status_sends_nothing(owner, approver):
    with script(DELIVERS, SAYS_SO):
        session = go_on(say(owner, "What is the status of the figures?", agent=clerk(owner, mode="auto")))

    assert session.status == Status.COMPLETED
    assert "the user's words do not ask for that" in results(session)[0]
    assert not ToolCall.objects.filter(name="deliver").exists()
    assert not Approval.objects.exists()
    assert chat_answer(session).startswith("The figures are fine.\n\nCorrected by lqops")
    assert "- deliver did not succeed: deliver changes something" in chat_answer(session)


def test_call_that_was_asked_for_runs(owner, approver):
    with script(DELIVERS, Step("risky"), SAYS_SO):
        session = go_on(say(owner, "Send the figures to the shop.", agent=clerk(owner)))
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        go_on(session)
    assert chat_answer(session) == SAYS_SO.text


def test_claim_of_a_denied_call_is_corrected(owner, approver):
    with script(DELIVERS, Step("risky"), SAYS_SO):
        session = go_on(say(owner, "Send the figures to the shop.", agent=clerk(owner)))
        ticket = Approval.objects.get()
        approval_reject(ticket.pk, by=approver, digest=ticket.digest, note="not today", now=NOW)
        go_on(session)
    assert "I have sent them" not in chat_answer(session)
    assert "- deliver did not succeed: A person did not allow this call: not today" in chat_answer(session)


def test_yes_to_a_proposal_asks_for_the_call(owner):
    agent = clerk(owner, mode="auto")
    with script(Step("Shall I send them to the shop?"), DELIVERS, Step("risky"), SAYS_SO, Step("Yes: I sent them.")):
        first = go_on(say(owner, "The figures are ready", agent=agent))
        second = go_on(say(owner, "Yes, please.", chat=first.public_id))
        third = go_on(say(owner, "And?", chat=first.public_id))
    assert ToolCall.objects.get(name="deliver").session == second
    assert (chat_answer(second), chat_answer(third)) == (SAYS_SO.text, "Yes: I sent them.")


def test_yes_to_a_question_of_the_run_asks_for_the_call(owner):
    asks = Step('<skill>ask_person(question="Shall I send the figures?")</skill>')
    with script(asks, DELIVERS, Step("risky"), SAYS_SO):
        session = go_on(say(owner, "The figures are ready", agent=clerk(owner, mode="auto")))
        question_answer(Question.objects.get(), answer="Yes", by=owner, now=NOW)
        go_on(session)
    assert ToolCall.objects.filter(name="deliver", outcome="success").count() == 1
    assert chat_answer(session) == SAYS_SO.text
