"""What time or a crash has left undone is found in the rows and handed on."""

from datetime import timedelta

import pytest
from django_q.models import OrmQ

from agents import queue
from agents.enums import Mode, Status
from agents.models import AgentSession, Lease
from agents.sessions import leases
from agents.sessions.leases import REQUEUE_LOST_AFTER, lease_claim, requeue_lost, requeue_stuck, sleepers_wake
from agents.sessions.lifecycle import session_create, session_enqueue
from agents.ticker import acquire, clock_moved_back, record_done, release
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)


def queued_tasks():
    return [row.task["args"][0] for row in OrmQ.objects.order_by("id")]


def test_new_session_is_in_the_queue_by_its_id_alone():
    session = session_create(owner=make_user(), now=NOW)

    [task] = [row.task for row in OrmQ.objects.all()]
    assert (task["func"], task["args"], task["kwargs"]) == ("agents.tasks.run_session", (session.pk,), {})
    assert AgentSession.objects.get(pk=session.pk).enqueued_at == NOW


def test_session_that_the_queue_refused_stays_queued_and_goes_again(monkeypatch):
    monkeypatch.setattr(queue, "async_task", lambda *_, **__: 1 / 0)
    session = session_create(owner=make_user(), now=NOW)
    session.refresh_from_db()
    assert (session.status, session.enqueued_at, queued_tasks()) == (Status.QUEUED, None, [])
    monkeypatch.undo()

    assert requeue_stuck(NOW + SECOND) == 1
    assert queued_tasks() == [session.pk]


def test_redis_gets_a_task_only_after_the_commit(settings, django_capture_on_commit_callbacks, monkeypatch):
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "redis": "redis://127.0.0.1:1/0"}
    del settings.Q_CLUSTER["orm"]
    sent = []
    monkeypatch.setattr(queue, "async_task", lambda function, pk, **_: sent.append((function, pk)))
    session = make_session(Status.QUEUED)

    with django_capture_on_commit_callbacks() as callbacks:
        session_enqueue(session.pk, now=NOW)
        assert sent == []
    for callback in callbacks:
        callback()

    assert sent == [("agents.tasks.run_session", session.pk)]


def test_what_waits_in_the_queue_is_counted_with_its_age():
    assert queue.queue_length(NOW).count == 0
    session_create(owner=make_user(), now=NOW)
    OrmQ.objects.update(lock=NOW)

    found = queue.queue_length(NOW + SECOND)

    assert (found.count, found.oldest_at) == (1, NOW)


def test_sleeper_goes_back_into_the_queue_when_its_time_has_come():
    early = make_session(Status.SLEEPING, next_wake_at=NOW)
    late = make_session(Status.SLEEPING, next_wake_at=NOW + SECOND)

    assert sleepers_wake(NOW) == 1
    assert queued_tasks() == [early.pk]
    late.refresh_from_db()
    assert late.status == Status.SLEEPING


def test_session_that_the_queue_may_have_lost_goes_again(settings):
    settings.LQOPS_REQUEUE_SECONDS = 30
    kept = make_session(Status.QUEUED, enqueued_at=NOW - 30 * SECOND)
    make_session(Status.QUEUED, enqueued_at=NOW - 29 * SECOND)

    assert requeue_stuck(NOW) == 1
    assert requeue_stuck(NOW) == 0
    assert queued_tasks() == [kept.pk]


def test_session_that_still_waits_in_the_queue_is_not_handed_over_again_and_again(settings):
    settings.LQOPS_REQUEUE_SECONDS = 30
    session = session_create(owner=make_user(), now=NOW)
    OrmQ.objects.update(lock=NOW)

    assert requeue_stuck(NOW + 3_600 * SECOND) == 0, "no worker has taken anything since"
    OrmQ.objects.update(lock=NOW + SECOND)
    assert requeue_stuck(NOW + 3_600 * SECOND) == 1, "what waits came later: this one was taken, and lost"
    assert queued_tasks() == [session.pk, session.pk]


def test_redis_is_asked_again_after_a_long_time_although_something_waits(settings, monkeypatch):
    settings.LQOPS_REQUEUE_SECONDS = 30
    make_session(Status.QUEUED, enqueued_at=NOW)
    monkeypatch.setattr(leases, "queue_length", lambda now: queue.QueueLength(1))

    assert requeue_stuck(NOW + 299 * SECOND) == 0
    assert requeue_stuck(NOW + 300 * SECOND) == 1


def test_takeover_is_asked_for_and_asked_for_again_when_nobody_answers():
    lost = make_session(Status.RUNNING, lease_until=NOW - SECOND)
    held = make_session(Status.RUNNING, lease_until=NOW + 2 * SECOND)

    assert (requeue_lost(NOW), requeue_lost(NOW + SECOND)) == (1, 0)
    OrmQ.objects.all().delete()  # taken, and lost
    AgentSession.objects.filter(pk=held.pk).update(lease_until=NOW + REQUEUE_LOST_AFTER + SECOND)
    assert requeue_lost(NOW + REQUEUE_LOST_AFTER) == 1
    assert queued_tasks() == [lost.pk]


def test_session_that_was_taken_over_and_lost_again_is_asked_for_at_once():
    lost = make_session(Status.RUNNING, lease_until=NOW - SECOND)
    assert requeue_lost(NOW) == 1
    taken = lease_claim(lost.pk, owner="second", now=NOW)

    assert requeue_lost(taken.lease_until) == 1


