"""Checks of the tables that every call writes to. PostgreSQL reads all of a table's checks with each statement."""

import pytest
from django.db import connection

from agents.models import AgentSession, ToolCall

LISTS = """
SELECT conname FROM pg_constraint
WHERE contype = 'c' AND conrelid = %s::regclass AND pg_get_constraintdef(oid) LIKE '%%ARRAY[%%'"""


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps its checks ready")
@pytest.mark.django_db
@pytest.mark.parametrize("model", [AgentSession, ToolCall])
def test_checks_hold_their_values_as_one_constant(model):
    """As agents/migrations/0023_closed_sets_as_constants.py writes them, not as a list that is put together."""
    with connection.cursor() as cursor:
        cursor.execute(LISTS, [model._meta.db_table])
        assert cursor.fetchall() == []
