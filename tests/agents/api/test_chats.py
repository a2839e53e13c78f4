"""Chats through the API: each message is a session, and a chat belongs to its owner alone."""

from uuid import uuid4

import pytest

from agents.ask.chats import MAX_CHARS
from agents.enums import Status, WaitingOn
from agents.models import AgentSession
from audit.models import AuditEvent
from tests.agents.ask.rows import CALL, make_chat, make_entry, make_question, open_chat
from tests.factories import make_agent, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db
CHATS = "/api/v1/chats"


@pytest.fixture
def message(api):
    return lambda text="What is a break clause?", **more: api.post(CHATS, {"message": text, **more}, format="json")


def test_message_starts_a_session(message, person):
    agent = make_agent(owner=person)
    answer = message(agent=str(agent.public_id), max_cost_usd="0.25")
    session = AgentSession.objects.get()

    assert answer.status_code == 202
    assert answer.json() == {
        "session": str(session.public_id),
        "chat": str(session.public_id),
        "path": "",
        "answer": "",
    }
    assert (session.mode, session.status, session.agent, str(session.max_cost_usd)) == (
        "chat",
        Status.QUEUED,
        agent,
        "0.250000",
    )
    event = AuditEvent.objects.get(kind="autonomous_trigger.run_now")
    assert event.actor.startswith(f"user:{person.pk}:key:")
    assert event.request_id == answer["X-Request-ID"]


@pytest.mark.parametrize(
    ("text", "way"),
    [("hello", "answer"), ("Review all my leases, one by one", "goal"), ("calculate 17 * 23 for me", "script")],
)
def test_settings_of_a_message_come_from_rules(message, text, way):
    assert message(text).status_code == 202
    assert AgentSession.objects.get().params["way"] == way


def test_chat_keeps_its_agent_one_message_at_a_time(message, person):
    agent = make_agent(owner=person)
    first = make_chat(person, agent=agent)
    second = message("And the next year?", chat=str(first.public_id))
    assert second.json()["chat"] == str(first.public_id)
    assert AgentSession.objects.latest("pk").agent == agent

    third = message("Well?", chat=str(first.public_id))
    assert (third.status_code, third.json()["code"]) == (409, "invalid_transition")
    assert AgentSession.objects.count() == 2


def test_fast_path_answers_in_the_response(message, api, person):
    first = make_chat(person, "Hi", answer="Hi.")
    answer = message("help", chat=str(first.public_id))

    assert (answer.status_code, answer.json()["path"], answer.json()["chat"]) == (200, "help", str(first.public_id))
    detail = api.get(f"{CHATS}/{first.public_id}").json()["messages"][-1]
    assert (detail["message"], detail["answer"], detail["status"]) == ("help", answer.json()["answer"], "completed")
    assert detail["spent_usd"] == "0.000000"


@pytest.mark.parametrize(("text", "needed"), [("list sessions", "read"), ("approve 1f2e3d4c", "read")])
def test_key_needs_the_scope_of_the_message(person, text, needed):
    refused = client_of(person, "write").post(CHATS, {"message": text}, format="json")
    assert (refused.status_code, needed in refused.json()["message"]) == (403, True)
    assert not AgentSession.objects.exists()


def test_chats_are_listed_by_their_last_message(api, person):
    old = make_chat(person, "The first")
    new = make_chat(person, "The second", answer="Yes.")
    make_chat(person, "More of the first", chat=old.public_id, agent=make_agent(owner=person))
    make_chat(make_user(), "Somebody else's")

    listed = api.get(CHATS).json()
    assert [(row["id"], row["opening"], row["messages"]) for row in listed["results"]] == [
        (str(old.public_id), "The first", 2),
        (str(new.public_id), "The second", 1),
    ]
    assert listed["results"][0]["status"] == "completed"
    page = api.get(CHATS, {"page": 2, "page_size": 1}).json()
    assert (page["count"], [row["opening"] for row in page["results"]]) == (2, ["The second"])
    assert api.get(CHATS, {"nmae": "x"}).status_code == 422


def test_chat_has_messages_and_answers_in_order(api, person):
    first = make_chat(person, "What time is it?")
    make_entry(first, "assistant", "I look.", stop="tool_use", calls=[CALL])
    make_entry(first, "tool", "09:26", call_id="call_1_1")
    make_entry(first, "assistant", "Half past", stop="max_tokens")
    make_entry(first, "user", "Write on.", reason="max_tokens_recovery")
    make_entry(first, "assistant", " nine.", stop="end_turn")
    failed = {"status": Status.FAILED, "terminal_reason": "provider_error"}
    make_chat(person, "And now?", chat=first.public_id, **failed)
    waits = {"status": Status.WAITING, "waiting_on": WaitingOn.INPUT}
    question = make_question(open_chat(person, "Where?", chat=first.public_id, **waits))

    body = api.get(f"{CHATS}/{first.public_id}").json()
    assert (body["id"], body["left_out"]) == (str(first.public_id), 0)
    detail = [(row["message"], row["answer"], row["status"], row["terminal_reason"]) for row in body["messages"]]
    assert detail == [
        ("What time is it?", "Half past nine.", "completed", "completed"),
        ("And now?", "", "failed", "provider_error"),
        ("Where?", "", "waiting", None),
    ]
    assert [row["calls"] for row in body["messages"]] == [["now"], [], []]
    assert [row["question"] for row in body["messages"]] == [None, None, str(question.public_id)]


def test_chat_of_another_user_is_not_found(api, message):
    theirs = make_chat(make_user())
    for answer in (
        api.get(f"{CHATS}/{theirs.public_id}"),
        api.get(f"{CHATS}/{uuid4()}"),
        message(chat=str(theirs.public_id)),
        message(agent=str(make_agent().public_id)),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert AgentSession.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": " "}, "message"),
        ({"message": 5}, "message"),
        ({"message": "Hi", "chat": 5}, "chat"),
        ({"message": "Hi", "max_cost_usd": ""}, "max_cost_usd"),
        ({"message": "Hi", "max_cost_usd": " "}, "max_cost_usd"),
        ({"message": "x" * (MAX_CHARS + 1)}, "message"),
        ({"message": "Hi", "chat": "x"}, "chat"),
        ({"message": "Hi", "max_cost_usd": "-1"}, "max_cost_usd"),
        ({"message": "Hi", "text": "x"}, "text"),
    ],
)
def test_bad_bodies_are_refused_by_field(api, body, field):
    answer = api.post(CHATS, body, format="json")
    assert (answer.status_code, list(answer.json()["detail"])) == (422, [field])


def test_disabled_agent_does_not_answer(message, person):
    agent = make_agent(owner=person, enabled=False)
    began = make_chat(person, agent=agent)
    for more in ({"agent": str(agent.public_id)}, {"chat": str(began.public_id)}):
        answer = message(**more)
        assert (answer.status_code, "switched off" in answer.json()["message"]) == (422, True)


def test_read_key_cannot_send_a_message(person):
    refused = client_of(person, "read").post(CHATS, {"message": "Hi"}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
