"""Filters of lists. A parameter that is not known, or has no sense, is refused: a filter that does nothing misleads."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from agents.api.paging import PARAMETERS

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
