"""Tests whether a connection pooler before PostgreSQL keeps the prepared statements on which calls rely (prepared.py).

A pooler in transaction mode gives each transaction any session of the server that is free. One that does not prepare a
client's statements there as well fails a call whenever that is another session than the last one: by chance.
"""

import logging
import time
from contextlib import closing
from typing import Any, Final
from uuid import uuid4

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections

from agents.ledger.prepared import checked, on_postgres, sqlstate

logger = logging.getLogger(__name__)

TEST_EVERY: Final = 300.0  # seconds
TEST_AGAIN: Final = 30.0  # seconds after a fault, which somebody may be fixing
ROUNDS: Final = 3
_HELD_AT_MOST: Final = "500ms"  # in a pool of one session the first client waits for it
_UNKNOWN_STATEMENT: Final = "26000"

FORGETS: Final = (
    "The connection pooler before PostgreSQL does not keep prepared statements, so calls fail by chance. Set "
    "max_prepared_statements above 0 (PgBouncer 1.21 or newer), use its session mode, or connect without it "
    "(LQOPS_DATABASE_URL)."
)
UNTESTED: Final = (
    "The connection pooler before PostgreSQL could not be tested for prepared statements, without which calls fail by "
    "chance. Allow lqops two more connections there. The log has the error."
)


class _Last:
    """What this process has found out, and until when that holds."""

    fault = ""
    until = float("-inf")


def pooler_fault() -> str:
    """Return what is wrong with the pooler; empty if nothing is, or there is none. Tested anew after some minutes.

    Meanwhile, and while another thread tests, the last answer stands.
    """
    if on_postgres() and time.monotonic() >= _Last.until:
        _Last.until = time.monotonic() + TEST_AGAIN
        _Last.fault = _find_fault()
        if not _Last.fault:
            _Last.until = time.monotonic() + TEST_EVERY
    return _Last.fault


def _find_fault() -> str:
    """Test the pooler. Without one this takes a short statement."""
    database = connections[DEFAULT_DB_ALIAS]
    database.ensure_connection()
    with database.wrap_database_errors:
        # A pooler gives each client a process number that is not the one of a session of the server.
        if database.connection.pgconn.backend_pid == _server_session(database.connection):
            return ""
    try:
        with database.wrap_database_errors:
            return "" if all(_keeps_statement(database) for _ in range(ROUNDS)) else FORGETS
    except DatabaseError as error:
        logger.warning("the pooler could not be tested: %s", error)
        return UNTESTED


def _server_session(connection: Any) -> int:
    result = connection.pgconn.exec_(b"SELECT pg_backend_pid()")
    checked(connection, result)
    return int(result.get_value(0, 0))


def _connection(database: Any) -> Any:
    """Open a connection of the driver's, as those of the calls are."""
    opened = database.get_new_connection(database.get_connection_params())
    opened.autocommit = True
    return opened


def _keeps_statement(database: Any) -> bool:
    """Return whether a statement that was prepared in one session of the server can be run in another.

    A second client takes the session in which it was prepared, so the first is given another one. While others work,
    it may get the same one all the same: hence several rounds. In session mode it always does.
    """
    name = b"lqops_test_" + uuid4().hex.encode()
    with closing(_connection(database)) as client, closing(_connection(database)) as other:
        checked(client, client.pgconn.prepare(name, b"SELECT 1"))
        other.execute("BEGIN")
        other.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_HELD_AT_MOST}'")
        result = client.pgconn.exec_prepared(name, None)
        if sqlstate(result) != _UNKNOWN_STATEMENT:
            checked(client, result)
            return True
    return False
