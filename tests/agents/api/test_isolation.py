"""Nobody reaches anybody else's rows, whatever their role: every route of the API, found from its addresses.

A route that is added without a row here fails, because the table names a row for each kind of thing.
"""

import pytest
from django.apps import apps
from django.contrib.auth.models import Group

from agents.accounts import roles_sync
from agents.enums import Outcome
from agents.models import Agent, AgentSession, Approval, ToolCall, Trigger
from audit.models import AuditEvent
from tests.factories import NOW, make_user

from .conftest import client_of
from .contract import CheckedClient
from .world import make_world, routes, undone

pytestmark = pytest.mark.django_db

ROLES = ("viewer", "operator", "approver", "admin")
EVERYBODY = ["stranger", "superuser", *ROLES]
DETAIL = [route for route in routes() if route.is_detail]
# Who reaches what is not theirs, and why. Everything else is not found.
REACHED = {
    ("approval", "approver"): "deciding on everybody's approvals is the task",
    ("approval", "admin"): "holds the same permission",
    ("approval", "superuser"): "holds every permission",
    **{("question", who): "whoever decides also answers" for who in ("approver", "admin", "superuser")},
    **{("approval-rule", who): "writes the rules of the installation" for who in ("operator", "admin", "superuser")},
    **{
        (thing, who): "belongs to the installation"
        for thing in ("skill", "callable-skill")
        for who in ("stranger", "superuser", *ROLES)
    },
}
# What begins a session, or sets up what does, is refused before it is looked for, unless the role may begin sessions.
STARTS = {
    *(f"agent:{act}" for act in ("start", "restart", "resume", "define")),
    "session:restart",
    "session:resume",
    *(f"trigger:{act}" for act in ("run", "partial_update", "resume", "rotate_secret", "caps")),
    "unread-input:retry",
}
MAY_START = {"superuser", "operator", "admin"}


def somebody(role):
    if role == "superuser":
        return make_user(is_staff=True, is_superuser=True)
    user = make_user(is_staff=role != "stranger")
    if role != "stranger":
        roles_sync(apps=apps, using="default")
        user.groups.add(Group.objects.get(name=role))
    return user


def send(client, route, world):
    return getattr(client, route.method)(route.address(world), {}, format="json" if route.method != "get" else None)


def test_every_resource_has_a_row():
    assert {route.basename for route in DETAIL} == set(make_world().rows)


def test_the_routes_are_found():
    found = {(route.method, route.path) for route in routes()}
    assert len(DETAIL) > 45
    assert {
        ("post", "v1/sessions/<uuid:id>/halt"),
        ("post", "v1/approvals/<uuid:id>/approve"),
        ("post", "v1/triggers/events"),
        ("get", "v1/me"),
    } <= found


def test_every_route_needs_a_key():
    world, client = make_world(), CheckedClient()
    for route in routes():
        answer = send(client, route, world)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated"), route
        assert answer["WWW-Authenticate"].startswith("Bearer"), route


@pytest.mark.parametrize("role", EVERYBODY)
def test_row_of_another_user_is_not_found(role, some):
    world, client = make_world(), client_of(somebody(role))
    for route in some(DETAIL, 12, start=EVERYBODY.index(role)):
        answer = send(client, route, world)
        if (route.basename, role) in REACHED:
            assert answer.status_code not in {404, 500}, route
        elif route.name in STARTS and role not in MAY_START:
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), route
        else:
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), route


