"""The dry run: the same rules, and nothing done, stored, audited or asked of a model."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.ask import entry
from agents.ask.entry import route
from agents.ask.fast_paths import FAST_PATHS
from agents.exceptions import LqopsError, NotFound
from agents.models import Agent, AgentSession, Approval, Profile, Trigger
from tests.agents.ask.rows import make_chat, open_chat
from tests.agents.ask.scene import asked, last_row, make_scene, nothing_was_inferred, trail
from tests.agents.triggers.rows import halt_all, make_playbook, release_all
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db

GOAL = "Review all leases and list what is missing"
TABLE = """
help             |          | answer  | look  | read   | help
service_status   |          | answer  | look  | read   | is everything ok?
list_sessions    |          | answer  | look  | read   | list sessions
list_sessions    |          | answer  | look  | write  | list sesions
show_receipt     |          | answer  | look  | read   | show receipt {s}
halt_session     |          | answer  | lever | write  | halt session {s}
halt_session     |          | answer  | look  | write  | halt everything
switch_agent     |          | answer  | lever | write  | pause agent Clerk
switch_agent     |          | answer  | lever | write  | resume agent Clerk
switch_agent     |          | answer  | look  | write  | pause agent Clark
decide_approval  |          | answer  | lever | decide | approve {a} {d}
decide_approval  |          | answer  | lever | decide | reject {a} {d}
decide_approval  |          | answer  | look  | decide | approve {a}
run_now          |          | session | lever | write  | run the weekly scan
run_now          |          | session | lever | write  | run Lease on Leases
run_now          |          | answer  | look  | write  | run playbook Lease
create_schedule  |          | draft   | lever | write  | every hour run Lease on Leases
                 | DIRECT_RESPONSE | session | lever | write | What is a lease?
                 | GOAL            | session | lever | write | Review all leases and list what is missing
                 | SCRIPT          | session | lever | write | Run this script and show me the output
                 | SCHEDULED_TASK  | draft   | lever | write | every morning send me a summary of new documents
                 | SUB_AGENT       | draft   | lever | write | Create an agent that watches prices
                 | DIRECT_RESPONSE | session | lever | write | what happens if I halt session {s}?
