"""The transaction of the statements that open and settle a call on SQLite."""

import sqlite3

import pytest
from django.db import IntegrityError, connection, transaction

from agents.ledger.prepared import run_on_sqlite, short_transaction
from agents.models import Installation

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.sqlite,  # PostgreSQL takes one statement, which needs none
]

DELETE = "DELETE FROM agents_installation WHERE id = %(id)s RETURNING id"
AGAIN = "INSERT INTO agents_installation SELECT * FROM agents_installation WHERE id = %(id)s RETURNING id"


def test_it_is_committed_at_its_end():
    with short_transaction() as database:
        assert run_on_sqlite(DELETE, {"id": 1}, database) == (1,)
        assert connection.connection.in_transaction
    assert not connection.connection.in_transaction
    assert not Installation.objects.exists()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_undoes_it(error):
    with pytest.raises(error), short_transaction() as database:
        run_on_sqlite(DELETE, {"id": 1}, database)
        raise error
    assert Installation.objects.exists()


def test_a_statement_that_fails_undoes_it_with_an_error_of_django():
    with pytest.raises(IntegrityError), short_transaction() as database:
        run_on_sqlite("UPDATE agents_installation SET halt_id = NULL WHERE id = %(id)s", {"id": 1}, database)
        run_on_sqlite(AGAIN, {"id": 1}, database)
    assert not connection.connection.in_transaction


def test_an_error_at_its_end_is_an_error_of_django_and_undoes_it():
    with pytest.raises(IntegrityError), short_transaction() as database:
        run_on_sqlite(
            "UPDATE agents_installation SET halt_id = 4711 WHERE id = %(id)s", {"id": 1}, database
        )  # there is no such row
    assert Installation.objects.filter(halt=None).exists()


def test_a_connection_that_cannot_be_rolled_back_is_closed():
    class Broken:
        def __init__(self, opened):
            self._opened = opened

        def rollback(self):
            raise sqlite3.OperationalError("disk I/O error")

        def __getattr__(self, name):
            return getattr(self._opened, name)

    connection.ensure_connection()
    connection.connection = Broken(connection.connection)
    with pytest.raises(RuntimeError), short_transaction() as database:
        run_on_sqlite(DELETE, {"id": 1}, database)
        raise RuntimeError
    assert connection.connection is None
    assert Installation.objects.exists()


def test_a_new_connection_is_opened_for_it():
    connection.close()
    with short_transaction() as database:
        assert run_on_sqlite("SELECT id FROM agents_installation WHERE id = %(id)s", {"id": 1}, database) == (1,)


def test_it_is_refused_in_a_transaction():
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic(), short_transaction():
        pytest.fail("it began")
