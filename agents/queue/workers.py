"""Several runs at a time in one worker: while one waits for its model, the worker takes the next."""

import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from multiprocessing.util import Finalize
from typing import Any, Final

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, connections
from django_q.conf import Conf
from django_q.signals import post_spawn

from agents.conf import task_seconds
from agents.process_end import ForkEvent

logger = logging.getLogger(__name__)

RETIRED: Final = -2  # the timer of a worker that takes no more tasks
URGENT_EVERY: Final = 1.0  # seconds: how often a worker without room looks whether somebody waits
PATIENCE: Final = 0.95  # of the time that a task may take: then the queue would end the worker, and all its runs


class Runs:
    """The runs of this worker process, each in a thread of its own. One at a time where nobody said more."""

    most = 1
    changed = threading.Condition()
    threads: set[threading.Thread] = set()
    waits: ContextVar[threading.Event | None] = ContextVar("waits", default=None)
    has_worked = False
    retiring: ForkEvent | None = None  # says so to the thread that waits for tasks
    guard_told: ForkEvent | None = None  # says so to the guard
    timer: Any = None  # by which the cluster knows what its worker is at
    stopping: ForkEvent | None = None  # the cluster ends, and nothing new is begun


def _in_worker(**_: Any) -> None:
    Runs.most = int(settings.LQOPS_RUNS_PER_WORKER)
    Runs.retiring = ForkEvent()
    Finalize(None, _wait_for_runs, exitpriority=1)


post_spawn.connect(_in_worker, dispatch_uid="agents.queue")


Work = Callable[[], object]


def work_beside_others(work: Work, urgent: Callable[[], Work | None] = lambda: None) -> None:
    """Do the work; return when it is done, or when it waits for a model and there is room for more.

    What is not done then goes on in its thread. The lease of its run says so to all others; the task is over. While the
    cluster ends nothing is begun: the run stays in the queue, and the ticker sends another task for it.
    A worker without room has one place more, for work that somebody waits for: `urgent` returns it, if there is some.
    """
    if _is_stopping():
        return
    Runs.has_worked = True
    if Runs.most == 1:
        work()
        return
    begun_at = time.monotonic()
    ends_at = begun_at + PATIENCE * task_seconds()
    failed = _begin(work, ends_at)
    while not _has_room(URGENT_EVERY):
        if _has_urgent_place(begun_at) and (waited_for := _urgent_or_none(urgent)):
            for error in _begin(waited_for, ends_at):
                logger.error("a run ended with an error", exc_info=error)
    if failed:
        raise failed[0]


def _is_stopping() -> bool:
    return Runs.stopping is not None and Runs.stopping.is_set()


def _has_urgent_place(begun_at: float) -> bool:
    """Return whether one run more may begin in a task that began then; what begins late might not end in its time."""
    ends = _is_stopping() or Conf.MAX_RSS == 1 or time.monotonic() > begun_at + task_seconds() / 2
    return not ends and len(Runs.threads) == Runs.most


def _has_room(seconds: float) -> bool:
    with Runs.changed:
        return Runs.changed.wait_for(lambda: len(Runs.threads) < Runs.most, timeout=seconds)


def _urgent_or_none(urgent: Callable[[], Work | None]) -> Work | None:
    try:
        return urgent()
    except (OperationalError, InterfaceError):  # the next look finds out whether the database is back
        connection.close()
        return None


def _begin(work: Work, ends_at: float) -> list[Exception]:
    """Do the work in a thread, until it is done or waits for a model. Return its error, if it had one so early."""
    waits = threading.Event()
    failed: list[Exception] = []

    def run() -> None:
        Runs.waits.set(waits)
        try:
            work()
        except Exception as error:
            if waits.is_set():  # nobody looks at it any more
                logger.exception("a run ended with an error")
            failed.append(error)
        finally:
            _end_of(threading.current_thread())
            waits.set()
            connections.close_all()

    thread = threading.Thread(target=run, name="run", daemon=True)
    with Runs.changed:
        thread.start()
        Runs.threads.add(thread)
    if not waits.wait(max(ends_at - time.monotonic(), 0)):
        logger.error("a run has not ended in time and is given up; this worker is replaced")
        _end_of(thread)
        worker_retire()
    return failed


def _end_of(thread: threading.Thread) -> None:
    with Runs.changed:
        Runs.threads.discard(thread)
        Runs.changed.notify_all()


def let_worker_go_on() -> None:
    """Say that this run is about to wait for a model: its worker may take another one."""
    waits = Runs.waits.get()
    if waits is not None:
        waits.set()


def _wait_for_runs() -> None:
    """Before the process ends: wait for its runs, at most as long as a task may take."""
    with Runs.changed:
        Runs.changed.wait_for(lambda: not Runs.threads, timeout=float(Conf.TIMEOUT or 0))


def worker_retire() -> None:
    """Let the cluster replace this process at once: it takes no other task, and ends when its runs have ended.

    django-q replaces a worker that uses too much memory, between two tasks; from now on every size is too much. One
    that waits for a task is woken.
    """
    if Conf.MAX_RSS == 1:
        return
    Conf.MAX_RSS = 1
    if Runs.timer is not None:
        Runs.timer.value = RETIRED
    for event in (Runs.retiring, Runs.guard_told):
        if event is not None:
            event.set()


def retire_after_work() -> None:
    """Make room for a new worker if nothing is left to do: the new one shares the memory of the others again."""
    if not Runs.threads:
        worker_retire()


def stopping_handles() -> list[int]:
    """Return what is readable when the cluster is to end."""
    return [Runs.stopping.fileno()] if Runs.stopping else []
