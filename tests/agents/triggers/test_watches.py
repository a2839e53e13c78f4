"""Watches are told of what is attached to their collections: each of them, once, and also after trouble."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from agents.enums import DocumentOrigin, TriggerKind
from agents.models import AgentSession, Attachment, Trigger
from agents.services import watches
from agents.services.firing import Fired, Reason, Refused, watches_fire, watches_fire_unfired
from tests.factories import NOW, make_trigger, make_user

from .rows import attach, halt_all, make_collection, make_document, reasons_of, release_all, rows_of

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
DAY = timedelta(hours=24)


def make_watch(collection, **fields):
    return make_trigger(owner=collection.owner, kind=TriggerKind.WATCH, collection=collection, **fields)


def fired_at(attachment):
    return Attachment.objects.get(pk=attachment.pk).watches_fired_at


def failing(*broken):
    """Firing works but for these triggers."""
    fire = watches.trigger_fire

    def fire_or_fail(*, trigger, **more):
        if trigger.pk in {one.pk for one in broken}:
            raise RuntimeError("no")
        return fire(trigger=trigger, **more)

    return patch.object(watches, "trigger_fire", fire_or_fail)


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


@pytest.mark.parametrize(
    "fields", [{"enabled": False}, {"deleted_at": NOW}, {"paused_at": NOW}, {"kind": TriggerKind.SCHEDULE}]
)
def test_a_watch_out_of_use_is_not_told(fields):
    collection = make_collection()
    make_trigger(**{"owner": collection.owner, "kind": TriggerKind.WATCH, "collection": collection, **fields})
    attachment = attach(collection)
    assert watches_fire(attachment.pk, now=NOW) == []
    assert fired_at(attachment) == NOW


def test_the_watch_of_an_owner_who_opted_out_is_not_told():
    collection = make_collection(make_user(opted_in=False))
    make_watch(collection)
    assert watches_fire(attach(collection).pk, now=NOW) == []


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


def test_a_watch_that_fails_stops_no_other_and_is_told_again(caplog):
    collection = make_collection()
    bad, good = make_watch(collection), make_watch(collection)
    attachment = attach(collection)
    with failing(bad):
        assert [answer.session.trigger for answer in watches_fire(attachment.pk, now=NOW)] == [good]
    assert "could not be told" in caplog.text
    assert fired_at(attachment) is None
    assert watches_fire_unfired(now=NOW + MINUTE) == 1
    assert bad.sessions.count() == good.sessions.count() == 1
    assert fired_at(attachment) == NOW + MINUTE


def test_a_watch_that_keeps_failing_is_given_up_after_a_day():
    collection = make_collection()
    bad, good = make_watch(collection), make_watch(collection)
    attachment = attach(collection)
    with failing(bad):
        watches_fire(attachment.pk, now=NOW)
        watches_fire_unfired(now=NOW + DAY - MINUTE)
        assert fired_at(attachment) is None
        watches_fire_unfired(now=NOW + DAY)
    assert fired_at(attachment) == NOW + DAY
    assert rows_of("autonomous_trigger.refused", bad) == [
        {"trigger_id": str(bad.public_id), "reason": "gave_up", "slot": f"attach:{attachment.pk}"}
    ]
    assert reasons_of(good) == []
    assert watches_fire_unfired(now=NOW + DAY) == 0


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


# --- More than fits into an hour ---


def test_a_watch_puts_off_what_does_not_fit_into_the_hour_and_loses_nothing():
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=10)
    for _ in range(25):
        watches_fire(attach(collection).pk, now=NOW)
    assert watch.sessions.count() == 10
    for hour in range(1, 4):
        for _ in range(20):  # the ticker looks again and again
            watches_fire_unfired(now=NOW + hour * timedelta(hours=1))
    watch.refresh_from_db()
    assert watch.sessions.count() == 25
    assert watch.paused_at is None
    assert reasons_of(watch) == []
    assert not Attachment.objects.filter(watches_fired_at__isnull=True).exists()


def test_a_watch_without_room_keeps_no_other_waiting():
    busy, calm = make_collection(), make_collection()
    full = make_watch(busy, max_runs_per_hour=1)
    also, other = make_watch(busy), make_watch(calm)
    for _ in range(30):
        attach(busy)
    attach(calm)
    assert watches_fire_unfired(now=NOW, limit=10) == 1 + 9 + 1
    assert (full.sessions.count(), also.sessions.count(), other.sessions.count()) == (1, 9, 1)


def test_a_sweep_asks_a_watch_without_room_only_once():
    collection = make_collection()
    make_watch(collection, max_runs_per_hour=1)
    for _ in range(10):
        attach(collection)
    with patch.object(watches, "trigger_fire", wraps=watches.trigger_fire) as asked:
        watches_fire_unfired(now=NOW)
    assert asked.call_count == 2


def test_what_found_no_room_for_a_day_is_given_up_and_the_record_says_so():
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=1)
    attachments = [attach(collection), attach(collection)]
    watches_fire_unfired(now=NOW + DAY)
    assert watch.sessions.count() == 1
    assert reasons_of(watch) == [Reason.GAVE_UP]
    assert fired_at(attachments[1]) == NOW + DAY
