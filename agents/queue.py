"""The task queues. The only importer of django-q.

A task is the name of a function and one id; our own rows say what is due. Sensors have a queue and workers of their
own, because one of their slices uses a worker for most of a minute. With the database as broker a task joins the
transaction that enqueues it. With Redis it is sent after the commit.
"""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.util import Finalize
from queue import Empty
from typing import Any, Final

import django_q.cluster
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, connections, models, transaction
from django.db.models import Count, Min
from django_q.brokers import get_broker
from django_q.brokers.orm import ORM
from django_q.cluster import Cluster, Sentinel
from django_q.conf import Conf
from django_q.models import OrmQ, Task
from django_q.signals import post_spawn
from django_q.tasks import async_task

from agents.conf import clock, task_seconds
from agents.file_writes import FileWrites
from agents.process_end import ForkEvent, end_with_parent, sort_free_memory

logger = logging.getLogger(__name__)

TASKS: Final = "agents.tasks"
LOCKED_SECONDS: Final = 2.0
BUSY_SECONDS: Final = 0.5  # between two looks of the guard at workers while one has a task
IDLE_SECONDS: Final = 5.0
STOP: Final = "STOP"  # in the place of a task: the worker ends
RETIRED: Final = -2  # the timer of a worker that takes no more tasks
URGENT_EVERY: Final = 1.0  # seconds: how often a worker without room looks whether somebody waits
PATIENCE: Final = 0.95  # of the time that a task may take: then the queue would end the worker, and all its runs
REST_SECONDS: Final = 10.0  # a worker that has worked, and waits for so long, makes room for a new one


class TaskName(models.TextChoices):
    """Functions of agents.tasks that a worker can run."""

    RUN_SESSION = "run_session"
    SENSOR_SLICE = "sensor_slice"


class Queue(models.TextChoices):
    MAIN = "lqops"
    SENSORS = "sensors"


_QUEUES = {TaskName.RUN_SESSION: Queue.MAIN, TaskName.SENSOR_SLICE: Queue.SENSORS}


def enqueue(task: TaskName, row_pk: int) -> None:
    def send() -> None:
        name = f"{task}:{row_pk}"
        async_task(f"{TASKS}.{task}", row_pk, task_name=name, save=False, cluster=_QUEUES[task].value)

    if "orm" in settings.Q_CLUSTER:
        send()
    else:
        transaction.on_commit(send, robust=True)


def failed_tasks(before: datetime) -> models.QuerySet[Any]:
    """Return the tasks that failed before this time; those that succeed are not saved."""
    rows: models.QuerySet[Any] = Task.objects.filter(stopped__lt=before)
    return rows


def worker_retire() -> None:
    """Let the cluster replace this process at once: it takes no other task, and ends when its runs have ended.

    django-q replaces a worker that uses too much memory, between two tasks; from now on every size is too much. One
    that waits for a task is woken.
    """
    if Conf.MAX_RSS == 1:
        return
    Conf.MAX_RSS = 1
    if _Runs.timer is not None:
        _Runs.timer.value = RETIRED
    for event in (_Runs.retiring, _Runs.guard_told):
        if event is not None:
            event.set()


def _retire_after_work() -> None:
    """Make room for a new worker if nothing is left to do: the new one shares the memory of the others again."""
    if not _Runs.threads:
        worker_retire()


# --- Several runs at a time in one worker: while one waits for its model, the worker takes the next ---


class _Runs:
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
    _Runs.most = int(settings.LQOPS_RUNS_PER_WORKER)
    _Runs.retiring = ForkEvent()
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
    _Runs.has_worked = True
    if _Runs.most == 1:
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
    return _Runs.stopping is not None and _Runs.stopping.is_set()


def _has_urgent_place(begun_at: float) -> bool:
    """Return whether one run more may begin in a task that began then; what begins late might not end in its time."""
    ends = _is_stopping() or Conf.MAX_RSS == 1 or time.monotonic() > begun_at + task_seconds() / 2
    return not ends and len(_Runs.threads) == _Runs.most


def _has_room(seconds: float) -> bool:
    with _Runs.changed:
        return _Runs.changed.wait_for(lambda: len(_Runs.threads) < _Runs.most, timeout=seconds)


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
        _Runs.waits.set(waits)
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
    with _Runs.changed:
        thread.start()
        _Runs.threads.add(thread)
    if not waits.wait(max(ends_at - time.monotonic(), 0)):
        logger.error("a run has not ended in time and is given up; this worker is replaced")
        _end_of(thread)
        worker_retire()
    return failed


