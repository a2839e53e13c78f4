"""What time or a crash has left undone is found in the rows and handed on."""

from datetime import timedelta

import pytest
from django_q.models import OrmQ

from agents.enums import Mode, Status
from agents.models import AgentSession, Lease
from agents.queue import queue_length, sending
from agents.sessions import fairness
from agents.sessions.fairness import tasks_send
from agents.sessions.leases import lease_claim, lease_next, sleepers_wake
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
    monkeypatch.setattr(sending, "async_task", lambda *_, **__: 1 / 0)
    session = session_create(owner=make_user(), now=NOW)
    session.refresh_from_db()
    assert (session.status, session.enqueued_at, queued_tasks()) == (Status.QUEUED, NOW, [])
    monkeypatch.undo()

    assert tasks_send(NOW + SECOND) == 1
    assert lease_next(owner="w", now=NOW) == session


def test_redis_gets_a_task_only_after_the_commit(settings, django_capture_on_commit_callbacks, monkeypatch):
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "redis": "redis://127.0.0.1:1/0"}
    del settings.Q_CLUSTER["orm"]
    sent = []
    monkeypatch.setattr(sending, "async_task", lambda function, pk, **_: sent.append((function, pk)))
    session = make_session(Status.QUEUED)

    with django_capture_on_commit_callbacks() as callbacks:
        session_enqueue(session.pk, now=NOW)
        assert sent == []
    for callback in callbacks:
        callback()

    assert sent == [("agents.tasks.run_session", session.pk)]


def test_what_waits_in_the_queue_is_counted_with_its_age():
    assert queue_length(NOW).count == 0
    session_create(owner=make_user(), now=NOW)
    OrmQ.objects.update(lock=NOW)

    found = queue_length(NOW + SECOND)

    assert (found.count, found.oldest_at) == (1, NOW)


def test_sleeper_goes_back_into_the_queue_when_its_time_has_come():
    early = make_session(Status.SLEEPING, next_wake_at=NOW)
    late = make_session(Status.SLEEPING, next_wake_at=NOW + SECOND)

    assert sleepers_wake(NOW) == 1
    assert queued_tasks() == [early.pk]
    late.refresh_from_db()
    assert late.status == Status.SLEEPING


@pytest.mark.parametrize("broker", ["orm", "redis"])
def test_tasks_that_the_queue_lost_are_sent_again_and_no_more(settings, monkeypatch, broker):
    tasks = []
    if broker == "redis":
        settings.Q_CLUSTER = {**settings.Q_CLUSTER, "redis": "redis://127.0.0.1:1/0"}
        del settings.Q_CLUSTER["orm"]
        monkeypatch.setattr(sending, "queue_length", lambda now: sending.QueueLength(len(tasks)))
        monkeypatch.setattr(fairness, "enqueue", lambda task, pk: tasks.append(pk))
    for status, lease_until in ((Status.QUEUED, None), (Status.QUEUED, None), (Status.RUNNING, NOW - SECOND)):
        make_session(status, lease_until=lease_until, enqueued_at=NOW)
    make_session(Status.RUNNING, lease_until=NOW + SECOND)  # held

    assert [tasks_send(NOW), tasks_send(NOW), tasks_send(NOW)] == [3, 0, 0]
    if broker == "orm":
        OrmQ.objects.order_by("pk").first().delete()
    else:
        tasks.pop()
    assert [tasks_send(NOW), tasks_send(NOW)] == [1, 0]


def test_sixth_session_of_an_owner_waits_until_there_is_room(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 5
    owner = make_user()
    running = [make_session(Status.RUNNING, owner=owner, lease_until=NOW + SECOND) for _ in range(5)]
    sixth = session_create(owner=owner, now=NOW)
    OrmQ.objects.all().delete()

    assert lease_claim(sixth.pk, owner="w", now=NOW) is None
    assert lease_next(owner="w", now=NOW) is None
    assert tasks_send(NOW) == 0, "there is no room yet"

    AgentSession.objects.filter(pk=running[0].pk).update(status=Status.SLEEPING)
    assert tasks_send(NOW) == 1
    assert lease_next(owner="w", now=NOW) == sixth


def test_sensors_take_no_room_and_need_none(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 1
    owner = make_user()
    make_session(Status.RUNNING, owner=owner, mode=Mode.SENSOR, lease_until=NOW + SECOND)
    walk = session_create(owner=owner, now=NOW)
    sensor = make_session(Status.QUEUED, owner=owner, mode=Mode.SENSOR)

    assert lease_claim(walk.pk, owner="w", now=NOW) is not None
    assert lease_claim(sensor.pk, owner="w", now=NOW) is not None


def test_only_as_many_tasks_are_sent_as_there_is_room_for(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 2
    owner, partly_busy, full = make_user(), make_user(), make_user()
    for waiting, number in ((owner, 4), (partly_busy, 2), (full, 5)):
        for _ in range(number):
            make_session(Status.QUEUED, owner=waiting, enqueued_at=NOW)
    for busy in (partly_busy, full, full, full):
        make_session(Status.RUNNING, owner=busy, lease_until=NOW + SECOND)

    assert tasks_send(NOW) == 3


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