@pytest.mark.sampled(2)
@pytest.mark.parametrize("role", EVERYBODY)
def test_starting_sessions_needs_the_permission(role):
    person = somebody(role)
    world, client = make_world(person), client_of(person)
    before = AgentSession.objects.count()
    client.post("/api/v1/chats", {"message": "What is a lease?"}, format="json")
    client.post("/api/v1/asks", {"text": "What is a lease?"}, format="json")
    skill, collection = (str(world.rows[name].public_id) for name in ("playbook", "collection"))
    client.post("/api/v1/run-now", {"playbook": skill, "collection": collection}, format="json")
    client.post(f"/api/v1/triggers/{world.rows['trigger'].public_id}/run", {}, format="json")
    client.post(f"/api/v1/sessions/{world.over.public_id}/restart", {}, format="json")
    started = AgentSession.objects.count() - before
    assert started == (4 if role in MAY_START else 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("role", ["stranger", "viewer", "approver"])
def test_user_without_start_may_read_pause_halt_and_delete(role):
    person = somebody(role)
    world, client = make_world(person), client_of(person)
    trigger = f"/api/v1/triggers/{world.rows['trigger'].public_id}"
    agent = f"/api/v1/agents/{world.rows['agent'].public_id}"
    assert client.get(trigger).status_code == 200
    assert client.post("/api/v1/triggers/events/dry-run", {}, format="json").status_code == 200
    assert client.post(f"{trigger}/pause", {}, format="json").status_code == 200
    assert client.delete(trigger).status_code == 204
    assert client.post(f"{agent}/halt", {"reason": "x"}, format="json").status_code == 200
    assert client.post(f"{agent}/stop", {}, format="json").status_code == 200
    assert client.patch(agent, {"enabled": False, "mode": "manual"}, format="json").status_code == 200
    assert client.post("/api/v1/sessions/halt-all", {}, format="json").status_code == 200


@pytest.mark.sampled(2)
@pytest.mark.parametrize("role", EVERYBODY)
def test_setting_up_triggers_needs_the_permission(role):
    person = somebody(role)
    world, client = make_world(person), client_of(person)
    rows = {name: str(row.public_id) for name, row in world.rows.items()}
    named = {"playbook": rows["playbook"], "collection": rows["collection"]}
    yaml = "name: {}\ntriggers:\n  - {{name: T, kind: watch, playbook: Lease, collection: Leases}}\n"
    Agent.objects.filter(public_id=rows["agent"]).update(enabled=False)
    sent = [
        client.post("/api/v1/triggers", {"kind": "watch", "name": "W", **named}, format="json"),
        client.patch(f"/api/v1/triggers/{rows['trigger']}", {"enabled": True}, format="json"),
        client.post(f"/api/v1/triggers/{rows['trigger']}/resume", {}, format="json"),
        client.post("/api/v1/triggers/events", {"source": "monitor"}, format="json"),
        client.post("/api/v1/agents/import", {"definition": yaml.format("A")}, format="json"),
        client.patch(f"/api/v1/agents/{rows['agent']}", {"enabled": True}, format="json"),
    ]
    if role in MAY_START:
        assert {answer.status_code for answer in sent} <= {200, 201}, [answer.content for answer in sent]
    else:
        assert {(answer.status_code, answer.json()["code"]) for answer in sent} == {(403, "not_allowed")}
        assert not Trigger.objects.exclude(public_id=rows["trigger"]).exists()
        assert not Agent.objects.filter(enabled=True).exists()


def test_owner_reaches_every_row(some):
    """Without this, a table of wrong ids would make every other test here pass."""
    world = make_world()
    client = client_of(world.owner)
    for route in some(DETAIL, 3):
        with undone():
            assert send(client, route, world).status_code not in {401, 404, 405, 500}, route


@pytest.mark.sampled(2)
@pytest.mark.parametrize("role", EVERYBODY)
def test_lists_hold_only_own_rows(role):
    make_world()
    client = client_of(somebody(role))
    for route in routes():
        if route.method != "get" or route.is_detail or not route.name.endswith(":list"):
            continue
        found = client.get(route.address()).json()["results"]
        assert bool(found) == ((route.basename, role) in REACHED), route.name


def test_unknown_id_and_foreign_id_get_the_same_answer():
    """Rows of other users cannot be distinguished from missing ones."""
    world, client = make_world(), client_of(make_user())
    theirs = client.get(f"/api/v1/sessions/{world.rows['session'].public_id}").json()
    nobodys = client.get("/api/v1/sessions/00000000-0000-4000-8000-000000000000").json()
    assert (theirs["code"], theirs["message"]) == (nobodys["code"], nobodys["message"])


def test_viewing_another_users_approval_is_recorded():
    world, approver = make_world(), somebody("approver")
    address = f"/api/v1/approvals/{world.rows['approval'].public_id}"
    assert client_of(approver).get(address).status_code == 200
    assert client_of(world.owner).get(address).status_code == 200
    [seen] = AuditEvent.objects.filter(kind="session.viewed")
    assert seen.actor.startswith(f"user:{approver.pk}:key:")
    assert seen.details == {"session_id": str(world.waiting.public_id)}


def test_approver_reaches_only_calls_with_unknown_outcome():
    world, client = make_world(), client_of(somebody("approver"))
    call = world.rows["tool-call"]
    assert client.get("/api/v1/tool-calls").json()["count"] == 0
    ToolCall.objects.filter(pk=call.pk).update(outcome=Outcome.UNKNOWN, settled_at=NOW, unknown_since=NOW)
    assert client.get("/api/v1/tool-calls").json()["count"] == 1
    answer = client.post(f"/api/v1/tool-calls/{call.public_id}/resolve", {"decision": "happened"}, format="json")
    assert (answer.status_code, answer.json()["outcome"]) == (200, "success")
    assert client.get(f"/api/v1/tool-calls/{call.public_id}").status_code == 404


BINDINGS = [
    ("triggers", {"kind": "manual", "name": "x", "project": "project"}),
    ("triggers", {"kind": "watch", "name": "x", "collection": "collection"}),
    ("triggers", {"kind": "manual", "name": "x", "playbook": "playbook"}),
    ("triggers", {"kind": "manual", "name": "x", "agent": "agent"}),
    ("run-now", {"playbook": "playbook"}),
    ("run-now", {"project": "project"}),
    ("run-now", {"collection": "collection"}),
    ("run-now", {"document": "document"}),
    ("run-now", {"agent": "agent"}),
    ("run-now/estimate", {"playbook": "playbook"}),
    ("run-now/estimate", {"collection": "collection"}),
    ("run-now/estimate", {"document": "document"}),
    ("triggers/set-cap", {"triggers": ["trigger"], "max_cost_usd": "1"}),
]


def test_binding_to_another_users_row_is_not_found():
    theirs, mine = make_world(), make_world()
    client = client_of(mine.owner)

    def named(value):
        if isinstance(value, list):
            return [named(item) for item in value]
        return str(theirs.rows[value].public_id) if value in theirs.rows else value

    for address, body in BINDINGS:
        given = {name: named(value) for name, value in body.items()}
        answer = client.post(f"/api/v1/{address}", given, format="json")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (address, body)


def test_patch_cannot_bind_a_trigger_to_foreign_rows():
    theirs, mine = make_world(), make_world()
    address = f"/api/v1/triggers/{mine.rows['trigger'].public_id}"
    client = client_of(mine.owner)
    for binding in ("project", "collection", "playbook", "agent"):
        body = {binding: str(theirs.rows[binding].public_id)}
        assert client.patch(address, body, format="json").status_code == 404, binding
        own = {binding: str(mine.rows[binding].public_id)}
        assert client.patch(address, own, format="json").status_code == 200, binding
        cleared = client.patch(address, {binding: None}, format="json")
        if binding == "playbook":  # without it, the trigger would check against nothing
            assert cleared.status_code == 422
        else:
            assert cleared.json()[binding] is None, binding


@pytest.mark.parametrize("kind", ["watch", "schedule"])
def test_trigger_cannot_join_another_users_project(kind):
    theirs, mine = make_world(), make_world()
    client, project = client_of(mine.owner), str(theirs.rows["project"].public_id)
    body = {"kind": kind, "name": "x", "collection": str(mine.rows["collection"].public_id)}
    body["playbook"] = str(mine.rows["playbook"].public_id)
    body |= {"cron": "0 6 * * 1"} if kind == "schedule" else {}
    assert client.post("/api/v1/triggers", {**body, "project": project}, format="json").status_code == 404
    made = client.post("/api/v1/triggers", body, format="json").json()
    address = f"/api/v1/triggers/{made['id']}"
    assert client.patch(address, {"project": project}, format="json").status_code == 404
    assert client.get(address).json()["project"] is None


def test_decisions_on_own_approvals_need_the_permission():
    world = make_world()
    approval = world.rows["approval"]
    client = client_of(world.owner)
    for verb in ("approve", "deny", "approve-for-session"):
        address = f"/api/v1/approvals/{approval.public_id}/{verb}"
        answer = client.post(address, {"digest": approval.digest}, format="json")
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert Approval.objects.get().status == "pending"
