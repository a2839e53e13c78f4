"""Runs one prepared statement by the driver itself, with parameters by name: the statements of at_once.py.

The ORM and its cursors would take longer than the statement. Errors are Django's, transactions too.
"""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections, transaction

_NAMED: Final = re.compile(r"%\((\w+)\)s")

# --- PostgreSQL ---
#
# Through libpq, without a cursor of psycopg: half of the client's time for a statement with thirty parameters. No
# signal interrupts the wait for the server. Nobody holds what it waits for while doing nothing for more than 20 seconds
# (idle_in_transaction_session_timeout).

_TAKEN_NAME: Final = "42P05"  # by the same statement: its name is its digest
# Somebody deallocated it, or a column of its result was changed.
_LOST: Final = {"26000", "0A000"}
_DONE: Final = (1, 2)  # COMMAND_OK and TUPLES_OK
_TYPES: Final = {date: 1082}  # the number of the type; the server finds out all others by itself


@cache
def on_postgres() -> bool:
    """Return whether the installation's database is PostgreSQL."""
    return connections[DEFAULT_DB_ALIAS].vendor == "postgresql"


def run_on_postgres(sql: str, params: Mapping[str, Any], *, is_last: bool = False) -> list[Any] | None:
    """Run the statement and return its first row, as text. Outside of a transaction it is one of its own.

    So is the last statement of a block in which no other was run: the server need not begin and commit besides.
    """
    database = connections[DEFAULT_DB_ALIAS]
    database.validate_no_broken_transaction()
    database.ensure_connection()
    opened = database.connection
    with database.wrap_database_errors:
        if not is_last and not opened.autocommit and _is_idle(opened):
            checked(opened, opened.pgconn.exec_(b"BEGIN"))
        result = _run(opened, sql, params)
        if sqlstate(result) in _LOST and _is_idle(opened):
            result = _run(opened, sql, params)
        checked(opened, result)
        if not result.ntuples:
            return None
        values = (result.get_value(0, place) for place in range(result.nfields))
        return [None if value is None else value.decode() for value in values]


def _run(opened: Any, sql: str, params: Mapping[str, Any]) -> Any:
    """Run the statement under its name on this connection, which learns it with its first use."""
    numbered, names = _numbered(sql)
    known = vars(opened).setdefault("lqops_statements", {})
    name = known.get(sql)
    if name is None:
        name = b"lqops_%s" % hashlib.sha256(numbered).hexdigest()[:32].encode()
        made = opened.pgconn.prepare(name, numbered, [_TYPES.get(type(params[one]), 0) for one in names])
        if sqlstate(made) != _TAKEN_NAME:
            checked(opened, made)
        known[sql] = name
    values = map(params.__getitem__, names)
    texts = [None if value is None else _TEXTS.get(type(value), _as_text)(value) for value in values]
    result = opened.pgconn.exec_prepared(name, texts)
    if sqlstate(result) in _LOST:
        known.pop(sql)
        if _is_idle(opened):
            opened.pgconn.exec_(b"DEALLOCATE %s" % name)  # an error if it is gone already
    return result


def _as_text(value: Any) -> bytes:
    if isinstance(value, list):
        return f"{{{','.join(map(str, value))}}}".encode()
    return str(value).encode()


_TEXTS: Final[Mapping[type, Callable[[Any], bytes]]] = {str: str.encode, int: b"%d".__mod__}  # most are


def _is_idle(opened: Any) -> bool:
    return int(opened.pgconn.transaction_status) == 0


def sqlstate(result: Any) -> str:
    """Return the server's code for an error; empty if there is none."""
    found = result.error_field(ord("C"))
    return found.decode() if found else ""


def checked(opened: Any, result: Any) -> None:
    """Raise the driver's exception for a statement that failed."""
    if result.status in _DONE:
        return
    import psycopg  # it is not installed with the embedded default

    state = sqlstate(result)
    message = result.error_message.decode(errors="replace").strip()
    if not state:
        raise psycopg.OperationalError(message or opened.pgconn.error_message.decode(errors="replace").strip())
    if state in _LOST:  # in a transaction, which is of no more use
        raise psycopg.InternalError(message)
    try:
        error = psycopg.errors.lookup(state)
    except KeyError:
        error = psycopg.DatabaseError
    raise error(message)


@lru_cache(maxsize=32)
def _numbered(sql: str) -> tuple[bytes, list[str]]:
    """Return the statement with $1, $2 and so on, as the server takes it, and the parameters in that order."""
    names = list(dict.fromkeys(_NAMED.findall(sql)))
    return _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", sql).encode(), names


# --- SQLite ---

_CAST: Final = re.compile(r"(?<=[)sL])::\w+")


def database_of_thread() -> Any:
    """Return the connection of this thread; to ask for it takes as long as a small statement."""
    return connections[DEFAULT_DB_ALIAS]


def run_on_sqlite(sql: str, params: Mapping[str, Any], database: Any) -> tuple[Any, ...] | None:
    """Run the statement, which the driver keeps prepared, and return its first row."""
    database.validate_no_broken_transaction()
    try:
        found: tuple[Any, ...] | None = database.connection.execute(_colons(sql), params).fetchone()
    except sqlite3.Error:
        with database.wrap_database_errors:
            raise
    return found


@contextmanager
def short_transaction() -> Iterator[Any]:
    """A transaction of its own for statements of this module alone, in a third of the time of `transaction.atomic`.

    It gives the connection.
    """
    database = connections[DEFAULT_DB_ALIAS]
    if database.in_atomic_block:  # as tests are; elsewhere it is an error, which atomic raises
        with transaction.atomic(durable=True):
            yield database
        return
    database.ensure_connection()
    with database.wrap_database_errors:
        database.connection.execute("BEGIN IMMEDIATE")
    try:
        yield database
        with database.wrap_database_errors:
            database.connection.commit()
    except BaseException:
        try:
            database.connection.rollback()
        except sqlite3.Error:  # the first error is the one to raise
            database.close()
        raise


def adapted(params: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values as Django does for SQLite."""
    found = dict(params)
    for name, value in params.items():
        if type(value) in _ADAPTED:
            found[name] = _ADAPTED[type(value)](value)
    return found


_ADAPTED: Final[Mapping[type, Callable[[Any], Any]]] = {
    datetime: lambda value: str(value if value.tzinfo is UTC else value.astimezone(UTC))[: -len("+00:00")],
    date: str,
    UUID: lambda value: value.hex,
}


@lru_cache(maxsize=32)
def _colons(sql: str) -> str:
    """Return the statement with :name for each parameter and without the casts of PostgreSQL."""
    return _NAMED.sub(r":\1", _CAST.sub("", sql))