"""


@pytest.fixture
def scene():
    return make_scene()


def routed(scene, text, **more):
    return route(text=text.format(s=scene.s, a=scene.a, d=scene.d), by=more.pop("by", scene.owner), now=NOW, **more)


@pytest.mark.parametrize("row", TABLE.strip("\n").splitlines(), ids=lambda row: row.rpartition("|")[2].strip())
def test_dry_run_shows_the_route_and_does_nothing(scene, row):
    path, strategy, kind, lever, scope, text = (part.strip() for part in row.split("|", 5))
    before = last_row()
    with CaptureQueriesContext(connection) as asked:
        found = routed(scene, text)

    assert (found.path, found.strategy or "", found.kind, found.scope) == (path, strategy, kind, scope)
    assert (found.lever, found.refused) == (lever == "lever", "")
    assert found.text
    assert not {query["sql"].split()[0] for query in asked} & {"INSERT", "UPDATE", "DELETE"}
    assert trail(before) == []
    assert nothing_was_inferred()


@pytest.mark.parametrize("path", FAST_PATHS, ids=lambda path: path.name)
def test_dry_run_agrees_with_the_request_itself(scene, path):
    text = path.example.partition(";")[0].replace("1f2e3d4c", "{a} {d}" if path.scope == "decide" else "{s}")
    found = routed(scene, text)
    answer = entry.ask(text=text.format(s=scene.s, a=scene.a, d=scene.d), by=scene.owner, now=NOW)
    assert (found.path, found.kind) == (answer.path, answer.kind)
    assert found.lever == (answer.changed or answer.kind != "answer")


def test_dry_run_lists_what_is_missing(scene):
    make_playbook(scene.owner, name="Tenancy")
    assert routed(scene, "check Leases every 6 hours").missing == ("playbook",)
    assert routed(scene, "approve {a}").missing == ("digest",)
    assert routed(scene, "Create an agent that watches prices").missing == ("autonomy", "sensors", "triggers")


@pytest.mark.parametrize("text", ["What is a lease?", "run the weekly scan", "resume agent Clerk", "Run this script"])
def test_dry_run_shows_a_missing_permission(scene, text):
    scene.owner.user_permissions.clear()
    scene.owner = type(scene.owner).objects.get(pk=scene.owner.pk)
    found = routed(scene, text)
    assert (found.text, found.lever, "not start" in found.refused) == ("Refused.", False, True)


def test_dry_run_does_not_reveal_rows_of_another_user(scene):
    stranger = make_user()
    assert "no run" in routed(scene, "halt session {s}", by=stranger).refused
    with pytest.raises(NotFound):
        routed(scene, "help", agent=make_agent())
    with pytest.raises(NotFound):
        routed(scene, "help", chat=open_chat().public_id)


def test_dry_run_in_a_chat(scene):
    chat = open_chat(scene.owner).public_id
    assert routed(scene, "stop", chat=chat).path == "halt_session"
    assert routed(scene, "Review all leases", chat=make_chat(scene.owner).public_id).strategy == "GOAL"


STARTS = ["run the weekly scan", "run Lease on Leases", GOAL, "What is a lease?", "Run this script", "start agent Beat"]


@pytest.fixture
def beat(scene):
    return make_agent(owner=scene.owner, name="Beat", definition="name: Beat\nautonomy:\n  enabled: true\n")


def is_refused(scene, text, **more):
    """Assert that the dry run shows the refusal that the request then gets; neither writes anything."""
    before = AgentSession.objects.count(), last_row()
    found = routed(scene, text, **more)
    with pytest.raises(LqopsError) as refusal:
        asked(scene, text, **more)
    assert (AgentSession.objects.count(), last_row()) == before
    assert (found.text, found.lever, found.refused) == ("Refused.", False, str(refusal.value))
    return found.refused


@pytest.mark.parametrize("text", STARTS)
def test_dry_run_shows_halt_and_missing_opt_in(scene, beat, text):
    assert routed(scene, text).refused == ""
    halt_all(reason="an incident")
    assert "an incident" in is_refused(scene, text)
    release_all()
    Profile.objects.filter(user=scene.owner).update(opted_in=False)
    assert "opted in" in is_refused(scene, text)


@pytest.mark.parametrize("text", STARTS[:-1])
def test_dry_run_for_an_agent_that_is_off_is_refused(scene, text):
    Agent.objects.update(enabled=False)
    scene.agent.refresh_from_db()
    assert "switched off" in is_refused(scene, text, agent=scene.agent)


def test_agent_without_a_loop_is_not_started(scene, beat):
    assert "has nothing to start" in is_refused(scene, "start agent Clerk")
    Agent.objects.update(enabled=False)
    assert "switched off" in routed(scene, "start agent Beat").refused


def test_running_agent_is_left_alone_while_work_is_halted(scene, beat):
    make_session(owner=scene.owner, agent=beat, mode="loop")
    halt_all()
    assert routed(scene, "start agent Beat").refused == ""


def test_trigger_without_a_collection_is_refused(scene):
    Trigger.objects.update(collection=None)
    assert "nothing to read" in is_refused(scene, "run the weekly scan")


def test_dry_run_in_a_busy_chat_is_refused(scene):
    chat = open_chat(scene.owner).public_id
    assert "still being answered" in is_refused(scene, "What is a lease, by the way?", chat=chat)


def test_approval_that_cannot_be_decided_is_refused(scene):
    assert "has changed" in is_refused(scene, "approve {a} 000000000000")
    Approval.objects.update(status="rejected")
    assert "is denied" in is_refused(scene, "reject {a} {d}")
    scene.owner.user_permissions.clear()
    scene.owner = type(scene.owner).objects.get(pk=scene.owner.pk)
    assert "may not decide" in is_refused(scene, "approve {a} {d}")
