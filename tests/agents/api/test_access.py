"""Authentication and permissions: API keys, scopes, the opt-in, and a browser session with its CSRF token."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.middleware.csrf import get_token
from django.test import RequestFactory

from agents.conf import clock
from agents.models import AgentSession, ApiKey, Channel, Profile, Trigger
from agents.people.keys import api_key_revoke
from tests.factories import make_session, make_user

from .conftest import client_of, client_with, key_of
from .contract import CheckedClient
from .world import make_world, routes

pytestmark = pytest.mark.django_db
SESSIONS = "/api/v1/sessions"
DECISIONS = {"answer", "approve", "approve_edited", "approve_for_session", "deny"}
ALSO_DECISIONS = {
    "tool-call:resolve",
    "callable-skill:partial_update",
    "delegation:create",
    "release:post",
    "resume:post",
    *(f"approval-rule:{act}" for act in ("create", "partial_update", "destroy", "try_past")),
}
# What needs no opt-in, and why.
ALWAYS = {
    "session:halt": "the lever is always there",
    "session:halt_all": "the lever is always there",
    "agent:halt": "the lever is always there",
    "halt:post": "the lever is always there",
    **dict.fromkeys(("session:pause", "agent:pause", "pause:post"), "the lever is always there"),
    "notification:read": "reading changes nothing that runs",
    **{
        f"finding:{act}": "settling what was found starts nothing"
        for act in ("acknowledge", "dismiss", "resolve", "reopen", "assign", "comment")
    },
    **{
        f"channel:{act}": "where somebody is told starts nothing"
        for act in ("create", "partial_update", "destroy", "rotate_secret", "test")
    },
    **{f"delivery:{act}": "telling somebody starts nothing" for act in ("replay", "destroy")},
    "me:patch": "opting in cannot need an opt-in",
    "event:dry_run": "changes nothing",
    "asks:post": "asking changes nothing",
    "ask_confirm:post": "halting is always there; every other action checks the opt-in itself",
    "run-estimate:post": "changes nothing",
}
READ_ONLY = {"event:dry_run", "asks:post", "run-estimate:post"}


def test_valid_key_is_accepted(api, person):
    assert api.get("/api/v1/me").json()["username"] == person.username


def test_invalid_keys_all_get_the_same_401(person):
    secret = key_of(person)
    expired = key_of(person)
    ApiKey.objects.filter(prefix=expired.split("_")[1]).update(expires_at=clock() - timedelta(seconds=1))
    revoked = key_of(person)
    api_key_revoke(key=ApiKey.objects.get(prefix=revoked.split("_")[1]), by=None, now=clock())
    inactive = key_of(gone := make_user())
    gone.is_active = False
    gone.save()
    forged = [f"{secret}x", secret[:-1], "lqk_0_0", "", "x", "\x00", "é", f"{secret} x", expired, revoked, inactive]
    answers = [client_with(attempt).get(SESSIONS) for attempt in forged]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.json()["message"] for answer in answers}) == 1
    assert client_with(secret).get(SESSIONS).status_code == 200


def test_invalid_key_does_not_fall_back_to_the_session(person):
    client = client_with("lqk_0_0")
    client.force_login(person)
    assert client.get(SESSIONS).status_code == 401


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
def test_bearer_scheme_is_case_insensitive(person, scheme):
    client = CheckedClient()
    client.credentials(HTTP_AUTHORIZATION=f"{scheme} {key_of(person)}")
    assert client.get(SESSIONS).status_code == 200


@pytest.mark.parametrize("header", ["Basic YWRtaW46YWRtaW4=", "Token x", "Bearer", "nonsense"])
def test_other_schemes_are_refused(header):
    client = CheckedClient()
    client.credentials(HTTP_AUTHORIZATION=header)
    assert client.get(SESSIONS).status_code == 401


# --- scopes ---


def send(client, route, world):
    return getattr(client, route.method)(route.address(world), {}, format="json" if route.method != "get" else None)


@pytest.mark.parametrize("scope", ["read", "write", "decide"])
def test_key_is_limited_to_its_scopes(scope):
    world = make_world()
    client = client_of(world.owner, scope)
    for route in routes():
        action = route.name.rpartition(":")[2]
        needed = "read" if route.method == "get" or route.name in READ_ONLY else "write"
        needed = "decide" if action in DECISIONS or route.name in ALSO_DECISIONS else needed
        if needed != scope:
            answer = send(client, route, world)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing"), route


@pytest.mark.parametrize("verb", ["approve", "deny", "approve-edited", "approve-for-session"])
def test_key_without_decide_cannot_decide_for_any_user(verb):
    world = make_world()
    admin = make_user(is_superuser=True)
    approval = world.rows["approval"]
    type(approval).objects.update(intent="notify")  # a call that can be made with any arguments
    body = {"digest": approval.digest, **({"arguments": approval.arguments} if verb == "approve-edited" else {})}
    address = f"/api/v1/approvals/{approval.public_id}/{verb}"
    refused = client_of(admin, "read", "write").post(address, body, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    approval.refresh_from_db()
    assert approval.status == "pending"
    assert client_of(admin, "decide").post(address, body, format="json").status_code == 200


def test_decide_scope_needs_the_users_permission():
    world = make_world()
    approval = world.rows["approval"]
    address = f"/api/v1/approvals/{approval.public_id}/approve"
    answer = client_of(world.owner, "decide").post(address, {"digest": approval.digest}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


def test_own_call_cannot_be_approved_under_four_eyes(settings):
    settings.LQOPS_FOUR_EYES = True
    world = make_world()
    approval = world.rows["approval"]
    type(approval).objects.update(level="PRIVILEGED")
    world.owner.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    other = make_user()
    other.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    address = f"/api/v1/approvals/{approval.public_id}/approve"
    own = client_of(world.owner).post(address, {"digest": approval.digest}, format="json")
    assert (own.status_code, own.json()["code"]) == (403, "not_allowed")
    assert client_of(other).post(address, {"digest": approval.digest}, format="json").status_code == 200


# --- opt-in ---


def test_user_without_opt_in_reads_halts_and_decides_only(some):
    world = make_world()
    Profile.objects.filter(user=world.owner).update(opted_in=False)
    client = client_of(world.owner)
    for route in some(routes(), 3):
        answer = send(client, route, world)
        decides = route.name.rpartition(":")[2] in DECISIONS or route.name in ALSO_DECISIONS
        free = route.method == "get" or route.name in ALWAYS or decides
        assert (answer.status_code == 403 and answer.json()["code"] == "not_opted_in") != free, route


def test_user_without_profile_is_not_opted_in():
    user = make_user()
    Profile.objects.all().delete()
    assert client_of(user).post("/api/v1/projects", {"name": "x"}, format="json").json()["code"] == "not_opted_in"
    assert client_of(user).get("/api/v1/me").json()["opted_in"] is False


def test_user_opts_in_and_out():
    user = make_user(opted_in=False)
    client = client_of(user)
    assert client.patch("/api/v1/me", {"opted_in": True}, format="json").json()["opted_in"] is True
    assert client.post("/api/v1/projects", {"name": "x"}, format="json").status_code == 201
    session = make_session(owner=user)
    gone = client.patch("/api/v1/me", {"opted_in": False, "halt_all": True}, format="json")
    assert gone.json()["opted_in"] is False
    assert AgentSession.objects.get(pk=session.pk).halt_state == "halt_requested"
    assert client.get(SESSIONS).json()["count"] == 1


def test_user_switches_email_notifications(api, person):
    assert api.patch("/api/v1/me", {"email_notices": False}, format="json").json()["email_notices"] is False
    assert Channel.objects.get(owner=person).enabled is False
    assert Profile.objects.get(user=person).opted_in is True


def test_halt_all_is_refused_without_opting_out(api):
    for body in ({"halt_all": True}, {"halt_all": True, "opted_in": True}):
        answer = api.patch("/api/v1/me", body, format="json")
        assert (answer.status_code, list(answer.json()["detail"])) == (422, ["halt_all"])


# --- a signed-in browser ---


def test_browser_session_can_read(person):
    client = CheckedClient()
    client.force_login(person)
    me = client.get("/api/v1/me").json()
    assert (me["username"], me["key_expires_at"]) == (person.username, None)


def test_browser_session_needs_a_csrf_token(person):
    client = CheckedClient(enforce_csrf_checks=True)
    client.force_login(person)
    refused = client.post("/api/v1/projects", {"name": "x"}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    token = get_token(RequestFactory().get("/"))
    client.cookies["csrftoken"] = token
    assert client.post("/api/v1/projects", {"name": "x"}, format="json", HTTP_X_CSRFTOKEN=token).status_code == 201


def test_key_needs_no_csrf_token(person):
    client = CheckedClient(enforce_csrf_checks=True)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {key_of(person)}")
    assert client.post("/api/v1/projects", {"name": "x"}, format="json").status_code == 201


# --- mass assignment ---


@pytest.mark.parametrize(
    "name", ["owner", "id", "public_id", "next_run_at", "secret_generation", "deleted_at", "edited_by"]
)
def test_internal_columns_cannot_be_written(api, person, name):
    trigger = Trigger.objects.create(owner=person, kind="manual", name="x")
    answer = api.patch(f"/api/v1/triggers/{trigger.public_id}", {name: 7}, format="json")
    assert (answer.status_code, list(answer.json()["detail"])) == (422, [name])


@pytest.mark.parametrize("method", ["put", "patch", "delete"])
def test_session_cannot_be_written(api, person, method):
    session = make_session(owner=person)
    answer = getattr(api, method)(f"{SESSIONS}/{session.public_id}", {"status": "completed"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