def _end_of(thread: threading.Thread) -> None:
    with _Runs.changed:
        _Runs.threads.discard(thread)
        _Runs.changed.notify_all()


def let_worker_go_on() -> None:
    """Say that this run is about to wait for a model: its worker may take another one."""
    waits = _Runs.waits.get()
    if waits is not None:
        waits.set()


def _wait_for_runs() -> None:
    """Before the process ends: wait for its runs, at most as long as a task may take."""
    with _Runs.changed:
        _Runs.changed.wait_for(lambda: not _Runs.threads, timeout=float(Conf.TIMEOUT or 0))


# --- The database as broker: whoever waits for a task is told of it ---

AWAY_SECONDS: Final = 0.5  # between two looks while the database is away
LOOKS_EVERY: Final = 0.5  # seconds, without being told: for tasks that come due again, and poolers that pass nothing on
_LOOKS_TOLD: Final = 2.0  # where every write is told
_GLANCE_SECONDS: Final = 0.01
_FIRST_GLANCE: Final = 0.001  # after a write that was told of: its commit follows soon
_LOOKS_UNWRITTEN: Final = 5.0  # seconds: tasks that come due again without a write are those of a lost worker
_LONGEST_GLANCE: Final = 0.1  # after a write that was no commit, or whose commit takes long


class DatabaseBroker(ORM):  # type: ignore[misc]
    """Looks for tasks when there may be one, instead of twenty times a second.

    PostgreSQL tells of a task with the commit that adds it. SQLite has no such thing, but a number that another
    process's commit changes, which is read without a transaction.
    """

    _waiter: "_Told | _Changed | None" = None

    def enqueue(self, task: str) -> int:
        pk: int = super().enqueue(task)
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"NOTIFY {_channel(self.list_key)}")
        return pk

    def dequeue(self) -> list[tuple[int, str]] | None:
        """Take a task. While the database is away there is none: an error would cost django-q ten seconds."""
        try:
            return self._dequeue()
        except (OperationalError, InterfaceError) as error:
            logger.warning("the queue cannot be read (%s); the next look follows", type(error).__name__)
            connection.close()
            if self._waiter is not None:
                self._waiter.close()
            wait(_stopping(), AWAY_SECONDS)
            return None

    def _dequeue(self) -> list[tuple[int, str]] | None:
        if self._waiter is None:
            self._waiter = (
                _Told(_channel(self.list_key)) if connection.vendor == "postgresql" else _Changed(self.list_key)
            )
        found: list[tuple[int, str]] | None = None
        if self._waiter.begin():
            found = super().dequeue()
        if found is None:  # an empty list: another cluster was faster at one, and there may be more
            self._waiter.wait()
        return found


def _channel(queue: str | None) -> str:
    return f"lqops_{Queue(queue or Queue.MAIN)}"


