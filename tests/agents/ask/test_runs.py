"""Runs and schedules in words: runs start as everywhere, schedules stay drafts."""

import pytest

from agents.ask.entry import route
from agents.ask.naming import Kind
from agents.enums import TriggerKind
from agents.exceptions import Invalid
from agents.models import AgentSession, Playbook, PromptSkill, Trigger
from agents.triggers.schedules import schedules_fire
from agents.triggers.triggers import trigger_create
from tests.agents.ask.scene import asked, last_row, make_scene, nothing_was_inferred, trail
from tests.agents.triggers.rows import make_collection, make_document, make_playbook
from tests.factories import NOW, make_session, make_starter, make_trigger, make_user, start_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene()


def test_run_leaves_the_same_audit_events(scene):
    since = last_row()
    answer = asked(scene, "Run playbook Lease on collection Leases, please.")
    said = trail(since)
    since = last_row()
    start_run(owner=scene.owner, by=scene.owner, now=NOW, playbook=scene.playbook, collection=scene.collection)

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


def test_ambiguous_name_lists_choices(scene):
    make_trigger(owner=scene.owner, name="weekly scan")
    since = last_row()
    answer = asked(scene, "run the weekly scan")
    assert (answer.kind, len(answer.data["choices"])) == (Kind.ANSWER, 2)
    assert trail(since) == []


def test_word_beside_a_name_chooses_its_kind(scene):
    make_document(scene.owner, name="lease")
    make_playbook(scene.owner, name="Leases")
    params = asked(scene, "run playbook Lease on collection Leases").session.params
    assert (params["playbook"], params["collection"]) == (
        str(scene.playbook.public_id),
        str(scene.collection.public_id),
    )
    assert asked(scene, "run Lease").data["choices"]


def test_run_without_a_source_is_not_started(scene):
    answer = asked(scene, "run playbook Lease")
    assert (answer.kind, answer.data["missing"]) == (Kind.ANSWER, ["read"])


def test_run_of_an_unnamed_playbook_lists_what_exists(scene):
    assert "Lease" in [row["name"] for row in asked(scene, "run playbook").data["choices"]]


def test_names_of_another_user_are_unknown(scene):
    stranger = make_starter()
    assert asked(scene, "run trigger weekly scan", by=stranger).data["choices"] == []
    assert asked(scene, "every hour run Lease on Leases", by=stranger).data["missing"] == ["playbook", "collection"]
    assert not AgentSession.objects.filter(trigger=scene.trigger).exists()


def test_deleted_trigger_has_no_name(scene):
    Trigger.objects.filter(pk=scene.trigger.pk).update(deleted_at=NOW)
    assert asked(scene, "run trigger weekly scan").text.startswith("Nothing was started.")


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
    assert "switch it on" in answer.text
    assert nothing_was_inferred()


def test_draft_leaves_the_same_audit_events(scene):
    since = last_row()
    asked(scene, "every 6 hours run playbook Lease on Leases")
    said = trail(since)
    since = last_row()
    go = {"playbook": scene.playbook, "collection": scene.collection}
    trigger_create(owner=scene.owner, kind="schedule", name="x", cron="0 * * * *", by=scene.owner, now=NOW, **go)
    assert said == trail(since) != []


def test_same_schedule_is_drafted_once(scene):
    text = "every hour run Lease on Leases"
    first = asked(scene, text)
    since = last_row()
    again = asked(scene, text)
    assert (again.kind, again.data) == (Kind.DRAFT, first.data)
    assert again.text.startswith("Already drafted, and switched off: Lease on Leases")
    assert trail(since) == []
    found = route(text=text, by=scene.owner, now=NOW)
    assert (found.kind, found.lever) == (Kind.DRAFT, False)
    assert found.text.startswith("Already drafted")


