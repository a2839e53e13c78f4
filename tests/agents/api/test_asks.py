"""POST asks: answers, sessions and proposals with their status codes; scopes and errors."""

import pytest

from agents.conf import clock
from agents.models import AgentSession, ApiKey, Approval, Trigger
from audit.models import AuditEvent
from tests.agents.admin.rows import make_approval
from tests.agents.ask.rows import make_chat
from tests.agents.triggers.rows import make_collection, make_playbook
from tests.factories import make_agent, make_session, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/asks"


@pytest.fixture
def post_ask(api):
    return lambda text, **more: api.post(ADDRESS, {"text": text, **more}, format="json")


def test_fast_path_is_answered_with_200(post_ask, person):
    session = make_session(owner=person)
    answer = post_ask("Which sessions are running?")
    body = answer.json()

    assert answer.status_code == 200
    assert (body["kind"], body["path"], body["strategy"], body["session"]) == ("answer", "list_sessions", None, None)
    assert [row["id"] for row in body["data"]["sessions"]] == [str(session.public_id)]


def test_session_is_answered_with_202(post_ask, person):
    agent = make_agent(owner=person)
    answer = post_ask("What is a break clause?", agent=str(agent.public_id))
    session = AgentSession.objects.get()

    assert answer.status_code == 202
    assert (answer.json()["session"], answer.json()["strategy"]) == (str(session.public_id), "DIRECT_RESPONSE")
    assert session.agent == agent


def test_chat_continues_by_its_id(post_ask, person):
    agent = make_agent(owner=person)
    first = post_ask("What is a break clause?", agent=str(agent.public_id)).json()
    session = AgentSession.objects.get()
    AgentSession.objects.update(status="completed", terminal_reason="completed", completed_at=clock())
    second = post_ask("And in Dutch law?", chat=first["data"]["chat"])
    assert second.json()["data"]["chat"] == str(session.public_id)


def token_of(answer):
    [proposal] = answer.json()["proposals"]
    return proposal["token"]


def test_draft_is_made_when_its_proposal_is_confirmed(post_ask, api, person):
    make_playbook(person, name="Lease")
    make_collection(person, name="Leases")
    answer = post_ask("every 6 hours run playbook Lease on collection Leases")
    assert (answer.status_code, answer.json()["kind"], Trigger.objects.count()) == (200, "answer", 0)
    done = api.post(f"{ADDRESS}/confirm", {"token": token_of(answer)}, format="json")
    assert (done.status_code, Trigger.objects.get(public_id=done.json()["data"]["trigger"]).enabled) == (200, False)


def test_confirmed_act_carries_the_request_id_and_the_key(post_ask, api, person):
    session = make_session(owner=person)
    asked = post_ask(f"halt {session.public_id}")
    assert not AuditEvent.objects.filter(kind="autonomous_session.halt_requested").exists()
    answer = api.post(f"{ADDRESS}/confirm", {"token": token_of(asked)}, format="json")
    event = AuditEvent.objects.get(kind="autonomous_session.halt_requested")
    assert event.actor.startswith(f"user:{person.pk}:key:")
    assert event.request_id == answer["X-Request-ID"]


@pytest.mark.parametrize("token", ["", "x", "a:b:c", 5, None])
def test_wrong_token_is_refused(api, token):
    assert api.post(f"{ADDRESS}/confirm", {"token": token}, format="json").status_code == 422


