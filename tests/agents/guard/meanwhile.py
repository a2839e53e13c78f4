"""Does something on another connection at one moment of a call: before a transaction of it begins.

Whatever a call reads first and writes later, the moments between are found by what its connections send: each statement
that is sent while no transaction is open begins one. So the tests know nothing of how the guard is built.
"""

import threading
from contextlib import contextmanager
from unittest.mock import patch

from django.db import connection

from agents.ledger import at_once
from tests.flows.processes import in_threads


class Meanwhile:
    """Counts the moments of what is done inside the block, and does `change` at one of them."""

    def __init__(self, number, change):
        self.number, self.change = number, change
        self.moments = 0
        self.is_done = False
        self.answer = None
        self._error = None
        self._thread = threading.current_thread()

    def _moment(self):
        if self.is_done or threading.current_thread() is not self._thread:
            return
        self.is_done = self.moments == self.number
        self.moments += 1
        if self.is_done:
            try:
                [self.answer] = in_threads(1, lambda _: self.change())
            except BaseException as error:  # noqa: BLE001 the driver would hide it; the test raises it
                self._error = error

    def _sent_on_sqlite(self, database, _statement):
        if not database.in_transaction:
            self._moment()

    def _sent_on_postgres(self, execute, sql, params, many, context):
        if int(context["connection"].connection.pgconn.transaction_status) == 0:
            self._moment()
        return execute(sql, params, many, context)

    def _sent_prepared(self, sql, params, **more):
        connection.ensure_connection()
        if int(connection.connection.pgconn.transaction_status) == 0:
            self._moment()
        return _run_prepared(sql, params, **more)

    def _listen(self, database):
        database.ensure_connection()
        if database.vendor == "sqlite":
            opened = database.connection
            opened.set_trace_callback(lambda statement: self._sent_on_sqlite(opened, statement))
        else:
            database.execute_wrappers.append(self._sent_on_postgres)

    @contextmanager
    def watched(self):
        """Watch this thread's connection: the thread waits while the change is made, and others stay out of it."""
        self._listen(connection)
        try:
            with patch.object(at_once, "run_on_postgres", self._sent_prepared):
                yield self
        finally:
            connection.close()
            connection.execute_wrappers.clear()
        if self._error is not None:
            raise self._error


_run_prepared = at_once.run_on_postgres
