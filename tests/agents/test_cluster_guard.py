"""The guard of a cluster replaces processes that end, retire or take too long, without looking all the time."""

import multiprocessing
import os
import threading

import pytest

from agents.process_end import ForkEvent
from agents.queue import cluster
from agents.queue.cluster import ClusterGuard
from agents.queue.workers import RETIRED
from tests.flows.processes import until

PATIENCE = 30
IDLE, BUSY = -1, 100.0


class Process:
    """A process of a cluster, as its guard sees it."""

    def __init__(self, timer=IDLE):
        self.sentinel, self._writing = os.pipe()
        self.timer = multiprocessing.Value("f", timer)
        self.lives = True

    def is_alive(self):
        return self.lives

    def end(self):
        self.lives = False
        os.close(self._writing)


class Guard(ClusterGuard):
    def __init__(self, workers):
        self.stop_event, self.start_event, self._changed = ForkEvent(), ForkEvent(), ForkEvent()
        self.pool, self.monitor, self.pusher = list(workers), Process(), Process()
        self.replaced, self.has_stopped = [], False

    def reincarnate(self, process):
        self.replaced.append(process)
        if process in self.pool:
            self.pool[self.pool.index(process)] = Process()
        elif process is self.pusher:
            self.pusher = Process()
        else:
            self.monitor = Process()

    def stop(self):
        self.has_stopped = True


@pytest.fixture
def guarding(monkeypatch):
    """Watch over these workers, in a thread; nothing is looked at again soon unless the guard is told."""
    monkeypatch.setattr(cluster, "IDLE_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(cluster, "BUSY_SECONDS", 10 * PATIENCE)
    made = []

    def begin(*workers):
        guard = Guard(workers)
        thread = threading.Thread(target=guard.guard)
        made.append((guard, thread))
        thread.start()
        assert guard.start_event.wait(PATIENCE)
        return guard

    yield begin
    for guard, thread in made:
        guard.stop_event.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert guard.has_stopped


@pytest.mark.parametrize("which", ["worker", "monitor", "pusher"])
def test_process_that_ends_is_replaced_at_once(guarding, which):
    guard = guarding(worker := Process())
    process = {"worker": worker, "monitor": guard.monitor, "pusher": guard.pusher}[which]
    process.end()
    until(lambda: guard.replaced == [process])


def test_workers_that_die_at_once_are_not_replaced_as_fast_as_the_machine_can(guarding, monkeypatch):
    class Dying(Process):
        def __init__(self):
            super().__init__()
            self.end()

    guard = guarding(worker := Process())
    monkeypatch.setitem(globals(), "Process", Dying)
    worker.end()
    until(lambda: guard.replaced == [worker])
    assert not guard.stop_event.wait(0.1)
    assert guard.replaced == [worker]


def test_worker_that_retires_is_replaced_while_its_runs_go_on(guarding):
    guard = guarding(worker := Process())
    worker.timer.value = RETIRED
    guard._changed.set()
    until(lambda: guard.replaced == [worker])


def test_worker_whose_task_takes_too_long_is_replaced(guarding, monkeypatch):
    monkeypatch.setattr(cluster, "BUSY_SECONDS", 0.01)
    slow, other = Process(timer=0.05), Process(timer=BUSY)
    guard = guarding(slow, other)
    until(lambda: guard.replaced == [slow])
    assert slow.timer.value == 0
    assert 0 < other.timer.value < BUSY


def test_time_before_a_task_does_not_count():
    """The guard of idle workers looks seldom: it may have looked long before the task began."""
    guard = Guard([worker := Process(timer=BUSY)])
    busy = guard._check_workers(set(), 1_000)
    assert (busy, worker.timer.value, guard.replaced) == ({worker}, BUSY, [])
    guard._check_workers(busy, 1)
    assert worker.timer.value == BUSY - 1


def test_idle_worker_has_no_time_to_lose():
    guard = Guard([worker := Process()])
    assert guard._check_workers({worker}, 1_000) == set()
    assert worker.timer.value == IDLE
