"""Workers are told of a task by the commit that adds it, and look for themselves now and then."""

import threading
from unittest.mock import Mock

import pytest
from django.db import InterfaceError, OperationalError, connection, transaction
from django_q.brokers import get_broker
from django_q.models import OrmQ

from agents.models import Lease
from agents.queue import Queue, TaskName, database, enqueue
from agents.queue.database import DatabaseBroker

pytestmark = pytest.mark.django_db(transaction=True)
LONG = 30.0  # seconds; nobody waits for so long unless something is broken


@pytest.fixture
def waiting():
    """A broker in a thread of its own, as in the process that hands out tasks."""
    started, found = threading.Event(), []

    def look():
        broker = get_broker(Queue.MAIN.value)
        try:
            found.append(
                broker.dequeue() or broker.dequeue()
            )  # the first one waits until it is told, if it sees nothing
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
    monkeypatch.setattr(database, "_POLL_WATCHED", 0.05)
    begin, found = waiting
    thread = begin()
    thread.join(LONG)
    assert found == [None]


def test_look_that_finds_no_task_costs_no_query_of_django(monkeypatch):
    look = Mock(return_value=None)
    monkeypatch.setattr(database.ORM, "dequeue", look)
    monkeypatch.setattr(database, "_POLL_WATCHED", 0)
    monkeypatch.setattr(database, "POLL_SECONDS", 0.01)
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


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no server that could go away")
def test_connection_that_is_lost_while_waiting_is_made_anew(monkeypatch):
    broker = get_broker(Queue.MAIN.value)
    monkeypatch.setattr(database, "POLL_SECONDS", 0.01)
    assert broker.dequeue() is None
    pid = broker._waiter._database.connection.info.backend_pid
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    monkeypatch.setattr(database, "POLL_SECONDS", LONG)  # the wait ends when the server has ended the connection
    broker._waiter.wait()
    assert broker._waiter._database.connection is None
    monkeypatch.setattr(database, "POLL_SECONDS", 0.01)
    enqueue(TaskName.RUN_SESSION, 7)
    assert broker.dequeue()
    broker._waiter._database.close()
