"""One prepared statement by PostgreSQL's own library: parameters, errors, transactions and lost statements."""

import pytest
from django.db import DatabaseError, IntegrityError, InternalError, OperationalError, connection, transaction

from agents.enums import Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.ledger.prepared import run_on_postgres
from agents.models import Installation, ToolCall
from tests.factories import make_session

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no libpq"),
]

ADDED = "SELECT %(number)s::int + 1"
RAISES = """
CREATE FUNCTION pg_temp.raises() RETURNS int LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'of our own' USING ERRCODE = 'LQ001'; END $$"""


def run(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


def test_parameters_are_given_by_name_and_values_come_as_text():
    found = run_on_postgres(
        "SELECT %(some)s::int[], %(none)s::text, %(text)s::text, %(some)s::int[] @> '{2}'",
        {"some": [1, 2], "none": None, "text": "it's 100 % ü"},
    )

    assert found == ["{1,2}", None, "it's 100 % ü", "t"]


def test_statement_without_a_row_returns_none():
    assert run_on_postgres("SELECT 1 WHERE %(number)s::int > 1", {"number": 1}) is None


def test_statement_that_somebody_deallocated_is_prepared_again():
    assert run_on_postgres(ADDED, {"number": 1}) == ["2"]
    run("DEALLOCATE ALL")

    assert run_on_postgres(ADDED, {"number": 2}) == ["3"]


def test_statement_is_prepared_again_after_a_column_of_its_result_was_changed():
    run("CREATE TEMPORARY TABLE changing (number int)")
    run("INSERT INTO changing VALUES (1)")
    read = "SELECT number FROM changing WHERE number = %(number)s"
    assert run_on_postgres(read, {"number": 1}) == ["1"]
    run("ALTER TABLE changing ALTER number TYPE numeric(9, 2)")

    assert run_on_postgres(read, {"number": 1}) == ["1.00"]


def test_statement_that_this_session_of_the_server_has_already_is_used():
    assert run_on_postgres(ADDED, {"number": 1}) == ["2"]
    vars(connection.connection)["lqops_statements"].clear()  # as in a new client behind a pool of the server's sessions

    assert run_on_postgres(ADDED, {"number": 2}) == ["3"]


def test_in_a_transaction_a_lost_statement_ends_the_transaction_and_the_next_one_has_it():
    run_on_postgres(ADDED, {"number": 1})
    with pytest.raises(InternalError), transaction.atomic():
        run("DEALLOCATE ALL")
        run_on_postgres(ADDED, {"number": 2})

    with transaction.atomic():
        assert run_on_postgres(ADDED, {"number": 2}) == ["3"]


def test_local_call_whose_statements_were_deallocated_is_made_step_by_step():
    session = make_session(status=Status.RUNNING, current_phase=Phase.DELIVERY)
    notes = [guarded_tool_call(session, ToolIntent.NOTIFY, {"title": "Done"}, key="delivery:1")]
    run("DEALLOCATE ALL")
    notes.append(guarded_tool_call(session, ToolIntent.NOTIFY, {"title": "Done"}, key="delivery:2"))

    assert [note.ok for note in notes] == [True, True]
    assert ToolCall.objects.filter(session=session).count() == 2


def test_first_statement_of_a_transaction_is_undone_with_it():
    with pytest.raises(RuntimeError), transaction.atomic():
        assert run_on_postgres("DELETE FROM agents_installation WHERE id = %(id)s RETURNING id", {"id": 1}) == ["1"]
        raise RuntimeError

    assert Installation.objects.filter(pk=1).exists()


def test_errors_are_those_of_django():
    again = "INSERT INTO agents_installation SELECT * FROM agents_installation WHERE id = %(id)s RETURNING id"
    with pytest.raises(IntegrityError):
        run_on_postgres(again, {"id": 1})

    run(RAISES)
    with pytest.raises(DatabaseError, match="of our own"):
        run_on_postgres("SELECT pg_temp.raises() + %(number)s", {"number": 1})


def test_lost_connection_is_an_operational_error_until_it_is_replaced():
    with pytest.raises(OperationalError):
        run_on_postgres("SELECT pg_terminate_backend(pg_backend_pid()) WHERE %(number)s::int = 1", {"number": 1})
    with pytest.raises(OperationalError):
        run_on_postgres(ADDED, {"number": 1})

    connection.close()
    assert run_on_postgres(ADDED, {"number": 1}) == ["2"]
