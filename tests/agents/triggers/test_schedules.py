"""Schedules fire when they are due: once per slot, not over each other, and at most once for what was missed."""

from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from agents.enums import NoticeKind, Status, TriggerKind
from agents.models import AgentSession, Notification, Profile, Trigger
from agents.queue import TaskName
from agents.sessions import lifecycle
from agents.triggers import schedules
from agents.triggers.firing import Reason, Refused
from agents.triggers.schedules import schedules_fire
from tests.factories import make_agent, make_trigger, make_user

from .rows import halt_all, make_collection, reasons_of, release_all, rows_of

pytestmark = pytest.mark.django_db

SIX = datetime(2026, 3, 16, 6, tzinfo=UTC)  # a Monday
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def make_schedule(cron="0 6 * * *", **fields):
    return make_trigger(**{"kind": TriggerKind.SCHEDULE, "cron": cron, "next_run_at": SIX, **fields})


def skipped(trigger):
    return [
        {name: row[name] for name in ("reason", "missed")} for row in rows_of("autonomous_schedule.skipped", trigger)
    ]


def end_all():
    AgentSession.objects.update(status=Status.COMPLETED, terminal_reason="completed", completed_at=SIX)


def test_a_schedule_fires_when_it_is_due_and_knows_when_it_is_due_again():
    trigger = make_schedule()
    assert schedules_fire(now=SIX - MINUTE) == 0
    assert schedules_fire(now=SIX + timedelta(seconds=3)) == 1
    assert schedules_fire(now=SIX + MINUTE) == 0
    trigger.refresh_from_db()
    assert (trigger.next_run_at, trigger.last_run_at) == (SIX + DAY, SIX + timedelta(seconds=3))
    session = trigger.sessions.get()
    assert (session.slot, session.trigger_kind) == (f"cron:{int(SIX.timestamp())}", "schedule")
    assert skipped(trigger) == []


def test_the_first_run_is_a_baseline_and_the_next_sees_what_came_since():
    owner = make_user()
    collection = make_collection(owner)
    trigger = make_schedule(owner=owner, collection=collection)
    schedules_fire(now=SIX)
    end_all()
    schedules_fire(now=SIX + DAY + 5 * MINUTE)
    schedules_fire(now=SIX + DAY + 6 * MINUTE)
    named = str(collection.public_id)
    assert [session.params for session in trigger.sessions.order_by("id")] == [
        {"collection": named, "baseline": True},
        {"collection": named, "since": SIX.isoformat()},
    ]


def test_a_schedule_by_a_query_alone_has_a_baseline_too():
    trigger = make_schedule(query="liability")
    schedules_fire(now=SIX)
    end_all()
    schedules_fire(now=SIX + DAY)
    assert [session.params for session in trigger.sessions.order_by("id")] == [
        {"query": "liability", "baseline": True},
        {"query": "liability", "since": SIX.isoformat()},
    ]


def test_a_week_of_downtime_is_made_up_for_once():
    nightly, minutely = make_schedule(), make_schedule("* * * * *")
    now = SIX + 7 * DAY + 10 * MINUTE
    assert schedules_fire(now=now) == 2
    assert schedules_fire(now=now) == 0
    assert nightly.sessions.get().slot == f"cron:{int((SIX + 7 * DAY).timestamp())}"
    assert minutely.sessions.get().slot == f"cron:{int(now.timestamp())}"
    assert skipped(nightly) == [{"reason": "missed", "missed": 7}]
    assert skipped(minutely) == [{"reason": "missed", "missed": 999}]  # counted up to a thousand
    nightly.refresh_from_db()
    assert nightly.next_run_at == SIX + 8 * DAY


def test_what_was_missed_too_long_ago_is_not_made_up_for():
    trigger = make_schedule("0 6 * * 1", catch_up_minutes=60)
    assert schedules_fire(now=SIX + HOUR + MINUTE) == 0
    assert skipped(trigger) == [{"reason": "missed", "missed": 1}]
    trigger.refresh_from_db()
    assert (trigger.next_run_at, trigger.last_run_at) == (SIX + 7 * DAY, None)


