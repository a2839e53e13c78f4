"""What a watch has no room for, or fails at, waits in a queue of its own: nothing is lost, and nobody else waits."""

from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.enums import NoticeKind
from agents.models import AgentSession, Attachment, Notification, Postponement, Profile, Trigger
from agents.triggers import watches
from agents.triggers.watches import watches_fire, watches_fire_unfired
from tests.factories import NOW, make_agent

from .rows import attach, halt_all, make_collection, make_watch, reasons_of, release_all

pytestmark = pytest.mark.django_db

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def failing(*broken, attachment=None):
    """Firing works but for these triggers, or only for one attachment of theirs."""
    fire = watches.trigger_fire

    def fire_or_fail(*, trigger, slot, **more):
        if trigger.pk in {one.pk for one in broken} and (attachment is None or slot == f"attach:{attachment.pk}"):
            raise RuntimeError("no")
        return fire(trigger=trigger, slot=slot, **more)

    return patch.object(watches, "trigger_fire", fire_or_fail)


def attach_many(collection, number):
    for _ in range(number):
        watches_fire(attach(collection).pk, now=NOW)


def told(watch):
    """The attachments that the watch was told of, in the order in which it was."""
    return [int(slot.removeprefix("attach:")) for slot in watch.sessions.order_by("pk").values_list("slot", flat=True)]


# --- Without room ---


def test_a_watch_puts_off_what_does_not_fit_into_the_hour_and_loses_nothing():
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=3)
    attach_many(collection, 8)
    assert watch.sessions.count() == 3
    for hour in range(1, 3):
        for _ in range(4):  # the ticker looks again and again
            watches_fire_unfired(now=NOW + hour * HOUR)
    watch.refresh_from_db()
    assert told(watch) == list(Attachment.objects.order_by("pk").values_list("pk", flat=True))
    assert (watch.paused_at, reasons_of(watch)) == (None, [])
    assert not Postponement.objects.exists()


@pytest.mark.parametrize("halted_before", [True, False])
def test_a_halt_of_more_than_a_day_costs_no_document(halted_before):
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=3)
    if halted_before:
        halt_all()
    attach_many(collection, 6)
    halt_all()
    assert watches_fire_unfired(now=NOW + 25 * HOUR) == 0
    release_all()
    for hour in range(26, 29):
        watches_fire_unfired(now=NOW + hour * HOUR)
    assert watch.sessions.count() == 6
    assert (reasons_of(watch), Notification.objects.count()) == ([], 0)


@pytest.mark.parametrize("resting", [{"paused_at": NOW}, {"enabled": False}])
def test_a_watch_that_rests_keeps_its_queue(resting):
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=1)
    attach_many(collection, 3)
    Trigger.objects.update(**resting)
    assert watches_fire_unfired(now=NOW + 50 * HOUR) == 0
    Trigger.objects.update(paused_at=None, enabled=True)
    for hour in range(51, 54):
        watches_fire_unfired(now=NOW + hour * HOUR)
    assert watch.sessions.count() == 3


def test_a_queue_waits_while_the_agent_is_switched_off_or_the_owner_has_opted_out():
    collection = make_collection()
    agent = make_agent(owner=collection.owner)
    watch = make_watch(collection, max_runs_per_hour=1, agent=agent)
    attach_many(collection, 2)
    agent.enabled = False
    agent.save()
    assert watches_fire_unfired(now=NOW + HOUR) == 0
    agent.enabled = True
    agent.save()
    Profile.objects.update(opted_in=False)
    assert watches_fire_unfired(now=NOW + HOUR) == 0
    Profile.objects.update(opted_in=True)
    assert watches_fire_unfired(now=NOW + HOUR) == 1
    assert reasons_of(watch) == []


def test_one_slow_watch_holds_back_no_other_on_its_collection():
    collection = make_collection()
    slow, fast = make_watch(collection, max_runs_per_hour=1), make_watch(collection, max_runs_per_hour=1_000)
    for _ in range(13):
        attach(collection)
    for _ in range(2):
        watches_fire_unfired(now=NOW, limit=10)
    assert (slow.sessions.count(), fast.sessions.count()) == (1, 13)
    assert watches_fire_unfired(now=NOW + HOUR) == 1
    assert told(slow) == list(Attachment.objects.order_by("pk").values_list("pk", flat=True)[:2])


def test_what_is_new_does_not_pass_what_waits():
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=1)
    attach_many(collection, 3)
    late = attach(collection)
    assert watches_fire(late.pk, now=NOW + 2 * HOUR)[0].reason == "rate"
    for hour in range(2, 5):
        watches_fire_unfired(now=NOW + hour * HOUR)
    assert told(watch) == list(Attachment.objects.order_by("pk").values_list("pk", flat=True))


def test_full_collections_of_one_owner_keep_nobody_else_waiting():
    greedy, calm = make_collection(), make_collection()
    for number in range(12):
        collection = make_collection(greedy.owner)
        make_watch(collection, max_runs_per_hour=5)
        for _ in range(3):
            attach(collection)
        if number == 5:
            modest = make_watch(calm)
            attach(calm)
    watches_fire_unfired(now=NOW, limit=4)
    assert modest.sessions.count() == 1


