"""Calls of sessions, from the journal; and a person's word on what became of a call that a crash left unknown."""

from typing import Any

import django_filters
from django.db.models import Q, QuerySet
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, Shown, WordField, ref
from agents.api.schema import described
from agents.enums import Outcome
from agents.models import ToolCall
from agents.people.access import row_view
from agents.sessions.approvals import Decision, tool_call_resolve
from agents.sessions.standing import PERMISSION
from audit.redaction import redact, redact_data


class CallShown(Shown):
    """Arguments are redacted as they came in, and again as they go out. Results are content, and not shown."""

    session = ref("session")
    arguments = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()

    class Meta:
        model = ToolCall
        fields = [
            "id", "session", "key", "attempt", "intent", "name", "version", "phase", "arguments", "digest", "outcome",
            "detail", "error", "approved_usd", "charged_usd", "actual_usd", "model", "tokens", "started_at",
            "settled_at", "resolved_at",
        ]  # fmt: skip

    def get_arguments(self, call: Any) -> dict[str, Any]:
        return dict(redact_data(call.arguments))

    def get_error(self, call: Any) -> str:
        return redact(call.error)


class ResolveBody(Body):
    decision = WordField(choices=[str(decision) for decision in Decision])
    result = serializers.JSONField(required=False, default=None, help_text="What the run is told that it got back.")


class CallFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    outcome = django_filters.ChoiceFilter(choices=Outcome.choices)


class ToolCalls(OwnedViewSet[ToolCall]):
    """Calls of your sessions; who may resolve approvals also reaches everybody's calls of unknown outcome."""

    queryset = ToolCall.objects.all()
    serializer_class = CallShown
    filterset_class = CallFilter
    joins = ("session",)
    decisions = frozenset({"resolve"})
    reaches_others = True

    def reachable(self, rows: QuerySet[ToolCall]) -> QuerySet[ToolCall]:
        mine = Q(session__owner_id=self.person.pk)
        if self.person.has_perm(PERMISSION):
            mine |= Q(outcome=Outcome.UNKNOWN)
        return rows.filter(mine)

    def retrieve(self, request: Request, **_: Any) -> Response:
        call = self.get_object()
        row_view(row=call, by=self.person, now=self.now)
        return Response(CallShown(call).data)

    @described("tool_calls_resolve", CallShown, body=ResolveBody)
    @action(detail=True, methods=["post"])
    def resolve(self, request: Request, **_: Any) -> Response:
        """Says whether a call of unknown outcome happened. Needs the permission to resolve approvals."""
        call, said = self.get_object(), self.body(ResolveBody)
        decided = tool_call_resolve(
            call.pk, Decision(said["decision"]), by=self.person, now=self.now, result=said["result"]
        )
        return Response(CallShown(decided).data)
