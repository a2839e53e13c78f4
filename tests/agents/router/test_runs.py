"""Work that is started by words: runs under the same service as any other, and schedules that stay drafts."""

import pytest

from agents.enums import TriggerKind
from agents.exceptions import Invalid
from agents.models import AgentSession, Trigger
from agents.router.answers import Kind
from agents.services.firing import run_now, schedules_fire
from agents.services.triggers import trigger_create
from tests.agents.triggers.rows import make_collection, make_document, make_playbook
from tests.factories import NOW, make_trigger, make_user

from .scene import asked, last_row, make_scene, nothing_was_inferred, trail

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene()


def test_run_by_words_leaves_the_record_of_the_service(scene):
    since = last_row()
    answer = asked(scene, "Run playbook Lease on collection Leases, please.")
    said = trail(since)
    since = last_row()
    run_now(owner=scene.owner, by=scene.owner, now=NOW, playbook=scene.playbook, collection=scene.collection)

    assert said == trail(since) != []
    params = answer.session.params
    assert (params["playbook"], params["collection"]) == (
        str(scene.playbook.public_id),
        str(scene.collection.public_id),
    )
    assert nothing_was_inferred()


def test_trigger_is_run_by_its_name(scene):
    session = asked(scene, "start the Weekly Scan right now").session
    assert (session.trigger, session.trigger_kind) == (scene.trigger, TriggerKind.MANUAL)


def test_document_is_read_by_a_skill(scene):
    params = asked(scene, "run skill nda-review on acme.txt", agent=scene.agent).session.params
    assert (params["skill"], params["document"]) == ("nda-review", str(scene.document.public_id))


def test_run_by_public_ids(scene):
    session = asked(scene, f"run trigger {scene.trigger.public_id}").session
    assert session.trigger == scene.trigger


def test_name_that_two_things_bear_is_asked_about(scene):
    make_trigger(owner=scene.owner, name="weekly scan")
    since = last_row()
    answer = asked(scene, "run the weekly scan")
    assert (answer.kind, len(answer.data["choices"])) == (Kind.ANSWER, 2)
    assert trail(since) == []


def test_words_beside_a_name_say_which_thing_is_meant(scene):
    make_document(scene.owner, name="lease")
    make_playbook(scene.owner, name="Leases")
    params = asked(scene, "run playbook Lease on collection Leases").session.params
    assert (params["playbook"], params["collection"]) == (
        str(scene.playbook.public_id),
        str(scene.collection.public_id),
    )
    assert asked(scene, "run Lease").data["choices"]


def test_run_without_anything_to_read_says_so(scene):
    answer = asked(scene, "run playbook Lease")
    assert (answer.kind, answer.data["missing"]) == (Kind.ANSWER, ["read"])


def test_run_of_an_unnamed_playbook_lists_them(scene):
    assert [row["name"] for row in asked(scene, "run playbook").data["choices"]] == ["Lease"]


def test_names_of_somebody_else_are_no_names(scene):
    stranger = make_user()
    assert "Nothing was done" in asked(scene, "run the weekly scan", by=stranger).text
    assert asked(scene, "every hour run Lease on Leases", by=stranger).data["missing"] == ["playbook", "collection"]
    assert not AgentSession.objects.filter(trigger=scene.trigger).exists()


def test_deleted_things_have_no_names(scene):
    Trigger.objects.filter(pk=scene.trigger.pk).update(deleted_at=NOW)
    assert "Nothing was done" in asked(scene, "run the weekly scan").text


def test_run_for_an_agent_that_is_off_is_refused(scene):
    scene.agent.enabled = False
    scene.agent.save()
    with pytest.raises(Invalid, match="switched off"):
        asked(scene, "run the weekly scan", agent=scene.agent)


# --- schedules ---


@pytest.mark.parametrize(
    ("text", "cron"),
    [
        ("every 6 hours run playbook Lease on Leases", "0 */6 * * *"),
        ("Please run Lease on Leases every 15 minutes", "*/15 * * * *"),
        ("schedule Lease over Leases hourly", "0 * * * *"),
        ("check Leases with Lease every Monday at 9:30", "30 9 * * 1"),
        ("run nda-review on the collection Leases daily at 6pm", "0 18 * * *"),
    ],
)
def test_schedule_is_drafted_and_switched_off(scene, text, cron):
    answer = asked(scene, text)
    trigger = Trigger.objects.get(public_id=answer.data["trigger"])

    assert (answer.kind, answer.path) == (Kind.DRAFT, "create_schedule")
    assert (trigger.cron, trigger.zone, trigger.enabled, trigger.collection) == (cron, "UTC", False, scene.collection)
    assert "switched it on" in answer.text
    assert nothing_was_inferred()


def test_draft_leaves_the_record_of_the_service(scene):
    since = last_row()
    asked(scene, "every 6 hours run playbook Lease on Leases")
    said = trail(since)
    since = last_row()
    go = {"playbook": scene.playbook, "collection": scene.collection}
    trigger_create(owner=scene.owner, kind="schedule", name="x", cron="0 * * * *", by=scene.owner, now=NOW, **go)
    assert said == trail(since) != []


def test_draft_never_fires(scene):
    asked(scene, "every minute run playbook Lease on Leases")
    assert schedules_fire(now=NOW.replace(year=2027)) == 0


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("run Lease every 7 minutes on Leases", ["when"]),
        ("run Lease every 6 hours", ["collection"]),
        ("check Leases every 6 hours", ["playbook"]),
        ("create a schedule every 5 hours", ["when", "playbook", "collection"]),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_drafted(scene, text, missing):
    answer = asked(scene, text)
    assert (answer.kind, answer.data["missing"]) == (Kind.ANSWER, missing)
    assert not Trigger.objects.filter(kind="schedule").exists()


def test_schedule_that_could_mean_two_collections_is_asked_about(scene):
    make_collection(scene.owner, name="leases")
    answer = asked(scene, "every hour run Lease on Leases")
    assert len(answer.data["choices"]) == 2
    assert not Trigger.objects.filter(kind="schedule").exists()
