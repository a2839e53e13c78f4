"""The process of one query of a database sensor: reads the query from standard input, writes one JSON object.

A query can ask for any amount of memory, and for seconds inside of one function, where nothing in the same process can
stop it. This process can be ended: the system limits its memory, and a timer of the kernel ends it. It imports
nothing that needs settings, and learns the address of one database.
"""

import json
import resource
import signal
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from itertools import islice
from time import monotonic
from typing import Any, Final
from urllib.parse import quote

from agents.process_end import end_with_parent

MEGABYTE: Final = 1024 * 1024
MEMORY_BYTES: Final = 256 * MEGABYTE
MOST_BYTES: Final = MEGABYTE  # of the rows as JSON
VALUE_BYTES: Final = 16 * MEGABYTE  # of one value of SQLite, also of one that a query only works with
FILE_BYTES: Final = 16 * MEGABYTE  # SQLite keeps an index beside a database in WAL mode; it sorts in memory
CONNECT_SECONDS: Final = 5
ERROR_CHARS: Final = 200
TOO_MUCH_MEMORY: Final = f"the query needs more than {MEMORY_BYTES // MEGABYTE} MB of memory: select less"
_READING: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


class NotRead(Exception):
    """The rows cannot be read; the message says why."""


def main() -> None:
    end_with_parent(int(sys.argv[1]))
    job = json.load(sys.stdin)
    _limit_process()
    sys.stdout.write(answer(**job))


def answer(*, url: str, sqlite_file: str, statement: str, max_rows: int, seconds: float) -> str:
    """Return a JSON object with the rows, or with the reason why there are none."""
    try:
        if sqlite_file:
            rows = _sqlite_rows(sqlite_file, statement, max_rows, seconds)
        else:
            rows = _postgres_rows(url, statement, max_rows, seconds)
    except NotRead as refusal:
        return json.dumps({"failed": str(refusal)})
    except MemoryError:
        return json.dumps({"failed": TOO_MUCH_MEMORY})
    except Exception as error:  # noqa: BLE001 whatever a query leads to, the sensor has failed and goes on
        return json.dumps({"failed": f"the query failed: {_first_line(error) or type(error).__name__}"})
    return f'{{"rows": [{", ".join(rows)}]}}'


def _limit_process() -> None:
    for limit, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_FSIZE, FILE_BYTES)):
        with suppress(ValueError, OSError):  # a system without this limit has the timer, and the limit of a value
            resource.setrlimit(limit, (most, most))


def _end_after(seconds: float) -> None:
    """Have the kernel end this process: also inside of a function, where no handler would run."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


# --- SQLite ---


def _sqlite_rows(file: str, statement: str, max_rows: int, seconds: float) -> list[str]:
    opening = sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True, timeout=CONNECT_SECONDS)
    with closing(opening) as connection:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA hard_heap_limit = {MEMORY_BYTES:d}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
        connection.set_authorizer(_authorize)
        _end_after(seconds)
        cursor = connection.execute(statement)
        return _bounded(cursor, islice(cursor, max_rows))


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


# --- PostgreSQL ---


def _postgres_rows(url: str, statement: str, max_rows: int, seconds: float) -> list[str]:
    import psycopg  # an extra: not every installation has it

    # The server ends a query, too: the end of this process does not stop it before it sends something.
    limits = f"-c default_transaction_read_only=on -c statement_timeout={_milliseconds(seconds)}"
    try:
        connection = psycopg.connect(url, connect_timeout=CONNECT_SECONDS, options=limits)
    except psycopg.OperationalError:
        raise NotRead("the database cannot be reached, or refuses the connection") from None
    end = monotonic() + seconds
    _end_after(seconds)
    try:
        with closing(connection), connection.cursor() as cursor:
            connection.read_only = True
            # Prepared: the server refuses more than one statement. By a cursor: it sends no more rows than are wanted.
            cursor.execute(f"DECLARE rows NO SCROLL CURSOR FOR {statement}".encode(), prepare=True)
            cursor.execute(f"SET LOCAL statement_timeout = {_milliseconds(end - monotonic())}".encode())
            return _bounded(cursor, cursor.stream(f"FETCH {max_rows:d} FROM rows".encode()))
    except psycopg.errors.QueryCanceled:
        raise NotRead(too_slow(seconds)) from None
    except psycopg.Error as error:
        if error.sqlstate is None and "memory" in str(error):  # said by its library in this process
            raise MemoryError from None
        raise


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


# --- Both ---


def _bounded(cursor: Any, rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return rows as JSON objects, read one by one as long as they are not too long together."""
    texts: list[str] = []
    size = 0
    for row in rows:
        names = [column[0] for column in cursor.description]
        values = {name: _value(value) for name, value in zip(names, row, strict=True)}
        texts.append(json.dumps(values, sort_keys=True))
        size += len(texts[-1])
        if size > MOST_BYTES:
            raise NotRead(f"the rows have more than {MOST_BYTES} bytes: select less")
    return texts


def too_slow(seconds: float) -> str:
    return f"the query took longer than {seconds:g} seconds"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:ERROR_CHARS]


def _value(value: Any) -> Any:
    """Return a value of a column as JSON: numbers as numbers, times as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if is_whole else float(value)
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, dict | list):
        return json.loads(json.dumps(value, default=str))
    return str(value)
