"""Pages of a list: 50 rows unless asked otherwise, never more than 200. What is out of range is clamped."""

from collections.abc import Sequence
from typing import Any, Final

from django.db.models import QuerySet
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
