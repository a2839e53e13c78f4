"""Watches are told of what is attached to their collections: each of them, once, and also after trouble."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from agents.enums import DocumentOrigin, TriggerKind
from agents.models import AgentSession, Attachment, Notification, Profile, Trigger
from agents.triggers import watches
from agents.triggers.firing import Fired, Refused
from agents.triggers.watches import watches_fire, watches_fire_unfired
from tests.factories import NOW, make_trigger, make_user

from .rows import attach, halt_all, make_collection, make_document, make_watch, reasons_of, release_all

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
DAY = timedelta(hours=24)


def fired_at(attachment):
    return Attachment.objects.get(pk=attachment.pk).watches_fired_at


def test_every_watch_on_the_collection_is_told_once():
    collection = make_collection()
    one, two, elsewhere = make_watch(collection), make_watch(collection), make_watch(make_collection())
    attachment = attach(collection)
    answers = watches_fire(attachment.pk, now=NOW)

    assert [answer.session.trigger for answer in answers] == [one, two]
    assert elsewhere.sessions.count() == 0
    session = one.sessions.get()
    assert (session.owner, session.trigger_kind, session.slot) == (one.owner, "watch", f"attach:{attachment.pk}")
    assert session.params == {
        "document": str(attachment.document.public_id),
        "collection": str(collection.public_id),
    }
    assert fired_at(attachment) == NOW


def test_said_again_it_spawns_nothing():
    collection = make_collection()
    make_watch(collection)
    attachment = attach(collection)
    watches_fire(attachment.pk, now=NOW)
    assert watches_fire(attachment.pk, now=NOW + MINUTE) == []
    Attachment.objects.update(watches_fired_at=None)  # as a crash just before the mark leaves it
    assert watches_fire(attachment.pk, now=NOW + MINUTE) == []
    assert AgentSession.objects.count() == 1
    assert fired_at(attachment) == NOW + MINUTE


def test_detaching_and_attaching_again_is_a_new_event():
    collection = make_collection()
    make_watch(collection)
    document = make_document(collection.owner)
    for number in range(2):
        attachment = attach(collection, document)
        watches_fire(attachment.pk, now=NOW)
        Attachment.objects.update(detached_at=NOW)
        assert AgentSession.objects.count() == number + 1


def test_the_session_belongs_to_the_owner_of_the_watch_whoever_attached():
    collection = make_collection()
    watch = make_watch(collection)
    watches_fire(attach(collection, attached_by=make_user()).pk, now=NOW)
    assert watch.sessions.get().owner == collection.owner


@pytest.mark.parametrize("fields", [{"enabled": False}, {"deleted_at": NOW}, {"kind": TriggerKind.SCHEDULE}])
def test_a_watch_out_of_use_is_not_told(fields):
    collection = make_collection()
    make_trigger(**{"owner": collection.owner, "kind": TriggerKind.WATCH, "collection": collection, **fields})
    attachment = attach(collection)
    assert watches_fire(attachment.pk, now=NOW) == []
    assert fired_at(attachment) == NOW


def test_what_a_watch_lets_pass_is_on_record_once_a_minute():
    collection = make_collection(make_user(opted_in=False))
    watch = make_watch(collection)
    for second in range(0, 120, 10):
        attachment = attach(collection)
        [answer] = watches_fire(attachment.pk, now=NOW + timedelta(seconds=second))
        assert answer.reason == "opted_out"
        assert fired_at(attachment) == NOW + timedelta(seconds=second)
    assert reasons_of(watch) == ["opted_out"] * 2
    assert (AgentSession.objects.count(), Notification.objects.count()) == (0, 0)
    Profile.objects.update(opted_in=True)
    assert watches_fire_unfired(now=NOW + DAY) == 0, "what has passed is not made up for"


@pytest.mark.parametrize("reason", ["failing", "storm", "by_hand"])
def test_documents_that_arrive_while_a_watch_is_paused_are_read_when_it_goes_on(reason):
    collection = make_collection()
    watch = make_watch(collection, paused_at=NOW, pause_reason=reason)
    for attachment in [attach(collection) for _ in range(3)]:
        watches_fire(attachment.pk, now=NOW)
    assert watches_fire_unfired(now=NOW + DAY) == 0
    Trigger.objects.update(paused_at=None, pause_reason="")
    assert watches_fire_unfired(now=NOW + 2 * DAY) == 3
    assert watch.sessions.count() == 3


@pytest.mark.parametrize(
    ("document", "attachment"),
    [({"origin": DocumentOrigin.ARTIFACT}, {}), ({"deleted_at": NOW}, {}), ({}, {"detached_at": NOW})],
)
def test_nobody_is_told_of_what_a_run_has_written_or_of_what_is_gone(document, attachment):
    collection = make_collection()
    make_watch(collection)
    made = attach(collection, make_document(collection.owner, **document), **attachment)
    assert watches_fire(made.pk, now=NOW) == []
    assert fired_at(made) == NOW
    assert not AgentSession.objects.exists()


def test_an_attachment_that_does_not_exist_is_no_error():
    assert watches_fire(0, now=NOW) == []


def test_while_all_work_is_halted_nobody_is_told_and_nothing_is_marked():
    collection = make_collection()
    make_watch(collection)
    attachment = attach(collection)
    halt_all()
    assert watches_fire(attachment.pk, now=NOW) == []
    assert watches_fire_unfired(now=NOW + 2 * DAY) == 0
    assert fired_at(attachment) is None
    release_all()
    assert watches_fire_unfired(now=NOW + 3 * DAY) == 1
    assert reasons_of(Trigger.objects.get()) == []


def test_a_halt_that_comes_between_two_watches_leaves_the_second_for_later():
    collection = make_collection()
    first, second = make_watch(collection), make_watch(collection)
    attachment = attach(collection)
    fire = watches.trigger_fire

    def fire_and_halt(*, trigger, **more):
        answer = fire(trigger=trigger, **more)
        halt_all()
        return answer

    with patch.object(watches, "trigger_fire", fire_and_halt):
        answers = watches_fire(attachment.pk, now=NOW + 2 * DAY)
    assert [type(answer) for answer in answers] == [Fired, Refused]
    assert fired_at(attachment) is None
    release_all()
    assert watches_fire_unfired(now=NOW + 2 * DAY) == 1
    assert first.sessions.count() == second.sessions.count() == 1