def test_sixth_session_of_an_owner_waits_until_there_is_room(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 5
    owner = make_user()
    running = [make_session(Status.RUNNING, owner=owner, lease_until=NOW + SECOND) for _ in range(5)]
    sixth = session_create(owner=owner, now=NOW)
    stranger = session_create(owner=make_user(), now=NOW)

    assert lease_claim(sixth.pk, owner="w", now=NOW) is None
    assert lease_claim(stranger.pk, owner="w", now=NOW) is not None
    assert requeue_stuck(NOW) == 0, "there is no room yet"

    AgentSession.objects.filter(pk=running[0].pk).update(status=Status.SLEEPING)
    OrmQ.objects.all().delete()
    assert requeue_stuck(NOW) == 1
    assert queued_tasks() == [sixth.pk]
    assert lease_claim(sixth.pk, owner="w", now=NOW).pk == sixth.pk


def test_sensors_take_no_room_and_need_none(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 1
    owner = make_user()
    make_session(Status.RUNNING, owner=owner, mode=Mode.SENSOR, lease_until=NOW + SECOND)
    walk = session_create(owner=owner, now=NOW)
    sensor = make_session(Status.QUEUED, owner=owner, mode=Mode.SENSOR)

    assert lease_claim(walk.pk, owner="w", now=NOW) is not None
    assert lease_claim(sensor.pk, owner="w", now=NOW) is not None


def test_only_as_many_are_sent_again_as_there_is_room_for(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 2
    owner = make_user()
    for _ in range(4):
        make_session(Status.QUEUED, owner=owner, enqueued_at=None)
    partly_busy = make_user()
    make_session(Status.RUNNING, owner=partly_busy, lease_until=NOW + SECOND)
    for _ in range(2):
        make_session(Status.QUEUED, owner=partly_busy, enqueued_at=None)

    assert requeue_stuck(NOW) == 3


def test_backlog_of_one_owner_keeps_no_other_waiting(settings, monkeypatch):
    settings.LQOPS_MAX_RUNNING_PER_USER = 2
    monkeypatch.setattr(leases, "MOST", 2)
    busy, idle, calm = make_user(), make_user(), make_user()
    for owner, backlog in ((busy, 6), (idle, 6), (calm, 1)):
        for _ in range(backlog):
            make_session(Status.QUEUED, owner=owner, enqueued_at=None)
    for _ in range(2):
        make_session(Status.RUNNING, owner=busy, lease_until=NOW + SECOND)

    assert requeue_stuck(NOW) == 2
    handed_over = AgentSession.objects.filter(enqueued_at=NOW).values_list("owner", flat=True)
    assert sorted(handed_over) == sorted([idle.pk, calm.pk])


def test_session_that_was_handed_over_by_a_clock_that_was_ahead_goes_again(settings):
    settings.LQOPS_REQUEUE_SECONDS = 30
    ahead = make_session(Status.QUEUED, enqueued_at=NOW + 3_600 * SECOND)
    lost = make_session(Status.RUNNING, lease_until=NOW - SECOND, enqueued_at=NOW + 3_600 * SECOND)

    assert (requeue_stuck(NOW), requeue_lost(NOW)) == (1, 1)
    assert queued_tasks() == [ahead.pk, lost.pk]
    assert set(AgentSession.objects.values_list("enqueued_at", flat=True)) == {NOW}


def test_lost_session_is_taken_over_whatever_else_runs(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 1
    owner = make_user()
    make_session(Status.RUNNING, owner=owner, lease_until=NOW + SECOND)
    lost = make_session(Status.RUNNING, owner=owner, lease_until=NOW - SECOND)

    assert lease_claim(lost.pk, owner="w", now=NOW) is not None


def test_duty_has_one_holder_until_it_is_not_heard_of():
    life = timedelta(seconds=10)

    assert acquire("ticker", owner="a", lifetime=life, now=NOW)
    assert acquire("ticker", owner="a", lifetime=life, now=NOW + SECOND)
    assert not acquire("ticker", owner="b", lifetime=life, now=NOW + 10 * SECOND)
    assert acquire("ticker", owner="b", lifetime=life, now=NOW + 11 * SECOND)
    assert not acquire("ticker", owner="a", lifetime=life, now=NOW + 12 * SECOND)


def test_duty_that_is_left_can_be_taken_at_once_and_says_when_it_was_done():
    life = timedelta(seconds=10)
    acquire("ticker", owner="a", lifetime=life, now=NOW)
    record_done("ticker", owner="a", now=NOW)
    release("ticker", owner="a")

    assert acquire("ticker", owner="b", lifetime=life, now=NOW)
    assert Lease.objects.get(name="ticker").done_at == NOW


def test_duty_is_ahead_when_it_was_taken_or_done_at_a_time_that_is_still_to_come():
    life = timedelta(seconds=10)
    assert not clock_moved_back("ticker", lifetime=life, now=NOW)
    acquire("ticker", owner="a", lifetime=life, now=NOW)
    record_done("ticker", owner="a", now=NOW)

    assert not clock_moved_back("ticker", lifetime=life, now=NOW)
    assert clock_moved_back("ticker", lifetime=life, now=NOW - SECOND)
    release("ticker", owner="a")
    assert clock_moved_back("ticker", lifetime=life, now=NOW - SECOND)
    assert not clock_moved_back("ticker", lifetime=life, now=NOW)


def test_duty_that_was_taken_for_longer_than_can_be_is_free():
    life = timedelta(seconds=10)
    acquire("ticker", owner="a", lifetime=life, now=NOW + 3_600 * SECOND)

    assert acquire("ticker", owner="b", lifetime=life, now=NOW)
    assert not acquire("ticker", owner="a", lifetime=life, now=NOW + SECOND)