def test_the_last_minute_of_the_window_still_counts():
    make_schedule("0 6 * * 1", catch_up_minutes=60)
    assert schedules_fire(now=SIX + HOUR) == 1


def test_a_schedule_that_makes_up_for_nothing_still_fires_on_time():
    trigger = make_schedule(catch_up_minutes=0)
    assert schedules_fire(now=SIX + timedelta(seconds=90)) == 1
    end_all()
    assert schedules_fire(now=SIX + DAY + 3 * MINUTE) == 0
    assert skipped(trigger) == [{"reason": "missed", "missed": 1}]


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING, Status.SLEEPING])
def test_a_run_that_is_not_over_is_not_overtaken(status):
    trigger = make_schedule("* * * * *")
    schedules_fire(now=SIX)
    AgentSession.objects.update(status=status)
    assert schedules_fire(now=SIX + MINUTE) == 0
    assert schedules_fire(now=SIX + 3 * MINUTE) == 0
    trigger.refresh_from_db()
    assert (trigger.next_run_at, trigger.last_run_at) == (SIX + 4 * MINUTE, SIX)
    assert skipped(trigger) == [{"reason": "overlap", "missed": 1}, {"reason": "overlap", "missed": 2}]
    end_all()
    assert schedules_fire(now=SIX + 4 * MINUTE) == 1


def test_while_all_work_is_halted_nothing_moves_and_one_run_makes_up_for_it():
    trigger = make_schedule("0 * * * *")
    halt_all()
    assert schedules_fire(now=SIX + 5 * HOUR) == 0
    trigger.refresh_from_db()
    assert trigger.next_run_at == SIX
    release_all()
    assert schedules_fire(now=SIX + 5 * HOUR) == 1
    assert schedules_fire(now=SIX + 5 * HOUR) == 0
    assert skipped(trigger) == [{"reason": "missed", "missed": 5}]


@pytest.mark.parametrize("reason", [Reason.HALTED, Reason.OPTED_OUT])
def test_a_halt_at_the_last_moment_leaves_the_schedule_as_it_was(reason):
    trigger = make_schedule()
    with patch.object(schedules, "trigger_fire", return_value=Refused(reason)):
        assert schedules_fire(now=SIX) == 0
    trigger.refresh_from_db()
    assert (trigger.next_run_at, trigger.last_run_at) == (SIX, None)


def test_a_refused_firing_is_not_counted_as_a_run():
    trigger = make_schedule(agent=make_agent(enabled=False))
    assert schedules_fire(now=SIX) == 0
    trigger.refresh_from_db()
    assert (trigger.next_run_at, trigger.last_run_at) == (SIX + DAY, None)
    assert reasons_of(trigger) == ["disabled"]


@pytest.mark.parametrize("fields", [{"enabled": False}, {"deleted_at": SIX}, {"paused_at": SIX}])
def test_a_schedule_out_of_use_does_not_fire(fields):
    make_schedule(**fields)
    assert schedules_fire(now=SIX) == 0


def test_the_schedule_of_an_owner_who_has_not_opted_in_waits():
    trigger = make_schedule(owner=make_user(opted_in=False))
    assert schedules_fire(now=SIX) == 0
    Profile.objects.update(opted_in=True)
    assert schedules_fire(now=SIX + HOUR) == 1
    assert trigger.sessions.get().owner == trigger.owner


@pytest.mark.parametrize("bad", [{"cron": "61 * * * *"}, {"cron": ""}, {"zone": "Mars/Olympus"}])
def test_a_schedule_that_cannot_be_read_is_paused_and_stops_no_other(bad):
    poison = make_schedule(name="Poison", **{"next_run_at": SIX - DAY, **bad})
    good = make_schedule()
    assert schedules_fire(now=SIX) == 1
    assert good.sessions.count() == 1
    poison.refresh_from_db()
    assert (poison.paused_at, poison.pause_reason) == (SIX, "bad_cron")
    notice = Notification.objects.get()
    assert notice.kind == NoticeKind.TRIGGER_PAUSED
    assert "Poison" in notice.title
    assert schedules_fire(now=SIX + MINUTE) == 0
    assert Notification.objects.count() == 1


