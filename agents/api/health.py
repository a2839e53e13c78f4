"""Can this installation work, and what of yours is waiting. Counts are of the person's own rows only."""

from typing import Any

from django.db.models import Count
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.api.schema import described
from agents.enums import ApprovalStatus, Outcome
from agents.models import AgentSession, Approval, Installation, Notification, SuspendedModel, ToolCall


class HealthShown(serializers.Serializer[Any]):
    ok = serializers.BooleanField(help_text="False while all work is halted.")
    halted = serializers.BooleanField(help_text="All work of the installation is halted.")
    suspended_models = serializers.ListField(child=serializers.CharField())
    sessions = serializers.DictField(
        child=serializers.IntegerField(), help_text="Your sessions that are under way, by status."
    )
    approvals_pending = serializers.IntegerField(help_text="Calls of your sessions that wait for a decision.")
    outcomes_unknown = serializers.IntegerField(help_text="Calls of your sessions of which nobody knows the outcome.")
    notifications_unread = serializers.IntegerField()


class Health(ApiView):
    serializer_class = HealthShown

    @described("health_retrieve", HealthShown)
    def get(self, request: Request) -> Response:
        mine, pk = AgentSession.objects.active().filter(owner_id=self.person.pk), self.person.pk
        halted = not Installation.objects.filter(pk=1, halt__isnull=True).exists()
        pending = Approval.objects.filter(session__owner_id=pk, status=ApprovalStatus.PENDING)
        unknown = ToolCall.objects.filter(session__owner_id=pk, outcome=Outcome.UNKNOWN)
        found = {
            "ok": not halted,
            "halted": halted,
            "suspended_models": list(SuspendedModel.objects.order_by("model").values_list("model", flat=True)),
            "sessions": dict(mine.values_list("status").annotate(Count("pk")).order_by("status")),
            "approvals_pending": pending.count(),
            "outcomes_unknown": unknown.count(),
            "notifications_unread": Notification.objects.filter(owner_id=pk, read_at__isnull=True).count(),
        }
        return Response(HealthShown(found).data)
