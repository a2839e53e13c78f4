"""Chats: one session per message, the conversation over several, and streaming."""

from decimal import Decimal
from functools import partial

import pytest

from agents.ask.chats import Way, chat, chat_answer, chat_send, stream_events
from agents.enums import HaltState, Mode, Phase, Status, TerminalReason
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.models import AgentSession, StreamPart
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.halts import session_halt
from audit.models import AuditEvent
from tests.agents.ask.rows import make_chat
from tests.agents.conftest import MODEL, script
from tests.factories import NOW, make_agent, make_price, make_user
from tests.flows.processes import in_threads

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(settings, monkeypatch):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)  # it would wait for the test's transaction
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "main": [MODEL], "small": [MODEL]}
    make_price(MODEL, input_usd="0", output_usd="10")
    return make_user()


def say(owner, text, **more):
    return chat_send(owner=owner, by=owner, text=text, now=NOW, **more)


def answered(session):
    run_session(session.pk, chat, owner="worker")
    session.refresh_from_db()
    return session


def test_chat_is_answered_by_the_model_of_the_console(owner, settings):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "console": ["offline"]}
    session = answered(say(owner, "What is a lease?"))
    assert {call.model for call in session.tool_calls.exclude(model="")} == {"offline"}


def test_message_is_answered_in_a_session_of_its_own(owner):
    agent = make_agent(owner=owner, name="Clerk")
    with script(Step("Hello.")) as model:
        session = answered(say(owner, "Hi", agent=agent))

    assert (session.status, session.mode, session.current_phase) == (Status.COMPLETED, Mode.CHAT, Phase.TURN)
    assert chat_answer(session) == "Hello."
    assert "You are Clerk" in model.requests[0].messages[0]["content"]


@pytest.mark.parametrize("reply", ["", " \n"])
def test_empty_reply_fails_the_session(owner, reply):
    with script(Step(reply)):
        session = answered(say(owner, "Hi"))

    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.PROVIDER_ERROR)
    assert "its reply was empty" in session.error


def test_next_message_includes_the_conversation(owner):
    with script(Step("Blue."), Step("As I said: blue.")) as model:
        first = answered(say(owner, "My colour?"))
        second = answered(say(owner, "Again?", chat=first.public_id))

    assert second.params["chat"] == str(first.public_id)
    sent = [(message["role"], message["content"]) for message in model.requests[1].messages]
    assert sent[1:3] == [("user", "My colour?"), ("assistant", "Blue.")]
    assert sent[3][1].startswith("Again?\n\nLeft for this run: ")


def test_one_message_at_a_time(owner):
    first = say(owner, "One")
    with pytest.raises(InvalidTransition, match="still being answered"):
        say(owner, "Two", chat=first.public_id)


def test_chat_of_another_user_is_not_found(owner):
    first = say(make_user(), "Mine")
    with pytest.raises(NotFound, match="no chat"):
        say(owner, "Yours?", chat=first.public_id)


@pytest.mark.parametrize("text", ["", "   ", "x" * 20_001])
def test_empty_or_too_long_message_is_refused(owner, text):
    with pytest.raises(Invalid, match="characters"):
        say(owner, text)


def test_message_for_another_user_needs_the_permission(owner):
    with pytest.raises(NotFound):
        chat_send(owner=owner, by=make_user(), text="Hi", now=NOW)


def test_streamed_text_has_one_end(owner, settings):
    settings.LQOPS_LOOP = {"streaming": True}
    session = say(owner, "Speak")
    assert stream_events(session) == []
    with script(Step("A long answer in pieces.", chunk_chars=4)):
        answered(session)

    events = stream_events(session)
    assert "".join(event["text"] for event in events) == "A long answer in pieces."
    assert [event["finished"] for event in events] == [False] * (len(events) - 1) + [True]
    assert stream_events(session, after=events[-1]["id"]) == [{"id": events[-1]["id"], "text": "", "finished": True}]


def test_secret_is_not_streamed(owner, settings):
    settings.LQOPS_LOOP = {"streaming": True}
    secret = "sk-proj-" + "a1B2" * 10
    with script(Step(f"The key is {secret}.", chunk_chars=3)):
        session = answered(say(owner, "Key?"))

    kept = "".join(part.text for part in StreamPart.objects.all())
    assert secret not in kept
    assert secret[8:20] not in kept
    assert secret not in chat_answer(session)
    assert AgentSession.objects.get().status == Status.COMPLETED


