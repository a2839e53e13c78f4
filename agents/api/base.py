"""Base classes of the API's views. Each view parses, authorises, calls one service and presents the result.

A queryset holds only the user's own rows, so another user's id is 404 on every route, also for staff. Further
permissions are checked by the services.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from django.contrib.auth.models import User
from django.db import models
from django.db.models import OuterRef, Q, QuerySet, Subquery
from rest_framework import generics, serializers, views, viewsets
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.errors import LengthMissing
from agents.api.fields import Body, UsdField, has_field
from agents.api.schema import describe, detail_action
from agents.conf import clock
from agents.enums import BudgetScope
from agents.ledger.budgets import PERIODS, caps_set
from agents.models import AgentSession, Cap
from agents.people.access import record_list, record_row_view

Row = TypeVar("Row", bound=models.Model)
MOST_NAMED_RUNS: Final = 1_000  # in one query


class BaseView(views.APIView):
    """User, time and body of a request. The sets name actions, or HTTP methods of a plain view."""

    always_allowed: frozenset[str] = frozenset()  # also without opt-in
    changes_nothing: frozenset[str] = frozenset()  # POST requests that only read
    decisions: frozenset[str] = frozenset()  # need the scope `decide`
    starts: frozenset[str] = frozenset()  # start sessions, or set up what does: these cost money

    def scope_of_text(self) -> str:
        """The scope that the text in the body needs, for views that act on text; empty elsewhere."""
        return ""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse a body that cannot be parsed, also where no field of it is read."""
        super().initial(request, *args, **kwargs)
        if request.method == "POST":
            request.data  # noqa: B018 reading it is the check

    @property
    def user(self) -> User:
        return cast("User", self.request.user)

    @property
    def now(self) -> datetime:
        return clock()

    @property
    def actor(self) -> dict[str, Any]:
        """The user and the time: the arguments that every service takes."""
        return {"by": self.user, "now": self.now}

    def body(self, kind: type[Body], *, partial: bool = False) -> dict[str, Any]:
        if "HTTP_TRANSFER_ENCODING" in self.request.META and not self.request.META.get("CONTENT_LENGTH"):
            raise LengthMissing
        return self._validated(kind, self.request.data, partial=partial)

    def query(self, kind: type[Body]) -> dict[str, Any]:
        return self._validated(kind, self.request.query_params.dict(), partial=False)

    def _validated(self, kind: type[Body], data: Any, *, partial: bool) -> dict[str, Any]:
        serializer = kind(data=data, context={"request": self.request})
        if partial:
            # Not `partial=True`: that would make the fields of list items optional, too.
            for field in serializer.fields.values():
                field.required, field.default = False, empty
        serializer.is_valid(raise_exception=True)
        return cast("dict[str, Any]", serializer.validated_data)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        final["Cache-Control"] = "no-store"
        return final


class SingleView(BaseView, generics.GenericAPIView[Any]):
    """A resource without list and ids."""

    serializer_class: Any = serializers.Serializer
    pagination_class = None
    filter_backends = []


class ListView(BaseView, generics.GenericAPIView[Row]):
    """One list, filtered and paged."""

    def page(self, rows: QuerySet[Row]) -> Response:
        page = self.paginate_queryset(self.filter_queryset(rows))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


