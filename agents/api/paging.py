"""Pages of a list: 50 rows unless asked otherwise, never more than 200. What is out of range is clamped."""

from collections.abc import Sequence
from typing import Any, Final

import django_filters
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

DEFAULT_SIZE: Final = 50
LARGEST_SIZE: Final = 200
LAST_PAGE: Final = 1_000_000
PARAMETERS: Final = frozenset({"page", "page_size"})


class Pages(BasePagination):
    """`?page=2&page_size=100`. A page beyond the end is empty, not an error."""

    def paginate_queryset(
        self, queryset: QuerySet[Any] | Sequence[Any], request: Request, view: Any = None
    ) -> list[Any]:
        self.page = _whole(request, "page", default=1, most=LAST_PAGE)
        self.size = _whole(request, "page_size", default=DEFAULT_SIZE, most=LARGEST_SIZE)
        self.url = request.build_absolute_uri()
        start = (self.page - 1) * self.size
        self.count = queryset.count() if isinstance(queryset, QuerySet) else len(queryset)
        return list(queryset[start : start + self.size])

    def get_paginated_response(self, data: Any) -> Response:
        more = self.page * self.size < self.count
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
                "count": {**number, "description": "All rows, not only those of this page."},
                "page": number,
                "page_size": number,
                "next": link,
                "previous": link,
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        size = f"Rows on a page: {DEFAULT_SIZE} by default, from 1 to {LARGEST_SIZE}."
        return [
            {"name": name, "in": "query", "required": False, "description": text, "schema": {"type": "integer"}}
            for name, text in (("page", "Which page, from 1."), ("page_size", size))
        ]


def _whole(request: Request, name: str, *, default: int, most: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    digits = given.strip()
    if not (digits.isascii() and digits.removeprefix("-").isdigit()):
        raise ValidationError({name: [f"{given[:40]!r} is not a whole number."]})
    # More digits than the largest has: no need to read them all.
    value = int(digits) if len(digits) <= len(str(most)) + 1 else (1 if digits.startswith("-") else most)
    return max(1, min(value, most))


# Filters of lists. A parameter that is not known, or has no sense, is refused: a filter that does nothing misleads.


YES_OR_NO = (("true", "yes"), ("false", "no"))


class StrictBackend(DjangoFilterBackend):  # type: ignore[misc]  # django-filter ships no types
    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> Any:
        filters = self.get_filterset_class(view, queryset)
        known = PARAMETERS | set(filters.base_filters if filters else ())
        if unknown := set(request.query_params) - known:
            named = ", ".join(sorted(known))
            raise ValidationError({name: [f"Not known here; known are: {named}."] for name in unknown})
        return super().filter_queryset(request, queryset, view)


class YesOrNo(django_filters.ChoiceFilter):  # type: ignore[misc]  # django-filter ships no types
    """true or false, and no third reading."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=YES_OR_NO, **kwargs)


def public_id(field: str, label: str) -> django_filters.UUIDFilter:
    """Rows that belong to the row of this id."""
    return django_filters.UUIDFilter(field_name=f"{field}__public_id", label=label)