def test_session_has_the_token_budget_of_the_loop(owner, settings):
    settings.LQOPS_LOOP = {"token_budget": 5_000}
    assert say(owner, "Hi").token_budget == 5_000


def test_truncated_answer_is_completed(owner):
    with script(Step("Half past", stop_reason="max_tokens"), Step(" nine.")):
        session = answered(say(owner, "What time is it?"))
    assert chat_answer(session) == "Half past nine."


def test_truncated_call_is_not_part_of_the_answer(owner):
    cut = Step('I will look. <skill>calculate(expression="1+', stop_reason="max_tokens")
    with script(cut, Step("It is", stop_reason="max_tokens"), Step(" 42.")):
        session = answered(say(owner, "What is 6 times 7?"))
    assert chat_answer(session) == "It is 42."


def test_replies_of_a_run_are_streamed_as_paragraphs(owner):
    with script(Step("I look.<skill>now()</skill>"), Step("It is nine.")):
        session = answered(say(owner, "What time is it?"))
    assert "".join(event["text"] for event in stream_events(session)) == "I look.<skill>now()</skill>\n\nIt is nine."


def test_streaming_can_be_switched_off(owner, settings):
    settings.LQOPS_LOOP = {"streaming": False}
    with script(Step("Hello.")):
        session = answered(say(owner, "Hi"))
    assert [event["finished"] for event in stream_events(session)] == [True]


def test_message_is_audited_with_its_sender(owner):
    session = say(owner, "Hi")
    [event] = AuditEvent.objects.filter(kind="autonomous_trigger.run_now")
    assert (event.actor, event.subject) == (f"user:{owner.pk}", f"session:{session.public_id}")
    assert session.metadata["asked_by"] == f"user:{owner.pk}"


@pytest.mark.django_db(transaction=True)
def test_one_of_two_simultaneous_messages_is_refused(owner):
    first = make_chat(owner)

    def speak(number):
        try:
            return say(owner, f"Message {number}", chat=first.public_id).pk
        except InvalidTransition:
            return None

    assert len([pk for pk in in_threads(2, speak) if pk]) == 1
    assert AgentSession.objects.count() == 2


def test_halt_during_back_off_ends_the_session(owner):
    session = say(owner, "Hi")
    halt = partial(session_halt, session.pk, by=owner, reason="enough", now=NOW)
    with script(Step(error=ProviderError("away", fault=Fault.SERVER), before_reply=halt)) as model:
        answered(session)

    assert (session.status, session.halt_state) == (Status.HALTED, HaltState.HALTED)
    assert (session.terminal_reason, len(model.requests)) == (TerminalReason.EXTERNAL_HALT, 1)


CALLS = [Step(f'<skill>calculate(expression="1 + {number}")</skill>') for number in range(9)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("definition", "most"),
    [
        ("", 5),
        ("autonomy: {enabled: true, max_tool_rounds: 2}", 2),
        ("loop: {max_tool_rounds: 7}", 7),
    ],
)
def test_answer_is_limited_by_rounds_of_calls_and_says_so(owner, definition, most):
    agent = make_agent(owner=owner, name="Clerk", definition=f"name: Clerk\n{definition}\n")
    with script(*CALLS) as model:
        session = answered(say(owner, "Look around", agent=agent))

    assert (session.status, len(model.requests)) == (Status.COMPLETED, most)
    assert chat_answer(session) == f"I stopped after {most} rounds of calls, which is the limit of one turn."


def test_goal_in_a_chat_is_limited_by_steps(owner, settings):
    settings.LQOPS_LOOP = {"max_steps": 8}
    with script(*CALLS) as model:
        session = answered(say(owner, "Look around", way=Way.GOAL))

    assert (session.terminal_reason, len(model.requests)) == (TerminalReason.MAX_STEPS, 8)


def test_chat_with_an_agent_has_its_own_key(owner):
    agent = make_agent(owner=owner)
    assert say(owner, "Hi", agent=agent).params["key"] == f"agent:{agent.public_id}:main"


def test_message_has_the_cap_of_its_agent(owner):
    text = "name: Clerk\nmax_cost_usd: 0.25\n"
    agent = make_agent(owner=owner, name="Clerk", definition=text, definition_digest="d1", definition_version=1)

    assert say(owner, "Hi", agent=agent).max_cost_usd == Decimal("0.25")
    assert say(owner, "Hi", agent=agent, max_cost_usd=Decimal("0.10")).max_cost_usd == Decimal("0.10")