@pytest.mark.parametrize(
    "change",
    [{"enabled": True}, {"cron": "0 6 * * *"}, {"deleted_at": NOW}, {"query": "term"}, {"zone": "Europe/Berlin"}],
    ids=lambda change: next(iter(change)),
)
def test_changed_draft_is_not_reused(scene, change):
    first = asked(scene, "every hour run Lease on Leases").data["trigger"]
    Trigger.objects.filter(public_id=first).update(**change)
    assert asked(scene, "every hour run Lease on Leases").data["trigger"] != first


def test_used_or_different_draft_is_not_reused(scene):
    first = asked(scene, "every hour run Lease on Leases").data["trigger"]
    assert asked(scene, "every hour run nda-review on Leases").data["trigger"] != first
    assert asked(scene, "every hour run Lease on Leases", agent=scene.agent).data["trigger"] != first
    make_session(owner=scene.owner, trigger=Trigger.objects.get(public_id=first))
    assert asked(scene, "every hour run Lease on Leases").data["trigger"] != first


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
        ("every morning send me a summary of new documents", ["playbook", "collection"]),
    ],
)
def test_incomplete_schedule_is_not_drafted(scene, text, missing):
    make_playbook(scene.owner, name="Tenancy")
    make_collection(scene.owner, name="Archive")
    answer = asked(scene, text)
    assert (answer.kind, answer.data["missing"]) == (Kind.ANSWER, missing)
    assert not Trigger.objects.filter(kind="schedule").exists()


def test_incomplete_schedule_gets_choices_and_an_example(scene):
    make_playbook(scene.owner, name="Tenancy")
    answer = asked(scene, "every weekday at 7 send me a summary of Leases")
    assert answer.text.splitlines()[0] == (
        "No schedule was drafted. It still needs a playbook or skill. "
        "For example: every 6 hours run playbook <name> on collection <name>."
    )
    assert [row["name"] for row in answer.data["choices"]] == ["Lease", "Tenancy"]


@pytest.mark.parametrize(
    ("text", "cron", "assumed"),
    [
        ("every morning send me a summary of new documents", "0 6 * * *", "playbook Lease and collection Leases"),
        ("run Lease every 6 hours", "0 */6 * * *", "collection Leases"),
        ("check Leases every Friday at noon", "0 12 * * 5", "playbook Lease"),
        ("Please look each night for what is new in Leases", "0 0 * * *", "playbook Lease"),
    ],
)
def test_draft_assumes_the_only_playbook_or_collection(scene, text, cron, assumed):
    make_collection(make_user(), name="Of somebody else")
    answer = asked(scene, text)
    trigger = Trigger.objects.get(public_id=answer.data["trigger"])

    assert (answer.kind, trigger.cron, trigger.enabled) == (Kind.DRAFT, cron, False)
    assert (trigger.playbook, trigger.collection) == (scene.playbook, scene.collection)
    assert f"You did not name {assumed}: you have no other." in answer.text
    assert "not name" not in asked(scene, "every hour run Lease on Leases").text


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("every hour run Leese on Leases, would you", ["playbook"]),
        ("every hour read the collection Contractz for me", ["collection"]),
        ("every hour read Leases by the playbook Leese", ["playbook"]),
        ("every hour run Leese on Contractz, would you", ["playbook", "collection"]),
    ],
)
def test_unknown_name_in_a_schedule_is_not_replaced(scene, text, missing):
    answer = asked(scene, text)
    assert (answer.kind, answer.data["missing"]) == (Kind.ANSWER, missing)


def test_only_skill_is_used_if_there_are_no_playbooks(scene):
    Playbook.objects.all().delete()
    PromptSkill.objects.exclude(pk=scene.skill.pk).update(enabled=False)
    answer = asked(scene, "every morning send me a summary of new documents")
    assert Trigger.objects.get(public_id=answer.data["trigger"]).skill == scene.skill


def test_schedule_with_an_ambiguous_collection_lists_choices(scene):
    make_collection(scene.owner, name="leases")
    answer = asked(scene, "every hour run Lease on Leases")
    assert len(answer.data["choices"]) == 3
    assert not Trigger.objects.filter(kind="schedule").exists()
