"""Expressions for queries about several tables."""

from typing import Any

from django.db.models import IntegerField, QuerySet, Subquery


class CountOf(Subquery):
    """The number of rows of a query, up to `most`, as one column of another."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) _counted)"
    output_field = IntegerField()

    def __init__(self, rows: QuerySet[Any], most: int | None = None) -> None:
        super().__init__(rows.order_by().values("pk")[:most])
