"""Pages and filters of lists. Out-of-range pages are clamped; unknown filters are refused."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import django_filters
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import extend_schema_field
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

DEFAULT_SIZE: Final = 50
LARGEST_SIZE: Final = 200
LAST_PAGE: Final = 1_000_000
MOST_COUNTED: Final = 10_000  # rows that are counted: a list takes as long with a million rows as with these
PAGE_PARAMETERS: Final = frozenset({"page", "page_size", "cursor"})


def _counted(rows: QuerySet[Any], most: int) -> int:
    """Count rows by their keys: SQLite would work out other columns of all of them."""
    is_of_rows = not rows.query.values_select and rows.query.group_by is None
    return (rows.order_by().values("pk") if is_of_rows else rows.order_by())[:most].count()


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
        return min(sum(_counted(part, MOST_COUNTED) for part in self._parts), MOST_COUNTED)


Listed = QuerySet[Any] | Sequence[Any] | RowsInTurn


@dataclass(frozen=True)
class Cursor:
    """The key beside which a page begins, so that a page deep in a list takes as long as the first one.

    The row itself may be gone by then: nobody looks for it.
    """

    side: str
    key: int

    def __str__(self) -> str:
        return f"{self.side}-{self.key}"

    @classmethod
    def of(cls, request: Request) -> "Cursor | None":
        given = request.query_params.get("cursor")
        if given is None:
            return None
        if not (found := _CURSOR.fullmatch(given)):
            raise ValidationError({"cursor": ["Not a cursor: follow `next` or `previous` of a page."]})
        return cls(found[1], int(found[2]))

    def rows(self, rows: QuerySet[Any], number: int) -> list[Any]:
        """Return so many rows on this side, in the order of the list."""
        is_falling = str(rows.query.order_by[0]).startswith("-")
        lower = is_falling == (self.side == "after")
        beside = rows.filter(**{"pk__lt" if lower else "pk__gt": self.key})
        if self.side == "after":
            return list(beside[:number])
        return list(beside.reverse()[:number])[::-1]


_CURSOR: Final = re.compile("(after|before)-([0-9]{1,18})", re.ASCII)
_BY_KEY: Final = (("id",), ("-id",), ("pk",), ("-pk",))


class PagePagination(BasePagination):
    """`?page=2&page_size=100`. A page after the last one is empty, not an error.

    In lists in the order of ids, `next` and `previous` also name the row beside which their page begins.
    """

    @property
    def most_counted(self) -> int:
        return MOST_COUNTED

    def paginate_queryset(self, queryset: Listed, request: Request, view: Any = None) -> list[Any]:
        self.page = _integer(request, "page", default=1, maximum=LAST_PAGE)
        self.size = _integer(request, "page_size", default=DEFAULT_SIZE, maximum=LARGEST_SIZE)
        self.url = request.build_absolute_uri()
        self.goes_by_key = _goes_by_key(queryset)
        start = (self.page - 1) * self.size
        self.known = self.counted(queryset, view)
        rows = self._rows(queryset, start, Cursor.of(request))
        self.count = max(self.known, start + len(rows) if rows else 0)
        self.rows = rows[: self.size]
        return self.rows

    def _rows(self, listed: Listed, start: int, cursor: Cursor | None) -> list[Any]:
        """Return the rows of the page, and one of the next page if there is one."""
        if cursor is not None:
            if not self.goes_by_key:
                raise ValidationError({"cursor": ["This list has no cursors: give `page`."]})
            found = cursor.rows(cast("QuerySet[Any]", listed), self.size + 1)
            is_before = cursor.side == "before"
            self.has_more = bool(found) if is_before else len(found) > self.size
            return found[-self.size :] if is_before else found
        if self.goes_by_key and start > self.most_counted:
            self.has_more = False
            if self.known < self.most_counted:
                return []
            message = f"Page numbers reach the first {self.most_counted:,} rows. Follow `next` to go further."
            raise ValidationError({"page": [message]})
        found = _sliced(listed, start, start + self.size + 1)
        self.has_more = len(found) > self.size
        return found

    def counted(self, listed: Listed, view: Any) -> int:
        """Return how many rows there are, as far as they are counted."""
        match listed:
            case RowsInTurn():
                return listed.count()
            case QuerySet():
                return _counted(listed, self.most_counted)
            case _:
                return len(listed)

    def get_paginated_response(self, data: Any) -> Response:
        body = {
            "count": self.count,
            "page": self.page,
            "page_size": self.size,
            "next": self._link(self.page + 1, "after", self.rows[-1:]) if self.has_more else None,
            "previous": self._link(self._page_before(), "before", self.rows[:1]) if self.page > 1 else None,
            "results": data,
        }
        return Response(body)

    def _page_before(self) -> int:
        """Return the number of the page before this one; before an empty one it is the last that was counted."""
        last = max(1, -(-min(self.count, self.most_counted) // self.size))
        return self.page - 1 if self.rows else min(self.page - 1, last)

    def _link(self, page: int, side: str, beside: list[Any]) -> str:
        url = replace_query_param(remove_query_param(self.url, "cursor"), "page", page)
        if not self.goes_by_key or not beside or page == 1:
            return url
        return replace_query_param(url, "cursor", str(Cursor(side, beside[0].pk)))

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        number = {"type": "integer"}
        return {
            "type": "object",
            "required": ["count", "page", "page_size", "next", "previous", "results"],
            "properties": {
                "count": {**number, "description": f"Rows on all pages, counted up to {self.most_counted:,}."},
                "page": number,
                "page_size": number,
                "next": link,
                "previous": link,
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        size = f"Rows per page, 1 to {LARGEST_SIZE}. Default: {DEFAULT_SIZE}."
        number = f"Page number, from 1. Without a cursor page numbers reach the first {self.most_counted:,} rows."
        cursor = "The place where the page begins, as `next` and `previous` have it."
        return [
            {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": kind}}
            for name, text, kind in (
                ("page", number, "integer"),
                ("page_size", size, "integer"),
                ("cursor", cursor, "string"),
            )
        ]


def _goes_by_key(rows: Listed) -> bool:
    """Return whether a row's key says its place in the list."""
    return isinstance(rows, QuerySet) and rows.query.order_by in _BY_KEY


def _sliced(rows: Listed, start: int, stop: int) -> list[Any]:
    return rows.slice(start, stop) if isinstance(rows, RowsInTurn) else list(rows[start:stop])


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


class ChoicesFilter(django_filters.MultipleChoiceFilter):  # type: ignore[misc]  # django-filter ships no types
    """Rows with one of the given values in a column of their own.

    django-filter's own filter makes the rows distinct, as a joined table may need: the database then sorts all of them
    by all their columns before it returns a page.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(distinct=False, **kwargs)


def public_id_filter(relation: str) -> django_filters.UUIDFilter:
    """Rows whose related row has this public id."""
    return django_filters.UUIDFilter(field_name=f"{relation}__public_id", label=f"The id of the {relation}.")