class _Told:
    """Waits for PostgreSQL to tell of a task, on a connection of its own."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._database = connection.copy()

    def begin(self) -> bool:
        """Listen from now on; what is told before the wait is kept. Return whether there may be a task."""
        if self._database.connection is None:
            with self._database.cursor() as cursor:
                cursor.execute(f"LISTEN {self._channel}")
        return True

    def wait(self) -> None:
        try:
            with self._database.wrap_database_errors:
                for _ in self._database.connection.notifies(timeout=LOOKS_EVERY, stop_after=1):
                    return
        except OperationalError:  # the next look finds out whether the database is back
            self.close()

    def close(self) -> None:
        self._database.close()


class _Changed:
    """Waits for a commit of another process in the file of SQLite.

    A write to its log is told by the system; the commit follows soon. Where writes are not told, it looks all the time.
    """

    def __init__(self, queue: str | None) -> None:
        self._database = connection.copy()
        self._queue = queue
        self._seen = 0
        self._none_in: int | None = None
        self._look_at = 0.0
        self._writes: FileWrites | None = None

    def begin(self) -> bool:
        """Return whether there may be a task: not if there was none, and nobody has written anything since."""
        self._seen = self._version()
        if self._writes is None:
            with suppress(OSError):
                self._writes = FileWrites(f"{self._database.settings_dict['NAME']}-wal")
        if self._seen == self._none_in and time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _LOOKS_UNWRITTEN
        return self._has_tasks()

    def _has_tasks(self) -> bool:
        """Return whether there is any task, taken or not, without the queries of Django: most writes add none."""
        with self._database.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {OrmQ._meta.db_table} WHERE key = %s LIMIT 1", [self._queue])  # noqa: S608 ours
            return cursor.fetchone() is not None

    def wait(self) -> None:
        self._none_in = self._seen
        if self._writes is None:
            self._look_for_commit(LOOKS_EVERY, _GLANCE_SECONDS, _GLANCE_SECONDS)
        elif self._version() == self._seen and self._writes.wait(_LOOKS_TOLD, beside=_stopping()):
            self._look_for_commit(LOOKS_EVERY, _FIRST_GLANCE, _LONGEST_GLANCE)

    def _look_for_commit(self, seconds: float, pause: float, longest: float) -> None:
        """Look for a commit, at most for so long, with longer and longer pauses."""
        ends_at = time.monotonic() + seconds
        while (left := ends_at - time.monotonic()) > 0 and self._version() == self._seen:
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, longest)

    def close(self) -> None:
        self._database.close()

    def _version(self) -> int:
        self._database.ensure_connection()
        return int(self._database.connection.execute("PRAGMA data_version").fetchone()[0])


def _stopping() -> list[int]:
    """Return what is readable when the cluster is to end."""
    return [_Runs.stopping.fileno()] if _Runs.stopping else []


@dataclass(frozen=True)
class QueueLength:
    """Tasks that no worker has taken. Redis does not know how long they have waited."""

    count: int
    oldest_at: datetime | None = None


def queue_length(now: datetime, queue: Queue = Queue.MAIN) -> QueueLength:
    if "orm" not in settings.Q_CLUSTER:
        return QueueLength(get_broker(queue.value).queue_size())
    free = OrmQ.objects.filter(key=queue.value, lock__lte=now)
    found = free.aggregate(count=Count("pk"), oldest=Min("lock"))
    return QueueLength(found["count"], found["oldest"])


def count_tasks(*, most: int) -> int:
    """Count the tasks of the main queue that no worker has taken, up to a number."""
    if "orm" not in settings.Q_CLUSTER:
        return min(queue_length(clock()).count, most)
    return int(OrmQ.objects.filter(key=Queue.MAIN.value, lock__lte=clock())[:most].count())


def load_tasks() -> None:
    """Import what tasks need, once, before workers are forked."""
    import_module(TASKS)


def prepare_tasks() -> None:
    """Do once, before forking, what every worker would do before its first task."""
    import_module(TASKS).prepare()


def run_cluster(queue: Queue, *, workers: int, before_stop: Callable[[], None]) -> None:
    """Run a cluster for one queue until the process is asked to stop; then call `before_stop` first.

    Sets what django-q reads from the environment when it is imported; its processes are forked and inherit it.
    """

    class Stopping(Cluster):  # type: ignore[misc]
        def sig_handler(self, number: int, frame: object) -> None:
            before_stop()
            super().sig_handler(number, frame)

    load_tasks()
    Conf.CLUSTER_NAME = queue.value
    Conf.WORKERS = workers
    Stopping().start()


class LocalQueue(django_q.cluster.Queue):  # type: ignore[misc]
    """A queue between the processes of a cluster. Whoever waits for its next item holds no lock.

    The queue of multiprocessing is waited for under its lock. A process that was killed meanwhile would never release
    it, and whoever replaces it would wait for ever.
    """

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002 as multiprocessing
        while block and timeout is None:
            retiring = [_Runs.retiring.fileno()] if _Runs.retiring else []
            found = wait([self._reader, *retiring], REST_SECONDS if retiring and _Runs.has_worked else None)
            if set(retiring) & set(found):
                return STOP
            if not found:
                _retire_after_work()
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


class ClusterGuard(Sentinel):  # type: ignore[misc]
    """The process that watches the processes of a cluster. They end with it, and it with the cluster.

    If one of them was killed in the moment in which it took an item, its queue is locked for ever. Then the guard
    ends, and the supervisor starts the cluster again.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        cluster = multiprocessing.parent_process()
        if cluster is not None and cluster.pid is not None:
            end_with_parent(cluster.pid)
        _Runs.stopping = arguments[0]
        prepare_tasks()
        self._changed = _Runs.guard_told = ForkEvent()
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
        _Runs.timer = arguments[2] if is_worker else None
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


def in_open_transaction() -> bool:
    """True inside a transaction. The wrapper of a test case does not count, as for atomic(durable=True)."""
    blocks = connection.atomic_blocks
    return bool(blocks) and not getattr(blocks[-1], "_from_testcase", False)
