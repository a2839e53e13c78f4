"""Workers are told of a task by the commit that adds it, and look for themselves now and then."""

import threading
import time
from datetime import timedelta
from unittest.mock import Mock

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import OrmQ

from agents.models import Lease
from agents.process_end import ForkEvent
from agents.queue import Queue, TaskName, database, enqueue, may_have_tasks
from agents.queue.database import DatabaseBroker
from agents.queue.workers import Runs

pytestmark = pytest.mark.django_db(transaction=True)
LONG = 30.0  # seconds; nobody waits for so long unless something is broken


@pytest.fixture
def waiting():
    """A broker in a thread of its own, as in the process that hands out tasks."""
    started, found = threading.Event(), []

    def look():
        broker = get_broker(Queue.MAIN.value)
        try:
            # If it sees nothing, the first one waits until it is told; on PostgreSQL it tells itself something first.
            found.append(next(filter(None, (broker.dequeue() for _ in range(3))), None))
        finally:
            broker._waiter._database.close()
            connection.close()

    def begin():
        thread = threading.Thread(target=look)
        kind = database._Listener if connection.vendor == "postgresql" else database._CommitWatcher
        real = kind.begin

        def noticed(waiter):
            has_task = real(waiter)
            started.set()
            return has_task

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "begin", noticed)
            thread.start()
            assert started.wait(LONG)
        return thread

    return begin, found


def test_broker_of_the_database_is_the_one_that_waits():
    assert isinstance(get_broker(Queue.MAIN.value), DatabaseBroker)


def test_whoever_waits_is_told_of_a_task_with_its_commit(waiting, monkeypatch):
    monkeypatch.setattr(database, "POLL_SECONDS", 2 * LONG)
    monkeypatch.setattr(database, "_POLL_TOLD", 2 * LONG)
    monkeypatch.setattr(database, "_POLL_WATCHED", 2 * LONG)
    begin, found = waiting
    thread = begin()
    with transaction.atomic():
        enqueue(TaskName.RUN_SESSION, 7)
        assert thread.is_alive()
    thread.join(LONG)
    assert not thread.is_alive()
    assert [pk for pk, _ in found[0]] == [OrmQ.objects.get().pk]


def test_whoever_is_not_told_looks_all_the_same(waiting, monkeypatch):
    monkeypatch.setattr(database, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(database, "_POLL_TOLD", 0.05)
    monkeypatch.setattr(database, "_POLL_WATCHED", 0.05)
    begin, found = waiting
    thread = begin()
    thread.join(LONG)
    assert found == [None]


def test_queue_of_the_database_may_hold_a_task_while_there_is_a_row(settings):
    assert not may_have_tasks()
    enqueue(TaskName.RUN_SESSION, 7)
    assert may_have_tasks()
    OrmQ.objects.all().delete()
    settings.Q_CLUSTER = {"redis": "redis://127.0.0.1"}
    assert may_have_tasks(), "Redis alone could tell"


def test_look_that_finds_no_task_costs_no_query_of_django(monkeypatch):
    look = Mock(return_value=None)
    monkeypatch.setattr(database.ORM, "dequeue", look)
    monkeypatch.setattr(database, "_POLL_WATCHED", 0)
    monkeypatch.setattr(database, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(database, "_POLL_TOLD", 0.01)
    broker = get_broker(Queue.MAIN.value)
    broker.dequeue()
    Lease.objects.create(name="anything")
    broker.dequeue()
    assert not look.called
    enqueue(TaskName.RUN_SESSION, 7)
    broker.dequeue()
    look.assert_called_once()
    broker._waiter._database.close()


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
@pytest.mark.parametrize("has_waited", [False, True])
def test_database_that_is_away_has_no_task_and_is_looked_at_again_soon(error, has_waited, monkeypatch, caplog):
    monkeypatch.setattr(database, "AWAY_SECONDS", 0.01)
    broker = get_broker(Queue.MAIN.value)
    if has_waited:
        enqueue(TaskName.RUN_SESSION, 6)
        assert broker.dequeue()
    with monkeypatch.context() as away:
        away.setattr(DatabaseBroker, "_dequeue", Mock(side_effect=error))
        assert broker.dequeue() is None
    assert f"the queue cannot be read ({error.__name__})" in caplog.text
    enqueue(TaskName.RUN_SESSION, 7)
    assert broker.dequeue()
    broker._waiter.close()


postgresql_alone = pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite tells of writes by its file")


@pytest.fixture
def listener():
    listener = database._Listener(Queue.MAIN.value)
    yield listener
    listener.close()


@pytest.fixture
def waits(monkeypatch):
    """How long the listener would have waited, each time; it waits only shortly."""
    seconds = []
    real = database.wait

    def wait(handles, most):
        seconds.append(most)
        return real(handles, 0.05)

    monkeypatch.setattr(database, "wait", wait)
    return seconds


@postgresql_alone
def test_connection_that_is_lost_while_waiting_is_made_anew(monkeypatch, listener):
    listener.begin()
    listener.wait()  # it is told what it has told itself
    pid = listener._database.connection.info.backend_pid
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    monkeypatch.setattr(database, "_POLL_TOLD", LONG)  # the wait ends when the server has ended the connection
    listener.wait()
    assert listener._database.connection is None
    enqueue(TaskName.RUN_SESSION, 7)
    assert listener.begin()


def tell_nothing(listener):
    """As behind a pooler that passes nothing on, or after a line was cut without a word."""
    with listener._database.cursor() as cursor:
        cursor.execute("UNLISTEN *")
    listener._take()


@postgresql_alone
def test_whoever_was_told_something_looks_seldom(waits, listener):
    listener.begin()
    listener.wait()
    listener.wait()
    assert waits[-1] == database._POLL_TOLD


@postgresql_alone
def test_whoever_was_told_nothing_looks_often(waits, listener):
    listener.begin()
    tell_nothing(listener)
    listener._told_until = 0.0
    for _ in range(3):
        listener.begin()
        listener.wait()
    assert waits == 3 * [database.POLL_SECONDS]


@postgresql_alone
def test_whoever_was_told_nothing_for_long_listens_anew(waits, listener):
    listener.begin()
    tell_nothing(listener)
    before = listener._database.connection
    listener._told_until = listener._prove_at = 0.0  # the time has come
    listener.begin()
    assert listener._database.connection is not before
    listener.wait()
    listener.wait()
    assert waits[-1] == database._POLL_TOLD


def test_task_that_is_due_later_by_this_clock_is_looked_for_soon(monkeypatch):
    for rare in ("_POLL_TOLD", "_POLL_UNWRITTEN"):
        monkeypatch.setattr(database, rare, 2 * LONG)
    monkeypatch.setattr(database, "_POLL_WATCHED", 0.1)
    broker = get_broker(Queue.MAIN.value)
    OrmQ.objects.create(key=broker.list_key, payload="", lock=timezone.now() + timedelta(seconds=0.3))
    began = time.monotonic()
    assert next(filter(None, (broker.dequeue() for _ in range(50))))
    assert time.monotonic() - began < LONG
    broker._waiter.close()


@postgresql_alone
def test_whoever_waits_for_a_task_is_told_that_the_cluster_ends(monkeypatch, listener):
    monkeypatch.setattr(database, "_POLL_TOLD", LONG)
    monkeypatch.setattr(database, "POLL_SECONDS", LONG)
    stopping = ForkEvent()
    monkeypatch.setattr(Runs, "stopping", stopping)
    listener.begin()
    stopping.set()
    began = time.monotonic()
    listener.wait()
    listener.wait()
    assert time.monotonic() - began < LONG
