"""The processes of a cluster: one watches the others, and none leaves a lock behind when it is killed."""

import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from queue import Empty
from typing import Any, Final

import django_q.cluster
from django_q.cluster import Cluster, Sentinel
from django_q.conf import Conf

from agents.process_end import ForkEvent, end_with_parent, sort_free_memory
from agents.queue.sending import Queue, load_tasks, prepare_tasks
from agents.queue.workers import RETIRED, Runs, retire_after_work

logger = logging.getLogger(__name__)

LOCKED_SECONDS: Final = 2.0
BUSY_SECONDS: Final = 0.5  # between two looks of the guard at workers while one has a task
IDLE_SECONDS: Final = 5.0
STOP: Final = "STOP"  # in the place of a task: the worker ends
REST_SECONDS: Final = 10.0  # a worker that has worked, and waits for so long, makes room for a new one


def run_cluster(queue: Queue, *, workers: int, before_stop: Callable[[], None]) -> None:
    """Run a cluster for one queue until the process is asked to stop; then call `before_stop` first.

    Sets what django-q reads from the environment when it is imported; its processes are forked and inherit it.
    """

    class Stopping(Cluster):  # type: ignore[misc]  # django-q ships no types
        def sig_handler(self, number: int, frame: object) -> None:
            before_stop()
            super().sig_handler(number, frame)

    load_tasks()
    Conf.CLUSTER_NAME = queue.value
    Conf.WORKERS = workers
    Stopping().start()


class LocalQueue(django_q.cluster.Queue):  # type: ignore[misc]  # django-q ships no types
    """A queue between the processes of a cluster. Whoever waits for its next item holds no lock.

    The queue of multiprocessing is waited for under its lock. A process that was killed meanwhile would never release
    it, and whoever replaces it would wait for ever.
    """

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002 as multiprocessing
        while block and timeout is None:
            retiring = [Runs.retiring.fileno()] if Runs.retiring else []
            found = wait([self._reader, *retiring], REST_SECONDS if retiring and Runs.has_worked else None)
            if set(retiring) & set(found):
                return STOP
            if not found:
                retire_after_work()
                continue
            with suppress(Empty):
                return super().get(block=False)
        return super().get(block, timeout)

    def is_locked(self) -> bool:
        """Return whether the lock is held for longer than an item takes: its holder was killed."""
        if not self._rlock.acquire(timeout=LOCKED_SECONDS):
            return True
        self._rlock.release()
        return False


class ClusterGuard(Sentinel):  # type: ignore[misc]  # django-q ships no types
    """The process that watches the processes of a cluster. They end with it, and it with the cluster.

    If one of them was killed in the moment in which it took an item, its queue is locked for ever. Then the guard
    ends, and the supervisor starts the cluster again.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        cluster = multiprocessing.parent_process()
        if cluster is not None and cluster.pid is not None:
            end_with_parent(cluster.pid)
        Runs.stopping = arguments[0]
        prepare_tasks()
        self._changed = Runs.guard_told = ForkEvent()
        self._forking = self._guard = os.getpid()
        os.register_at_fork(before=self._note_parent, after_in_child=self._end_with_guard)
        super().__init__(*arguments, **named)

    def _note_parent(self) -> None:
        self._forking = os.getpid()

    def _end_with_guard(self) -> None:
        if self._forking == self._guard:
            end_with_parent(self._guard)

    def spawn_process(self, target: Any, *arguments: Any) -> Any:
        """Start a process. A worker knows its timer, by which the guard sees that it retires."""
        is_worker = target is django_q.cluster.worker
        Runs.timer = arguments[2] if is_worker else None
        return super().spawn_process(target, *arguments)

    def guard(self) -> None:
        """Watch the processes until the cluster is to end. The end of one, and a worker that retires, are told.

        Instead of looking at all of them twice a second; the queue's own schedules and its status are not used.
        """
        self.start_event.set()
        checked_at, busy = time.monotonic(), set[Any]()
        while not self.stop_event.is_set():
            self._changed.clear()
            multiprocessing.active_children()  # those that have retired before leave nothing behind
            now = time.monotonic()
            processes = [*self.pool, self.monitor, self.pusher]
            has_one_died = any(not process.is_alive() and not _has_retired(process) for process in processes)
            busy = self._check_workers(busy, now - checked_at)
            checked_at = now
            for process in (self.monitor, self.pusher):
                if not process.is_alive():
                    self.reincarnate(process)
            if has_one_died:  # if the next one dies at once too, it is not replaced as fast as the machine can
                self.stop_event.wait(BUSY_SECONDS)
                continue
            living = [process.sentinel for process in (*self.pool, self.monitor, self.pusher)]
            wait([self.stop_event.fileno(), self._changed.fileno(), *living], BUSY_SECONDS if busy else IDLE_SECONDS)
        self.stop()

    def _check_workers(self, busy: set[Any], passed: float) -> set[Any]:
        """Replace workers that have ended or retired, and those whose task takes too long. Return who has a task.

        What has passed since the last look counts for those that had a task then.
        """
        for process in list(self.pool):
            with process.timer.get_lock():
                if process in busy and process.timer.value > 0:
                    process.timer.value = max(process.timer.value - passed, 0)
                if _has_retired(process) or not process.is_alive() or process.timer.value == 0:
                    self.reincarnate(process)
        return {process for process in self.pool if process.timer.value > 0}

    def reincarnate(self, process: Any) -> None:
        was_killed = process.exitcode is not None and process.exitcode < 0
        if was_killed and (self.task_queue.is_locked() or self.result_queue.is_locked()):
            logger.critical("A process of the queue was killed and left a lock; the cluster ends.")
            os._exit(1)
        super().reincarnate(process)


def _has_retired(process: Any) -> bool:
    """Return whether it is a worker that takes no more tasks: it is replaced while its runs go on."""
    return hasattr(process, "timer") and process.timer.value == RETIRED


os.register_at_fork(before=sort_free_memory)  # of the supervisor, too
# What a cluster starts and uses, also with `manage.py qcluster`
django_q.cluster.Sentinel = ClusterGuard
django_q.cluster.Queue = LocalQueue
django_q.cluster.Event = ForkEvent