def test_queues_are_served_owner_by_owner():
    greedy, calm = make_collection(), make_collection()
    greedy_watches = [make_watch(greedy, max_runs_per_hour=1) for _ in range(6)]
    modest = make_watch(calm, max_runs_per_hour=1)
    attach_many(greedy, 6)
    attach_many(calm, 3)
    Trigger.objects.update(max_runs_per_hour=100)
    assert watches_fire_unfired(now=NOW + HOUR, limit=5) == 5
    assert sum(watch.sessions.count() for watch in greedy_watches) == 6 + 3
    assert modest.sessions.count() == 1 + 2


def test_a_watch_without_room_is_asked_once_and_not_before_there_may_be_room():
    collection = make_collection()
    make_watch(collection, max_runs_per_hour=1)
    for _ in range(10):
        attach(collection)
    with patch.object(watches, "trigger_fire", wraps=watches.trigger_fire) as asked:
        watches_fire_unfired(now=NOW)
        watches_fire_unfired(now=NOW + MINUTE)
        assert asked.call_count == 2
        watches_fire_unfired(now=NOW + HOUR)
        watches_fire_unfired(now=NOW + HOUR + MINUTE)
        assert asked.call_count == 4


def test_a_long_queue_costs_a_sweep_no_more_than_a_short_one():
    collection = make_collection()
    make_watch(collection, max_runs_per_hour=1)

    def statements(waiting):
        attach_many(collection, waiting)
        with CaptureQueriesContext(connection) as captured:
            watches_fire_unfired(now=NOW + MINUTE)
        return len(captured)

    assert statements(3) == statements(10)


def test_a_queue_that_a_clock_which_was_ahead_has_put_off_goes_on():
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=1)
    attach_many(collection, 2)
    Postponement.objects.update(due_at=NOW + 30 * HOUR)
    assert watches_fire_unfired(now=NOW + HOUR) == 1
    assert watch.sessions.count() == 2


def test_what_is_gone_or_whose_watch_is_deleted_leaves_the_queue():
    collection, other = make_collection(), make_collection()
    watch, deleted = make_watch(collection, max_runs_per_hour=1), make_watch(other, max_runs_per_hour=1)
    attach_many(collection, 4)
    attach_many(other, 2)
    second, third = Attachment.objects.filter(collection=collection).order_by("pk")[1:3]
    Attachment.objects.filter(pk__in=[second.pk, third.pk]).update(detached_at=NOW)
    Trigger.objects.filter(pk=deleted.pk).update(deleted_at=NOW)
    assert watches_fire_unfired(now=NOW + HOUR) == 1
    assert watch.sessions.count() == 2
    assert (second.pk in told(watch), Postponement.objects.exists()) == (False, False)


def test_the_owner_is_told_once_a_day_when_a_watch_is_more_than_a_day_behind():
    collection = make_collection()
    watch = make_watch(collection, max_runs_per_hour=1, name="Leases")
    attach_many(collection, 1 + 24)
    assert not Notification.objects.exists()
    attach_many(collection, 3)
    notice = Notification.objects.get()
    assert (notice.owner, notice.kind) == (watch.owner, NoticeKind.WATCH_BEHIND)
    assert "Leases" in notice.title
    for hour in range(1, 5):  # down to a day, and above it again
        watches_fire_unfired(now=NOW + hour * HOUR)
    attach_many(collection, 2)
    assert Notification.objects.count() == 1
    assert AgentSession.objects.count() == 5


# --- Failing ---


def test_a_watch_that_fails_stops_no_other_and_is_told_again(caplog):
    collection = make_collection()
    bad, good = make_watch(collection), make_watch(collection)
    attachment = attach(collection)
    with failing(bad):
        assert [answer.session.trigger for answer in watches_fire(attachment.pk, now=NOW)] == [good]
    assert "could not be fired" in caplog.text
    assert watches_fire_unfired(now=NOW + SECOND) == 0, "a moment later it would hardly go better"
    assert watches_fire_unfired(now=NOW + MINUTE) == 1
    assert bad.sessions.count() == good.sessions.count() == 1
    assert not Postponement.objects.exists()


def test_a_document_that_a_watch_fails_at_keeps_the_others_waiting_for_a_moment_only():
    collection = make_collection()
    watch = make_watch(collection)
    poison = attach(collection)
    with failing(watch, attachment=poison):
        watches_fire(poison.pk, now=NOW)
        attach_many(collection, 5)
        assert watches_fire_unfired(now=NOW + MINUTE) == 0
        assert watches_fire_unfired(now=NOW + MINUTE + SECOND) == 5
    assert watches_fire_unfired(now=NOW + 3 * MINUTE) == 1
    assert told(watch)[-1] == poison.pk


def test_what_keeps_failing_is_never_given_up_and_the_owner_is_told_once(monkeypatch):
    monkeypatch.setattr(watches, "TOLD_AT", 3)
    collection = make_collection()
    bad, good = make_watch(collection, name="Leases"), make_watch(collection)
    attachment = attach(collection)
    with failing(bad):
        watches_fire(attachment.pk, now=NOW)
        for hours in range(50, 55):
            watches_fire_unfired(now=NOW + hours * HOUR)
    assert reasons_of(bad) == reasons_of(good) == []
    notice = Notification.objects.get()
    assert (notice.owner, notice.kind) == (bad.owner, NoticeKind.WATCH_BEHIND)
    assert ("Leases" in notice.title, attachment.document.name in notice.body) == (True, True)
    assert watches_fire_unfired(now=NOW + 60 * HOUR) == 1
