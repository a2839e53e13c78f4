"""Reads the audit log in several processes, each some of the chains, all at the same moment of the database.

Without one moment for all, a chain that is opened meanwhile would be seen without its opening, or the other way round.
PostgreSQL hands a snapshot from one connection to others. On SQLite they begin to read while nobody can write.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from multiprocessing import connection as lines
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import django
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, transaction

ROWS_EACH: Final = 25_000  # less is verified within a second: not worth a further processor, which others may need

Progress = Callable[[int], None]


class Bounds(NamedTuple):
    """Chains from `first` on, up to but without `end`, in the order of the database. None is no bound."""

    first: str | None = None
    end: str | None = None


class NotAtOnce(DatabaseError):
    """Several processes could not begin to read at one moment, as when nothing may write to the file of SQLite."""


class Failed(NamedTuple):
    """An error of a process, as it is raised again."""

    error: DatabaseError


def split(chains: list[tuple[str, int]], processes: int | None) -> list[Bounds]:
    """Divide the chains, given in order with their rows, into that many ranges of about as many rows.

    Without a number, into one for each processor, if there are rows enough.
    """
    rows = sum(count for _, count in chains)
    if processes is None:
        processes = min(_processors(), rows // ROWS_EACH)
    starts: list[str] = []
    before = 0
    for chain, count in chains:
        if before and before * processes >= rows * (len(starts) + 1):
            starts.append(chain)
        before += count
    return [Bounds(first, end) for first, end in zip([None, *starts], [*starts, None], strict=True)]


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def read_parts(parts: list[Bounds], work: str, progress: Progress) -> list[Any]:
    """Return what a function returns for each part, in their order. A process of its own runs each.

    `work` is its module and its name; it gets the bounds and a function to call with each number of rows that it has
    read. Raises DatabaseError, as it would; NotAtOnce before anything was read.
    """
    connections.close_all()  # no two processes may use one
    context: Any = get_context("fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn")
    own: list[Any] = []
    processes: list[Any] = []
    try:
        for bounds in parts:
            line, theirs = context.Pipe()
            given = (theirs, dict(connection.settings_dict), work, bounds)
            processes.append(context.Process(target=run_part, args=given, daemon=True))
            processes[-1].start()
            theirs.close()
            own.append(line)
        _begin(own)
        return _results(own, progress)
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.join()
        for line in own:
            line.close()


def _begin(own: list[Any]) -> None:
    """Have them all begin to read at the same moment."""
    try:
        for line in own:
            _received(line)  # it is connected
        with _moment() as snapshot:
            for line in own:
                line.send(snapshot)
            for line in own:
                _received(line)  # it reads as of now
    except (DatabaseError, OSError) as error:
        raise NotAtOnce(str(error)) from error


def _results(own: list[Any], progress: Progress) -> list[Any]:
    """Pass on how many rows were read, until every process has sent its result."""
    results: dict[Any, Any] = {}
    while len(results) < len(own):
        for line in lines.wait([line for line in own if line not in results]):
            received = _received(line)
            if isinstance(received, int):
                progress(received)
            else:
                results[line] = received
    return [results[line] for line in own]


def _received(line: Any) -> Any:
    try:
        received = line.recv()
    except (EOFError, OSError):
        raise DatabaseError("a process that verified a part of it has ended") from None
    if isinstance(received, Failed):
        raise received.error
    return received


@contextmanager
def _moment() -> Iterator[str]:
    """Inside, every process that begins to read sees the same rows. Yields the name of a snapshot, on PostgreSQL."""
    with transaction.atomic(), connection.cursor() as cursor:  # SQLite: nobody writes meanwhile
        if connection.vendor == "sqlite":
            yield ""
        else:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            yield cursor.fetchone()[0]


@contextmanager
def _as_of(snapshot: str) -> Iterator[None]:
    """Inside, this process reads as of that moment."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")  # Django's own would take the write lock
            cursor.execute("SELECT 1 FROM sqlite_master LIMIT 1")  # the moment is that of the first read
            cursor.fetchall()
            yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")  # it takes no parameter, and PostgreSQL made the name
        yield


def run_part(line: Any, database: dict[str, Any], work: str, bounds: Bounds) -> None:
    """Do a part, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    django.setup()  # a new interpreter has not
    connections.settings[DEFAULT_DB_ALIAS].update(database)
    module, _, name = work.rpartition(".")
    with suppress(OSError), closing(connection):  # without its parent, it ends
        try:
            connection.ensure_connection()
            line.send("connected")
            with _as_of(line.recv()):
                line.send("reading")
                result = getattr(import_module(module), name)(bounds, line.send)
            line.send(result)
        except DatabaseError as error:
            line.send(Failed(DatabaseError(str(error))))