def test_ask_needs_the_read_scope(person):
    answer = client_of(person, "write").post(ADDRESS, {"text": "runs"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


def test_question_with_a_read_key_is_a_search_without_a_model(person):
    make_agent(owner=person, name="Lease clerk")
    answer = client_of(person, "read").post(ADDRESS, {"text": "who looks after the lease?"}, format="json")
    assert (answer.status_code, answer.json()["kind"], AgentSession.objects.count()) == (200, "answer", 0)
    assert "Lease clerk" in [row["name"] for row in answer.json()["data"]["results"]]


@pytest.mark.parametrize("text", ["list sessions", "help", "what did today cost?"])
def test_read_key_may_ask_to_read(person, text):
    answer = client_of(person, "read").post(ADDRESS, {"text": text}, format="json")
    assert (answer.status_code, answer.json()["kind"]) == (200, "answer")


def test_ask_in_a_chat_also_needs_write(person):
    body = {"text": "list sessions", "chat": str(make_chat(person).public_id)}
    for scopes, missing in ((("read",), "write"), (("write",), "read")):
        answer = client_of(person, *scopes).post(ADDRESS, body, format="json")
        assert (answer.status_code, answer.json()["message"].endswith(f"{missing}.")) == (403, True)
    assert client_of(person, "read", "write").post(ADDRESS, body, format="json").status_code == 200


def test_key_without_decide_cannot_confirm_an_approval():
    admin = make_user(is_superuser=True)
    approval = make_approval(make_session(owner=admin))
    asked = client_of(admin, "read").post(ADDRESS, {"text": f"approve {approval.public_id}"}, format="json")
    body = {"token": token_of(asked)}
    refused = client_of(admin, "read", "write").post(f"{ADDRESS}/confirm", body, format="json")
    assert (refused.status_code, Approval.objects.get().status) == (403, "pending")
    taken = client_of(admin, "decide").post(f"{ADDRESS}/confirm", body, format="json")
    assert (taken.status_code, Approval.objects.get().status) == (200, "approved")
    key = ApiKey.objects.latest("pk")
    assert AuditEvent.objects.get(kind="approval.approved").actor.endswith(f":key:{key.prefix}")


def test_proposal_that_is_refused_says_why_and_has_no_token(post_ask, person):
    approval = make_approval(make_session(owner=person))
    [proposal] = post_ask(f"approve {approval.public_id}").json()["proposals"]
    assert (proposal["token"], proposal["refused"] != "") == ("", True)


def test_unknown_run_has_the_error_shape(post_ask):
    answer = post_ask(f"halt {make_session().public_id}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.json().keys() == {"code", "message", "detail", "request_id"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": "   "}, "text"),
        ({"text": 5}, "text"),
        ({"text": True}, "text"),
        ({"text": None}, "text"),
        ({"text": "hello there", "chat": 5}, "chat"),
        ({"text": "x" * 100_000}, "text"),
        ({"text": "hello there", "chat": "x"}, "chat"),
        ({"text": "hello there", "wait": 5}, "wait"),
    ],
)
def test_bad_bodies_are_refused_by_field(api, body, field):
    answer = api.post(ADDRESS, body, format="json")
    assert (answer.status_code, list(answer.json()["detail"])) == (422, [field])


def test_text_that_cannot_be_stored_is_refused(api):
    answer = api.generic("POST", ADDRESS, b'{"text": "a\\u0000b is what I say"}', content_type="application/json")
    assert (answer.status_code, AgentSession.objects.count()) == (400, 0)


def test_agent_of_another_user_is_not_found(post_ask):
    answer = post_ask("What is a break clause?", agent=str(make_agent().public_id))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_user_without_opt_in_asks_and_halts_and_nothing_else():
    user = make_user(opted_in=False)
    client = client_of(user)
    agent, session = make_agent(owner=user, name="Clerk"), make_session(owner=user)
    assert client.post(ADDRESS, {"text": "What is a lease?"}, format="json").status_code == 200
    body = {"text": "hello", "agent": str(agent.public_id)}
    assert client.post(ADDRESS, body, format="json").json()["code"] == "not_opted_in"
    for text, status in (("pause Clerk", 403), (f"halt {session.public_id}", 200)):
        token = token_of(client.post(ADDRESS, {"text": text}, format="json"))
        assert client.post(f"{ADDRESS}/confirm", {"token": token}, format="json").status_code == status
