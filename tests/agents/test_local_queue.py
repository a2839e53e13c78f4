"""The queues between the processes of a cluster outlive the death of whoever waits for them."""

import multiprocessing
import os
import signal
import threading

import pytest

from agents.process_end import ForkEvent
from agents.queue import cluster, work_beside_others, worker_retire
from agents.queue.cluster import LocalQueue
from agents.queue.workers import RETIRED, Conf, Runs
from tests.flows.processes import until

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
    monkeypatch.setattr(cluster, "LOCKED_SECONDS", 0.05)
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


@pytest.fixture
def worker(monkeypatch, local):
    """A worker that waits for tasks, in a thread, and what it has taken when it ends."""
    monkeypatch.setattr(Runs, "retiring", ForkEvent())
    monkeypatch.setattr(Runs, "guard_told", ForkEvent())
    monkeypatch.setattr(Runs, "timer", multiprocessing.Value("i", -1))
    monkeypatch.setattr(Runs, "has_worked", False)
    monkeypatch.setattr(Conf, "MAX_RSS", None)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(list(iter(local.get, "STOP"))))
    yield thread, ended
    worker_retire()
    thread.join(PATIENCE)


def test_worker_that_retires_while_it_waits_for_a_task_ends_and_takes_none(local, worker):
    thread, ended = worker
    thread.start()

    worker_retire()
    thread.join(PATIENCE)
    local.put("for somebody else")

    assert ended == [[]]
    assert (Conf.MAX_RSS, Runs.timer.value) == (1, RETIRED)
    assert Runs.guard_told.is_set()  # the guard is told


def test_worker_that_has_worked_and_has_no_task_for_long_retires(worker, monkeypatch):
    monkeypatch.setattr(cluster, "REST_SECONDS", 0.01)
    thread, ended = worker
    work_beside_others(lambda: None)
    thread.start()
    thread.join(PATIENCE)

    assert ended == [[]]
    assert Runs.timer.value == RETIRED


def test_worker_that_has_not_worked_waits_on(worker, local, monkeypatch):
    monkeypatch.setattr(cluster, "REST_SECONDS", 0)
    thread, ended = worker
    thread.start()
    for item in ("a task", "STOP"):
        local.put(item)
    thread.join(PATIENCE)

    assert ended == [["a task"]]
    assert Runs.timer.value == -1


def test_worker_whose_runs_go_on_does_not_retire(worker, local, monkeypatch):
    """It has to wait for them anyway, and may take a task meanwhile."""
    looks = []
    monkeypatch.setattr(cluster, "REST_SECONDS", 0.001)
    monkeypatch.setattr(Runs, "has_worked", True)
    monkeypatch.setattr(Runs, "threads", {threading.current_thread()})
    real = cluster.retire_after_work
    monkeypatch.setattr(cluster, "retire_after_work", lambda: looks.append(real()))
    thread, ended = worker
    thread.start()
    until(lambda: len(looks) > 2)
    for item in ("a task", "STOP"):
        local.put(item)
    thread.join(PATIENCE)

    assert ended == [["a task"]]