def test_a_schedule_that_somebody_paused_meanwhile_is_not_paused_twice():
    trigger = make_schedule(cron="61 * * * *")
    Trigger.objects.update(paused_at=SIX, pause_reason="by_hand")
    schedules._stop_unreadable(trigger.pk, now=SIX)
    trigger.refresh_from_db()
    assert trigger.pause_reason == "by_hand"


def test_a_schedule_that_fails_stops_no_other_and_is_tried_again(caplog):
    bad, good = make_schedule(next_run_at=SIX - MINUTE), make_schedule()
    fire = schedules.trigger_fire

    def fire_or_fail(*, trigger, **more):
        if trigger.pk == bad.pk:
            raise RuntimeError("no")
        return fire(trigger=trigger, **more)

    with patch.object(schedules, "trigger_fire", fire_or_fail):
        assert schedules_fire(now=SIX) == 1
    assert good.sessions.count() == 1
    assert "could not be fired" in caplog.text
    bad.refresh_from_db()
    assert bad.next_run_at == SIX - MINUTE
    assert schedules_fire(now=SIX) == 1


def test_a_slot_that_was_fired_before_is_passed_by():
    trigger = make_schedule()
    schedules_fire(now=SIX)
    end_all()
    Trigger.objects.update(next_run_at=SIX)
    assert schedules_fire(now=SIX + MINUTE) == 0
    trigger.refresh_from_db()
    assert (trigger.next_run_at, trigger.last_run_at) == (SIX + DAY, SIX)


def test_a_time_that_is_no_longer_due_is_corrected_without_a_run():
    trigger = make_schedule("0 12 * * *")  # as somebody wrote it into the database
    assert schedules_fire(now=SIX) == 0
    trigger.refresh_from_db()
    assert trigger.next_run_at == SIX + 6 * HOUR
    assert not AgentSession.objects.exists()


def test_somebody_else_s_schedule_is_left_alone():
    trigger = make_schedule(next_run_at=SIX + DAY)
    assert schedules._fire(trigger.pk, None, now=SIX) is False


def test_the_longest_due_goes_first_and_no_more_than_the_limit():
    late, later, latest = (make_schedule("* * * * *", next_run_at=SIX - n * MINUTE) for n in (1, 3, 2))
    assert schedules_fire(now=SIX, limit=2) == 2
    assert [trigger.sessions.count() for trigger in (late, later, latest)] == [0, 1, 1]


def test_a_queue_that_is_down_keeps_no_schedule_from_firing():
    one, two = make_schedule(), make_schedule()
    with patch.object(lifecycle, "enqueue", side_effect=ConnectionError("broker")) as asked:
        assert schedules_fire(now=SIX) == 2
    assert asked.call_args.args[0] == TaskName.RUN_SESSION
    for trigger in (one, two):
        session = trigger.sessions.get()
        assert (session.status, session.enqueued_at) == (Status.QUEUED, SIX)


def test_a_repeated_hour_fires_once_and_a_skipped_one_too():
    autumn = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    trigger = make_schedule("30 2 * * *", zone="Europe/Paris", next_run_at=autumn)
    for minute in range(0, 180, 10):
        schedules_fire(now=autumn + minute * MINUTE)
        end_all()
    assert trigger.sessions.count() == 1
    spring = datetime(2027, 3, 28, tzinfo=UTC)
    Trigger.objects.update(next_run_at=datetime(2027, 3, 28, 1, tzinfo=UTC))
    for minute in range(0, 180, 10):
        schedules_fire(now=spring + minute * MINUTE)
        end_all()
    assert trigger.sessions.count() == 2
