"""The queues between the processes of a cluster outlive the death of whoever waits for them."""

import multiprocessing
import os
import signal
import threading

import pytest

from agents import queue
from agents.queue import LocalQueue

PATIENCE = 30
fork = multiprocessing.get_context("fork")


@pytest.fixture
def local():
    made = LocalQueue()
    yield made
    made.close()
    made.join_thread()


def killed(begun, work):
    """Start a process, wait until it says that it has begun, and kill it."""
    process = fork.Process(target=work)
    process.start()
    assert begun.wait(PATIENCE)
    os.kill(process.pid, signal.SIGKILL)
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL


def test_items_come_in_their_order(local):
    for item in ("first", "second"):
        local.put(item)

    assert [local.get(), local.get(timeout=PATIENCE)] == ["first", "second"]


def test_process_that_is_killed_while_it_waits_leaves_no_lock(local):
    waits = fork.Event()

    def take():
        waits.set()
        local.get()

    killed(waits, take)

    assert not local.is_locked()
    local.put("for somebody else")
    assert local.get() == "for somebody else"


def test_lock_of_a_process_that_was_killed_with_it_is_found(local, monkeypatch):
    monkeypatch.setattr(queue, "LOCKED_SECONDS", 0.05)
    holds = fork.Event()

    def hold():
        with local._rlock:
            holds.set()
            signal.pause()

    killed(holds, hold)

    assert local.is_locked()


def test_two_who_wait_get_one_item_each(local):
    taken = fork.SimpleQueue()
    waiting = [fork.Process(target=lambda: taken.put(local.get())) for _ in range(2)]
    for process in waiting:
        process.start()
    for item in (1, 2):
        local.put(item)
    for process in waiting:
        process.join(PATIENCE)

    assert sorted([taken.get(), taken.get()]) == [1, 2]


def test_worker_that_retires_while_it_waits_for_a_task_ends_and_takes_none(local, monkeypatch):
    pipe = os.pipe()
    monkeypatch.setattr(queue._Runs, "retiring", [pipe])
    monkeypatch.setattr(queue.Conf, "MAX_RSS", None)
    monkeypatch.setattr(queue._Runs, "timer", multiprocessing.Value("i", -1))
    ended = []
    worker = threading.Thread(target=lambda: ended.append(list(iter(local.get, "STOP"))))
    worker.start()

    queue.worker_retire()
    worker.join(PATIENCE)
    local.put("for somebody else")

    assert ended == [[]]
    assert (queue.Conf.MAX_RSS, queue._Runs.timer.value) == (1, queue.RETIRED)
    for end in pipe:
        os.close(end)