class OwnedViewSet(BaseView, viewsets.GenericViewSet[Row]):
    """Rows of one model that belong to the user."""

    lookup_field = "public_id"
    lookup_url_kwarg = "id"
    lookup_value_converter = "uuid"
    detail_serializer_class: Any = None  # for everything but the list
    row_name = ""  # what services call the row; by default the name of the model
    ordering: tuple[Any, ...] = ("-id",)
    joins: tuple[str, ...] = ()
    shows_others_rows = False  # to some users; then each view is recorded in the audit log

    def get_serializer_class(self) -> Any:
        is_detail = self.detail_serializer_class is not None and self.action != "list"
        return self.detail_serializer_class if is_detail else super().get_serializer_class()

    def get_queryset(self) -> QuerySet[Row]:
        rows: QuerySet[Row] = super().get_queryset()
        if has_field(rows.model, "deleted_at"):
            rows = rows.filter(deleted_at__isnull=True)
        return self.visible(rows).select_related(*self.joins).order_by(*self.ordering)

    def visible(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        return rows.filter(owner_id=self.user.pk)

    def of_own_runs(self) -> Q:
        """Return the filter for rows of the user's runs.

        A list names the runs if they are few: the database then starts with them, not with everybody's newest rows.
        """
        if self.action == "list":
            runs = AgentSession.objects.filter(owner_id=self.user.pk).order_by("-pk").values_list("pk", flat=True)
            named = [*runs[: MOST_NAMED_RUNS + 1]]
            if len(named) <= MOST_NAMED_RUNS:
                return Q(session_id__in=named)
        return Q(session__owner_id=self.user.pk)

    def list(self, request: Request) -> Response:
        return self.page(self.filter_queryset(self.get_queryset()), self.get_serializer_class())

    def retrieve(self, request: Request, **_: Any) -> Response:
        """One row, by its id."""
        row = self.get_object()
        if self.shows_others_rows:
            record_row_view(row=row, **self.actor)
        return Response(self.get_serializer(row).data)

    def page(self, rows: Any, serializer: type[serializers.BaseSerializer[Any]]) -> Response:
        page = self.paginate_queryset(rows)
        if self.shows_others_rows:
            record_list(page or (), **self.actor)
        return self.get_paginated_response(serializer(page, many=True, context=self.get_serializer_context()).data)

    def call(self, service: Callable[..., Any], row: Row, **data: Any) -> Any:
        """Call a service on a row, by the name that its argument has."""
        name = self.row_name or str(row._meta.model_name)
        return service(**{name: row}, **self.actor, **data)

    def act(self, service: Callable[..., Any], body: type[Body] | None = None, *, partial: bool = False) -> Response:
        """Call a service on the row with the request's body, and answer with the changed row."""
        row = self.get_object()
        self.call(service, row, **(self.body(body, partial=partial) if body else {}))
        return self.respond(row)

    def respond(self, row: Row, *, created: bool = False) -> Response:
        """The row after a change, read again with everything that its serializer needs."""
        fresh = self.get_queryset().get(pk=row.pk)
        return Response(self.get_serializer(fresh).data, status=201 if created else 200)


class CapsBody(Body):
    max_cost_per_day_usd = UsdField(required=False, allow_null=True, help_text="Cap per UTC day; null: none.")
    max_cost_per_month_usd = UsdField(
        required=False, allow_null=True, help_text="Cap per calendar month (UTC), this one included; null: none."
    )


class CappedViewSet(OwnedViewSet[Row]):
    """Rows that have caps per day and month."""

    budget_scope: BudgetScope

    def get_queryset(self) -> QuerySet[Row]:
        rows = super().get_queryset()
        caps = Cap.objects.filter(scope=self.budget_scope, subject_id=OuterRef("pk"))
        columns = {name: caps.filter(period=period) for name, period in PERIODS.items()}
        capped: QuerySet[Row] = rows.annotate(
            **{name: Subquery(of.values("cap_usd")) for name, of in columns.items() if not has_field(rows.model, name)}
        )
        return capped

    @detail_action(body=CapsBody)
    def caps(self, request: Request, **_: Any) -> Response:
        """Set the caps per day and month, of which the row shows both. They apply from the next call."""
        row: Any = self.get_object()
        caps_set(subject=row, **self.actor, **self.body(CapsBody, partial=True))
        return self.respond(row)


def month_cap() -> UsdField:
    return UsdField(read_only=True, allow_null=True, help_text="Cap per calendar month; null: none. Set it by `caps`.")


# --- Operations that only call a service. `about` is their description in the schema ---


def create_with(service: Callable[..., Any], body: type[Body], **more: Any) -> Any:
    """Make a row of the user from the request's body."""

    def create(self: OwnedViewSet[Any], request: Request) -> Response:
        data = self.body(body)
        return self.respond(service(owner=self.user, **self.actor, **data), created=True)

    return describe(body=body, **more)(create)


def delete_with(service: Callable[..., Any], about: str = "") -> Any:
    def destroy(self: OwnedViewSet[Any], request: Request, **_: Any) -> Response:
        self.call(service, self.get_object())
        return Response(status=204)

    destroy.__doc__ = about
    return destroy


def act_with(name: str, service: Callable[..., Any], about: str = "", *, body: type[Body] | None = None) -> Any:
    """POST `<row>/<name>`: act on a row."""

    def act(self: OwnedViewSet[Any], request: Request, **_: Any) -> Response:
        return self.act(service, body)

    act.__name__ = name
    act.__doc__ = about
    return detail_action(body=body)(act)
