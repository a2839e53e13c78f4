"""What every view of the API stands on: its rows belong to the person who asks, and services do the writing.

A queryset holds nobody else's rows, so a stranger's id is 404 on every route, also for staff: through the API nobody
gets more than their own. What needs a person's permission beyond that is decided by the services.
"""

from datetime import datetime
from typing import Any, TypeVar, cast

from django.contrib.auth.models import User
from django.db import models
from django.db.models import QuerySet
from rest_framework import generics, serializers, status, views, viewsets
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.errors import LengthMissing
from agents.api.fields import Body
from agents.conf import clock
from agents.models import ApiKey
from agents.people.access import rows_list

Row = TypeVar("Row", bound=models.Model)


class Acting(views.APIView):
    """The person, the moment and the words of a request. The sets name actions."""

    always_allowed: frozenset[str] = frozenset()  # also without opt-in
    changes_nothing: frozenset[str] = frozenset()  # a POST that only asks
    decisions: frozenset[str] = frozenset()  # needs the scope `decide`
    starts: frozenset[str] = frozenset()  # begins sessions, or sets up what does: they cost money

    def scope_of_words(self) -> str:
        """The scope that the words of the body need, where a view goes by words; empty elsewhere."""
        return ""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """A body that cannot be read is refused, also where nothing is read from it."""
        super().initial(request, *args, **kwargs)
        if request.method == "POST":
            request.data  # noqa: B018 reading it is the check

    @property
    def person(self) -> User:
        return cast("User", self.request.user)

    @property
    def now(self) -> datetime:
        return clock()

    @property
    def key_id(self) -> str:
        """The API key that speaks for the person, for the record; empty in a browser."""
        key = self.request.auth
        return str(key.public_id) if isinstance(key, ApiKey) else ""

    def body(self, kind: type[Body], *, partial: bool = False) -> dict[str, Any]:
        if "HTTP_TRANSFER_ENCODING" in self.request.META and not self.request.META.get("CONTENT_LENGTH"):
            raise LengthMissing
        return self._checked(kind, self.request.data, partial=partial)

    def query(self, kind: type[Body]) -> dict[str, Any]:
        return self._checked(kind, self.request.query_params.dict(), partial=False)

    def _checked(self, kind: type[Body], data: Any, *, partial: bool) -> dict[str, Any]:
        serializer = kind(data=data, context={"request": self.request})
        if partial:
            # Not `partial=True`: that would make the parts of what is inside a list optional, too.
            for field in serializer.fields.values():
                field.required, field.default = False, empty
        serializer.is_valid(raise_exception=True)
        return cast("dict[str, Any]", serializer.validated_data)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answered = super().finalize_response(request, response, *args, **kwargs)
        answered["Cache-Control"] = "no-store"
        return answered


class ApiView(Acting, generics.GenericAPIView[Any]):
    """A thing of which there is one: no list, no id."""

    serializer_class: Any = serializers.Serializer
    pagination_class = None
    filter_backends = []


class OwnedViewSet(Acting, viewsets.GenericViewSet[Row]):
    """Rows of one kind that belong to the person who asks."""

    lookup_field = "public_id"
    lookup_url_kwarg = "id"
    lookup_value_converter = "uuid"
    owner_path = "owner_id"
    ordering: tuple[Any, ...] = ("-id",)
    joins: tuple[str, ...] = ()
    reaches_others = False  # some people get rows of others here, which is on record

    def get_queryset(self) -> QuerySet[Row]:
        rows: QuerySet[Row] = super().get_queryset()
        if any(field.name == "deleted_at" for field in rows.model._meta.fields):
            rows = rows.filter(deleted_at__isnull=True)
        return self.reachable(rows).select_related(*self.joins).order_by(*self.ordering)

    def reachable(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        return rows.filter(**{self.owner_path: self.person.pk})

    def list(self, request: Request) -> Response:
        return self.listed(self.filter_queryset(self.get_queryset()), self.get_serializer_class())

    def retrieve(self, request: Request, **_: Any) -> Response:
        """One of them, by its id."""
        return Response(self.get_serializer(self.get_object()).data)

    def listed(self, rows: Any, kind: type[serializers.BaseSerializer[Any]]) -> Response:
        page = self.paginate_queryset(rows)
        if self.reaches_others:
            rows_list(page or (), by=self.person, now=self.now)
        return self.get_paginated_response(kind(page, many=True, context=self.get_serializer_context()).data)

    def shown(self, row: Row, *, created: bool = False) -> Response:
        """The row as it stands now, read again with everything that its answer names."""
        fresh = self.get_queryset().get(pk=row.pk)
        number = status.HTTP_201_CREATED if created else status.HTTP_200_OK
        return Response(self.get_serializer(fresh).data, status=number)

    def gone(self) -> Response:
        return Response(status=status.HTTP_204_NO_CONTENT)
