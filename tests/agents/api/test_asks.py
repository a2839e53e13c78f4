"""POST asks: answers, sessions and drafts with their status codes; scopes and errors."""

import pytest

from agents.conf import clock
from agents.models import Agent, AgentSession, ApiKey, Approval, Trigger
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


def test_chat_continues_by_its_id(post_ask):
    first = post_ask("What is a break clause?").json()
    session = AgentSession.objects.get()
    AgentSession.objects.update(status="completed", terminal_reason="completed", completed_at=clock())
    second = post_ask("And in Dutch law?", chat=first["data"]["chat"])
    assert second.json()["data"]["chat"] == str(session.public_id)


def test_draft_is_answered_with_201(post_ask, person):
    make_playbook(person, name="Lease")
    make_collection(person, name="Leases")
    answer = post_ask("every 6 hours run playbook Lease on collection Leases")

    assert (answer.status_code, answer.json()["kind"]) == (201, "draft")
    assert Trigger.objects.get(public_id=answer.json()["data"]["trigger"]).enabled is False


def test_act_carries_the_request_id(post_ask, person):
    session = make_session(owner=person)
    answer = post_ask(f"halt session {session.public_id}")
    event = AuditEvent.objects.get(kind="autonomous_session.halt_requested")
    assert event.actor.startswith(f"user:{person.pk}:key:")
    assert event.request_id == answer["X-Request-ID"]


@pytest.mark.parametrize(
    ("text", "scopes", "missing"),
    [
        ("list sessions", ("write",), "read"),
        ("list sessions 0", ("read",), "write"),
        ("approve 1f2e3d4c", ("read", "write"), "decide"),
        ("hello, how is life?", ("read", "decide"), "write"),
    ],
)
def test_key_needs_the_scope_of_the_request(person, text, scopes, missing):
    answer = client_of(person, *scopes).post(ADDRESS, {"text": text}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert answer.json()["message"].endswith(f"{missing}.")


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


def test_key_without_decide_cannot_approve_by_text():
    admin = make_user(is_superuser=True)
    approval = make_approval(make_session(owner=admin))
    text = f"approve {approval.public_id} {approval.digest[:12]}"
    refused = client_of(admin, "read", "write").post(ADDRESS, {"text": text}, format="json")
    assert (refused.status_code, Approval.objects.get().status) == (403, "pending")
    taken = client_of(admin, "decide").post(ADDRESS, {"text": text}, format="json")
    assert (taken.status_code, Approval.objects.get().status) == (200, "approved")
    key = ApiKey.objects.latest("pk")
    assert AuditEvent.objects.get(kind="approval.approved").actor.endswith(f":key:{key.prefix}")


def test_refusals_of_services_have_the_error_shape(post_ask, person):
    approval = make_approval(make_session(owner=person))
    cases = {
        f"halt session {make_session().public_id}": (404, "not_found"),
        f"approve {approval.public_id} {approval.digest[:12]}": (403, "not_allowed"),
        f"reject {approval.public_id} 000000000000": (403, "not_allowed"),
    }
    for text, expected in cases.items():
        answer = post_ask(text)
        assert (answer.status_code, answer.json()["code"]) == expected, text
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


def test_user_without_opt_in_may_only_ask_to_read():
    client = client_of(make_user(opted_in=False))
    assert client.post(ADDRESS, {"text": "help"}, format="json").status_code == 200
    for text in ("What is a lease?", "list sessions 0", "approve 1f2e3d4c"):
        answer = client.post(ADDRESS, {"text": text}, format="json")
        assert (answer.status_code, answer.json()["code"]) == (403, "not_opted_in"), text


def test_dry_run_needs_only_the_read_scope(person):
    reader = client_of(person, "read")
    answer = reader.post(f"{ADDRESS}/dry-run", {"text": "Create an agent that watches prices"}, format="json")

    assert (answer.status_code, answer.json()) == (
        200,
        {
            "kind": "draft",
            "text": "Drafts an agent, switched off: Watches prices.",
            "path": "",
            "strategy": "SUB_AGENT",
            "lever": True,
            "scope": "write",
            "missing": ["autonomy", "sensors", "triggers"],
            "refused": "",
        },
    )
    assert not Agent.objects.exists()


def test_dry_run_does_not_find_another_users_agent(person):
    body = {"text": "help", "agent": str(make_agent().public_id)}
    assert client_of(person).post(f"{ADDRESS}/dry-run", body, format="json").status_code in {404, 422}
