"""Which texts can be the query of a sensor that reads a database."""

import pytest

from agents.policy.queries import query_problem


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "with a AS (SELECT 1) SELECT * FROM a;",
        "(SELECT 1)",
        "-- newest\nselect 1",
        "VALUES (1)",
        "TABLE orders",
    ],
)
def test_queries_that_read_are_taken(query):
    assert query_problem(query) == ""


@pytest.mark.parametrize(
    "query", ["", "DELETE FROM orders", "-- SELECT\nDROP TABLE orders", "1", "/* select */ update a set b=1"]
)
def test_other_statements_are_refused(query):
    assert query_problem(query) == "it has to begin with SELECT, WITH, VALUES or TABLE"


def test_two_statements_are_refused():
    assert query_problem("SELECT 1; DELETE FROM orders") == "it contains a semicolon"
