"""Pages and filters of lists. Out-of-range pages are clamped; unknown filters are refused."""

from collections.abc import Sequence
from typing import Any, Final

import django_filters
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema_field
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

DEFAULT_SIZE: Final = 50
LARGEST_SIZE: Final = 200
LAST_PAGE: Final = 1_000_000
MOST_COUNTED: Final = 10_000  # rows that are counted: a list takes as long with a million rows as with these
PAGE_PARAMETERS: Final = frozenset({"page", "page_size"})


class RowsInTurn:
    """The rows of one queryset after those of another, each in an order for which it has an index."""

    def __init__(self, *parts: QuerySet[Any]) -> None:
        self._parts = parts

    def slice(self, start: int, stop: int) -> list[Any]:
        found: dict[Any, Any] = {}  # by id: a row may have changed from one part to the next meanwhile
        for part in self._parts:
            rows = list(part[start:stop])
            for row in rows:
                found.setdefault(row.pk, row)
            size = start + len(rows) if rows or not start else part.order_by().count()
            start, stop = max(start - size, 0), stop - size
            if stop <= 0:
                break
        return [*found.values()]

    def count(self) -> int:
        return min(sum(part.order_by()[:MOST_COUNTED].count() for part in self._parts), MOST_COUNTED)


Listed = QuerySet[Any] | Sequence[Any] | RowsInTurn


class PagePagination(BasePagination):
    """`?page=2&page_size=100`. A page after the last one is empty, not an error."""

    def paginate_queryset(self, queryset: Listed, request: Request, view: Any = None) -> list[Any]:
        self.page = _integer(request, "page", default=1, maximum=LAST_PAGE)
        self.size = _integer(request, "page_size", default=DEFAULT_SIZE, maximum=LARGEST_SIZE)
        self.url = request.build_absolute_uri()
        start = (self.page - 1) * self.size
        rows = _sliced(queryset, start, start + self.size + 1)
        self.has_more = len(rows) > self.size
        self.count = _counted(queryset, at_least=start + len(rows) if rows else 0)
        return rows[: self.size]

    def get_paginated_response(self, data: Any) -> Response:
        more = self.has_more
        body = {
            "count": self.count,
            "page": self.page,
            "page_size": self.size,
            "next": replace_query_param(self.url, "page", self.page + 1) if more else None,
            "previous": replace_query_param(self.url, "page", self.page - 1) if self.page > 1 else None,
            "results": data,
        }
        return Response(body)

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        number = {"type": "integer"}
        return {
            "type": "object",
            "required": ["count", "page", "page_size", "next", "previous", "results"],
            "properties": {
                "count": {**number, "description": f"Rows on all pages, counted up to {MOST_COUNTED:,}."},
                "page": number,
                "page_size": number,
                "next": link,
                "previous": link,
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        size = f"Rows per page, 1 to {LARGEST_SIZE}. Default: {DEFAULT_SIZE}."
        return [
            {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "integer"}}
            for name, text in (("page", "Page number, from 1."), ("page_size", size))
        ]


def _sliced(rows: Listed, start: int, stop: int) -> list[Any]:
    return rows.slice(start, stop) if isinstance(rows, RowsInTurn) else list(rows[start:stop])


def _counted(rows: Listed, *, at_least: int) -> int:
    """Return how many rows there are; of very many, as many as are known of."""
    match rows:
        case RowsInTurn():
            known = rows.count()
        case QuerySet():
            known = rows.order_by()[:MOST_COUNTED].count()
        case _:
            return len(rows)
    return max(known, at_least)


def _integer(request: Request, name: str, *, default: int, maximum: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    try:
        return max(1, min(int(given), maximum))
    except ValueError:
        raise ValidationError({name: [f"{given[:40]!r} is not a whole number."]}) from None


# --- Filters ---


class StrictFilterBackend(DjangoFilterBackend):  # type: ignore[misc]  # django-filter ships no types
    """The filters that a view lists in `filters`. Other query parameters are refused: without effect they mislead."""

    def get_filterset_class(self, view: Any, queryset: Any = None) -> Any:
        return type("Filters", (django_filters.FilterSet,), dict(getattr(view, "filters", {})))

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        known = PAGE_PARAMETERS | set(getattr(view, "filters", ()))
        if unknown := set(request.query_params) - known:
            message = f"Unknown. Known: {', '.join(sorted(known))}."
            raise ValidationError({name: [message] for name in unknown})
        return super().filter_queryset(request, queryset, view)


@extend_schema_field({"type": "string", "enum": ["false", "true"]})
class BooleanFilter(django_filters.ChoiceFilter):  # type: ignore[misc]  # django-filter ships no types
    """`true` or `false`; anything else is refused, where django-filter's own would ignore it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=(("true", "yes"), ("false", "no")), **kwargs)

    def filter(self, qs: QuerySet[Any], value: str) -> Any:
        return super().filter(qs, value == "true") if value else qs


def public_id_filter(relation: str) -> django_filters.UUIDFilter:
    """Rows whose related row has this public id."""
    return django_filters.UUIDFilter(field_name=f"{relation}__public_id", label=f"The id of the {relation}.")
