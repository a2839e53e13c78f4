"""What a text would do: said by the same rules, while nothing is done, stored, recorded or asked of a model."""

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
list_sessions    |          | answer  | look  | read   | list sesions
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
def test_it_says_what_would_be_done_and_does_nothing(scene, row):
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
def test_it_agrees_with_what_is_then_done(scene, path):
    text = path.example.partition(";")[0].replace("1f2e3d4c", "{a} {d}" if path.scope == "decide" else "{s}")
    found = routed(scene, text)
    answer = entry.ask(text=text.format(s=scene.s, a=scene.a, d=scene.d), by=scene.owner, now=NOW)
    assert (found.path, found.kind) == (answer.path, answer.kind)
    assert found.lever == (answer.changed or answer.kind != "answer")


def test_it_says_what_is_missing(scene):
    make_playbook(scene.owner, name="Tenancy")
    assert routed(scene, "check Leases every 6 hours").missing == ("playbook",)
    assert routed(scene, "approve {a}").missing == ("digest",)
    assert routed(scene, "Create an agent that watches prices").missing == ("autonomy", "sensors", "triggers")


@pytest.mark.parametrize("text", ["What is a lease?", "run the weekly scan", "resume agent Clerk", "Run this script"])
def test_it_says_what_would_be_refused(scene, text):
    scene.owner.user_permissions.clear()
    scene.owner = type(scene.owner).objects.get(pk=scene.owner.pk)
    found = routed(scene, text)
    assert (found.text, found.lever, "not start" in found.refused) == ("Is refused.", False, True)


def test_it_knows_nothing_of_somebody_elses_rows(scene):
    stranger = make_user()
    assert "no session" in routed(scene, "halt session {s}", by=stranger).refused
    with pytest.raises(NotFound):
        routed(scene, "help", agent=make_agent())
    with pytest.raises(NotFound):
        routed(scene, "help", chat=open_chat().public_id)


def test_in_a_chat_it_says_what_is_said_there(scene):
    chat = open_chat(scene.owner).public_id
    assert routed(scene, "stop", chat=chat).path == "halt_session"
    assert routed(scene, "Review all leases", chat=make_chat(scene.owner).public_id).strategy == "GOAL"


STARTS = ["run the weekly scan", "run Lease on Leases", GOAL, "What is a lease?", "Run this script", "start agent Beat"]


@pytest.fixture
def beat(scene):
    return make_agent(owner=scene.owner, name="Beat", definition="name: Beat\nautonomy:\n  enabled: true\n")


def is_refused_as_told(scene, text, **more):
    """What the dry run says is what the same words then meet; nothing is written by either."""
    before = AgentSession.objects.count(), last_row()
    found = routed(scene, text, **more)
    with pytest.raises(LqopsError) as refusal:
        asked(scene, text, **more)
    assert (AgentSession.objects.count(), last_row()) == before
    assert (found.text, found.lever, found.refused) == ("Is refused.", False, str(refusal.value))
    return found.refused


@pytest.mark.parametrize("text", STARTS)
def test_what_would_start_is_refused_while_all_work_is_halted_and_without_opt_in(scene, beat, text):
    assert routed(scene, text).refused == ""
    halt_all(reason="an incident")
    assert "an incident" in is_refused_as_told(scene, text)
    release_all()
    Profile.objects.filter(user=scene.owner).update(opted_in=False)
    assert "opted in" in is_refused_as_told(scene, text)


@pytest.mark.parametrize("text", STARTS[:-1])
def test_what_an_agent_that_is_off_is_to_do_is_refused(scene, text):
    Agent.objects.update(enabled=False)
    scene.agent.refresh_from_db()
    assert "switched off" in is_refused_as_told(scene, text, agent=scene.agent)


def test_agent_that_cannot_start_by_itself_is_not_started(scene, beat):
    assert "has nothing to start" in is_refused_as_told(scene, "start agent Clerk")
    Agent.objects.update(enabled=False)
    assert "switched off" in routed(scene, "start agent Beat").refused


def test_agent_that_is_under_way_is_left_alone_also_while_all_work_is_halted(scene, beat):
    make_session(owner=scene.owner, agent=beat, mode="loop")
    halt_all()
    assert routed(scene, "start agent Beat").refused == ""


def test_trigger_that_has_nothing_to_read_is_not_run(scene):
    Trigger.objects.update(collection=None)
    assert "nothing to read" in is_refused_as_told(scene, "run the weekly scan")


def test_chat_that_is_still_being_answered_takes_no_other_message(scene):
    chat = open_chat(scene.owner).public_id
    assert "still being answered" in is_refused_as_told(scene, "What is a lease, by the way?", chat=chat)


def test_approval_that_cannot_be_decided_is_refused(scene):
    assert "has changed" in is_refused_as_told(scene, "approve {a} 000000000000")
    Approval.objects.update(status="rejected")
    assert "is rejected" in is_refused_as_told(scene, "reject {a} {d}")
    scene.owner.user_permissions.clear()
    scene.owner = type(scene.owner).objects.get(pk=scene.owner.pk)
    assert "may not decide" in is_refused_as_told(scene, "approve {a} {d}")
