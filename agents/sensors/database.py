"""Database sensors: the rows of one query, read-only, bounded in rows, bytes and time.

An operator names the connections (LQOPS_SENSOR_DATABASE_<NAME>); a definition names one of them and never sees its
address. Queries run in a read-only transaction that is never committed, one statement each.
"""

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from time import monotonic
from typing import Any, Final
from urllib.parse import quote

import dj_database_url
from django.conf import settings

from agents.sensors.poll import Poll
from agents.sensors.sensing import Failed

QUERY_SECONDS: Final = 10
CONNECT_SECONDS: Final = 5
MOST_BYTES: Final = 1024 * 1024
ERROR_CHARS: Final = 200
_STEPS: Final = 10_000  # of SQLite's machine, between two looks at the clock
_READING: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


class Query(Poll):
    async def look(self) -> tuple[Any, str]:
        source = self.spec.source
        rows = await asyncio.get_running_loop().run_in_executor(
            self.services.threads, run_query, str(source.database), str(source.query), source.max_rows
        )
        text = json.dumps(rows, sort_keys=True)
        if len(text) > MOST_BYTES:
            raise Failed(f"the rows have {len(text)} bytes; the limit is {MOST_BYTES}: select less")
        return rows, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def run_query(database: str, query: str, max_rows: int) -> list[dict[str, Any]]:
    """Return the first rows of a query as objects; Failed if it cannot be run."""
    url = settings.LQOPS_SENSOR_DATABASES.get(database)
    if url is None:
        known = ", ".join(sorted(settings.LQOPS_SENSOR_DATABASES)) or "none"
        raise Failed(f"there is no database {database!r} for sensors; known names: {known}")
    statement = query.strip().rstrip(";")
    if url.startswith("sqlite:"):
        return _sqlite_rows(str(dj_database_url.parse(url)["NAME"]), statement, max_rows)
    return _postgres_rows(url, statement, max_rows)


def _sqlite_rows(path: str, statement: str, max_rows: int) -> list[dict[str, Any]]:
    end = monotonic() + QUERY_SECONDS
    try:
        opening = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=CONNECT_SECONDS)
        with closing(opening) as connection:
            connection.set_progress_handler(lambda: int(monotonic() > end), _STEPS)
            connection.set_authorizer(_authorize)
            cursor = connection.execute(statement)
            return _objects([column[0] for column in cursor.description or ()], cursor.fetchmany(max_rows))
    except sqlite3.OperationalError as error:
        if monotonic() > end:
            raise Failed(f"the query took longer than {QUERY_SECONDS} seconds") from None
        raise Failed(f"the query failed: {_said(error)}") from None
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise Failed(f"the query failed: {_said(error)}") from None


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _postgres_rows(url: str, statement: str, max_rows: int) -> list[dict[str, Any]]:
    import psycopg

    limits = f"-c default_transaction_read_only=on -c statement_timeout={QUERY_SECONDS * 1000}"
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS, options=limits) as connection:
            connection.read_only = True
            cursor = connection.cursor()
            # Prepared: the server refuses more than one statement. By a cursor: it sends no more rows than are wanted.
            cursor.execute(f"DECLARE rows NO SCROLL CURSOR FOR {statement}".encode(), prepare=True)
            cursor.execute(f"FETCH {max_rows:d} FROM rows".encode())
            columns = [column.name for column in cursor.description or ()]
            rows = cursor.fetchall()
            connection.rollback()
    except psycopg.errors.QueryCanceled:
        raise Failed(f"the query took longer than {QUERY_SECONDS} seconds") from None
    except psycopg.OperationalError:
        raise Failed("the database cannot be reached, or refuses the connection") from None
    except psycopg.Error as error:
        raise Failed(f"the query failed: {_said(error)}") from None
    return _objects(columns, rows)


def _said(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:ERROR_CHARS]


def _objects(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [{name: _value(value) for name, value in zip(columns, row, strict=True)} for row in rows]


def _value(value: Any) -> Any:
    """Return a value of a column as JSON: numbers as numbers, times as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return f"{len(bytes(value))} bytes"
    if isinstance(value, dict | list):
        return json.loads(json.dumps(value, default=str))
    return str(value)
