"""The database as broker: whoever waits for a task is told of it."""

import logging
import time
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Final

from django.db import InterfaceError, OperationalError, close_old_connections, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from agents.conf import clock
from agents.database_clock import may_claim_lately, shared
from agents.queue.file_writes import FileWrites
from agents.queue.sending import Queue
from agents.queue.workers import stopping_handles

logger = logging.getLogger(__name__)

# Seconds between two looks
AWAY_SECONDS: Final = 0.5  # while the database is away
POLL_SECONDS: Final = 0.5  # at PostgreSQL, where a pooler passes no notification on
_POLL_TOLD: Final = 5.0  # where one has arrived: what comes due again then are tasks of a lost worker
_PROOF_SECONDS: Final = 600.0  # how long a notification proves that the next one arrives
_POLL_WATCHED: Final = 2.0  # at SQLite, where every write is noticed
_POLL_UNWRITTEN: Final = 5.0  # where nobody has written: what comes due again then are tasks of a lost worker
_COMMIT_PAUSE: Final = 0.01  # for a commit, where writes are not noticed
_FIRST_PAUSE: Final = 0.001  # after a write: its commit follows soon
_LONGEST_PAUSE: Final = 0.1  # after a write whose commit takes long, or that was none


class DatabaseBroker(ORM):  # type: ignore[misc]  # django-q ships no types
    """Looks for tasks when there may be one, instead of twenty times a second.

    PostgreSQL tells of a task with the commit that adds it. SQLite has no such thing, but a number that another
    process's commit changes, which is read without a transaction.
    """

    _waiter: "_Listener | _CommitWatcher | None" = None

    def enqueue(self, task: str) -> int:
        now = shared(clock())  # all hosts look for it by theirs
        pk: int = self.get_connection().create(key=self.list_key or Conf.CLUSTER_NAME, payload=task, lock=now).pk
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"NOTIFY {_channel(self.list_key)}")
        return pk

    def dequeue(self) -> list[tuple[int, str]] | None:
        """Take a task. While the database is away there is none: an error would cost django-q ten seconds."""
        try:
            return self._dequeue()
        except (OperationalError, InterfaceError) as error:
            logger.warning("the queue cannot be read (%s); retrying", type(error).__name__)
            connection.close()
            if self._waiter is not None:
                self._waiter.close()
            wait(stopping_handles(), AWAY_SECONDS)
            return None

    def _dequeue(self) -> list[tuple[int, str]] | None:
        if self._waiter is None:
            self._waiter = (_Listener if connection.vendor == "postgresql" else _CommitWatcher)(self.list_key)
        has_tasks = self._waiter.begin()
        found: list[tuple[int, str]] | None = super().dequeue() if has_tasks and may_claim_lately() else None
        if found is None:  # an empty list: another cluster was faster at one, and there may be more
            self._waiter.wait(has_tasks=has_tasks)
        return found


def _channel(queue: str | None) -> str:
    return f"lqops_{Queue(queue or Queue.MAIN)}"


def _has_tasks(database: BaseDatabaseWrapper, queue: str | None) -> bool:
    """Return whether there is any task, taken or not, without the queries of Django: most looks find none."""
    with database.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {OrmQ._meta.db_table} WHERE key = %s LIMIT 1", [queue])  # noqa: S608 ours
        return cursor.fetchone() is not None


class _Listener:
    """Waits for PostgreSQL to tell of a task, on a connection of its own.

    Some poolers pass nothing on, and a line may be cut without a word. So it relies on being told only while it has
    been told something lately, if need be by itself.
    """

    def __init__(self, queue: str | None) -> None:
        self._queue = queue
        self._database = connection.copy()
        self._told_until = self._prove_at = 0.0

    def begin(self) -> bool:
        """Listen from now on; what is told before the wait is kept. Return whether there may be a task."""
        now = time.monotonic()
        is_unsure = self._database.connection is None or now >= max(self._told_until, self._prove_at)
        if is_unsure:
            self.close()
            with self._database.cursor() as cursor:
                cursor.execute(f"LISTEN {_channel(self._queue)}")
        close_old_connections()
        if is_unsure:
            self._told_until, self._prove_at = 0.0, now + _PROOF_SECONDS
            with connection.cursor() as cursor:
                cursor.execute(f"NOTIFY {_channel(self._queue)}")
        return _has_tasks(connection, self._queue)

    def wait(self, *, has_tasks: bool = False) -> None:
        """Wait to be told. Tasks that are there, and could not be taken, come due by the clock."""
        is_told = time.monotonic() < self._told_until and not has_tasks
        seconds = _POLL_TOLD if is_told else POLL_SECONDS
        try:
            with self._database.wrap_database_errors:
                if not self._take():
                    wait([self._database.connection.fileno(), *stopping_handles()], seconds)
                    self._take()
        except OperationalError:  # the next look finds out whether the database is back
            self.close()

    def _take(self) -> bool:
        """Return whether anything was told."""
        told = list(self._database.connection.notifies(timeout=0))
        if told:
            self._told_until = time.monotonic() + _PROOF_SECONDS
        return bool(told)

    def close(self) -> None:
        self._database.close()


class _CommitWatcher:
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
        self._look_at = time.monotonic() + _POLL_UNWRITTEN
        return _has_tasks(self._database, self._queue)

    def wait(self, *, has_tasks: bool = False) -> None:
        self._none_in = None if has_tasks else self._seen
        if self._writes is None:
            self._look_for_commit(POLL_SECONDS, _COMMIT_PAUSE, _COMMIT_PAUSE)
        elif self._version() == self._seen and self._writes.wait(_POLL_WATCHED, beside=stopping_handles()):
            self._look_for_commit(POLL_SECONDS, _FIRST_PAUSE, _LONGEST_PAUSE)

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
