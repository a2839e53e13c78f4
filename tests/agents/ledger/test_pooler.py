"""A connection pooler before PostgreSQL: whether it keeps the prepared statements on which calls rely."""

from contextlib import closing
from types import SimpleNamespace

import pytest
from django.db import InternalError, connection, transaction

from agents.checks.doctor import diagnose
from agents.ledger import pooler
from agents.ledger.pooler import FORGETS, ROUNDS, TEST_AGAIN, TEST_EVERY, UNTESTED, pooler_fault
from agents.ledger.prepared import run_on_postgres
from agents.sessions.control_room import health
from tests.factories import NOW

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no pooler"),
]
if connection.vendor == "postgresql":
    from tests.pooler import Pool, connected_through

ADDED = "SELECT %(number)s::int + 1"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Begin as a new process does, at a time that the test sets."""
    monkeypatch.setattr(pooler._Last, "until", float("-inf"))
    monkeypatch.setattr(pooler._Last, "fault", "")
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(pooler, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def red_about_pooler():
    return [fault.text for fault in health(NOW).faults if fault.code == "pooler"]


def doctor_found():
    [check] = [check for check in diagnose() if check.name.startswith("prepared statements")]
    return check.ok, check.found


def run_twice_while_another_client_works():
    """Run a statement in one session of the server, and in a transaction that has another one."""
    run_on_postgres(ADDED, {"number": 1})
    with closing(connection.copy()) as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT 1")
        with transaction.atomic():
            return run_on_postgres(ADDED, {"number": 2})


def test_pooler_that_forgets_statements_fails_a_call_and_is_red_before_one_is_made():
    with connected_through(Pool.FORGETS):
        assert red_about_pooler() == [FORGETS]
        assert doctor_found() == (False, FORGETS)

        with pytest.raises(InternalError, match="does not exist"):
            run_twice_while_another_client_works()


def test_pooler_that_keeps_statements_is_no_fault():
    with connected_through(Pool.KEEPS) as proxy:
        assert run_twice_while_another_client_works() == ["3"]
        clients = proxy.clients_ever

        assert red_about_pooler() == []
        assert doctor_found()[0]
        assert proxy.clients_ever == clients + 2 * ROUNDS


def test_pooler_that_leaves_each_client_its_session_is_no_fault():
    with connected_through(Pool.SESSION, size=4):
        assert red_about_pooler() == []


def test_pooler_that_admits_no_more_clients_is_red_for_it_could_not_be_tested():
    with connected_through(Pool.KEEPS) as proxy:
        connection.ensure_connection()
        proxy.most_clients = 1

        assert red_about_pooler() == [UNTESTED]


def test_faulty_pooler_is_tested_again_sooner_than_one_without_fault(clock):
    with connected_through(Pool.FORGETS) as proxy:
        assert pooler_fault() == FORGETS
        proxy.kind = Pool.KEEPS
        clock.now += TEST_AGAIN - 1
        assert pooler_fault() == FORGETS
        clock.now += 1
        assert pooler_fault() == ""

        proxy.kind = Pool.FORGETS
        clock.now += TEST_EVERY - 1
        assert pooler_fault() == ""
        clock.now += 1
        assert pooler_fault() == FORGETS


def test_direct_connection_is_known_by_its_number_and_opens_no_other(monkeypatch):
    connection.ensure_connection()
    monkeypatch.setattr(connection, "get_new_connection", lambda _: pytest.fail("opened another connection"))

    assert red_about_pooler() == []
    assert doctor_found()[0]
