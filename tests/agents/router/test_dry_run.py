"""What a text would do: said by the same rules, while nothing is done, stored, recorded or asked of a model."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.exceptions import NotFound
from agents.router import asking
from agents.router.asking import route
from agents.router.fast_paths import FAST_PATHS
from tests.agents.chat.rows import open_chat
from tests.agents.triggers.rows import make_playbook
from tests.factories import NOW, make_agent, make_user

from .scene import last_row, make_scene, nothing_was_inferred, trail

pytestmark = pytest.mark.django_db

TABLE = """
help             |          | answer  | look  | read   | help
service_status   |          | answer  | look  | read   | is everything ok?
list_sessions    |          | answer  | look  | read   | list sesions
show_receipt     |          | answer  | look  | read   | show receipt {s}
halt_session     |          | answer  | lever | write  | halt session {s}
halt_session     |          | answer  | look  | write  | halt everything
switch_agent     |          | answer  | lever | write  | pause agent Clerk
switch_agent     |          | answer  | lever | write  | resume agent Clerk
switch_agent     |          | answer  | lever | write  | start agent Clerk
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
    answer = asking.ask(text=text.format(s=scene.s, a=scene.a, d=scene.d), by=scene.owner, now=NOW)
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
    assert routed(scene, "Review all leases", chat=chat).strategy == "GOAL"
