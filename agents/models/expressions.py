"""Expressions for queries about several tables."""

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Func, IntegerField, Q, QuerySet, Subquery, TextField
from django.db.models.sql.compiler import SQLCompiler


class CountOf(Subquery):
    """The number of rows of a query, up to `most`, as one column of another."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) _counted)"
    output_field = IntegerField()

    def __init__(self, rows: QuerySet[Any], most: int | None = None) -> None:
        super().__init__(rows.order_by().values("pk")[:most])


class ChatOf(Func):
    """The id of the chat that a session is a message of, in the words of its index.

    Django's own transform of a key compares JSON on SQLite, and no index has that.
    """

    template = "JSON_EXTRACT(%(expressions)s, '$.chat')"
    output_field = TextField()

    def __init__(self, params: str = "params") -> None:
        super().__init__(params)

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, Sequence[Any]]:
        return self.as_sql(compiler, connection, template="(%(expressions)s ->> 'chat')", **context)


class Likely(Func):
    """A condition that SQLite is to expect of most rows: then it takes the index of another condition.

    Without statistics, which lqops does not have SQLite gather, it takes an equality for the rarer condition, and an
    index with that equality as its own condition for none. PostgreSQL gathers statistics.
    """

    function = "likely"
    output_field = BooleanField()

    def __init__(self, condition: Q) -> None:
        super().__init__(condition)

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, Sequence[Any]]:
        return self.as_sql(compiler, connection, template="(%(expressions)s)", **context)
