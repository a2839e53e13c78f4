"""What today has cost so far, in UTC: per trigger and agent of the person, and for the installation; and their caps."""

from datetime import UTC, date
from decimal import Decimal
from typing import Any

from django.db.models import Sum
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.api.fields import UsdField
from agents.api.schema import described
from agents.enums import BudgetScope
from agents.models import Agent, AgentSession, Budget, Installation, Trigger

NOTHING = Decimal(0)


class SpendShown(serializers.Serializer[Any]):
    charged_usd = UsdField(help_text="What was approved and charged.")
    reserved_usd = UsdField(help_text="Set aside for calls under way.")
    actual_usd = UsdField(help_text="What providers reported.")
    cap_usd = UsdField(allow_null=True, help_text="For the day; null: no cap of its own.")


class SubjectSpendShown(SpendShown):
    id = serializers.UUIDField()
    name = serializers.CharField()
    session_cap_usd = UsdField(allow_null=True, help_text="For each session that it spawns; triggers only.")


class CostsShown(serializers.Serializer[Any]):
    day = serializers.DateField()
    sessions_charged_usd = UsdField(help_text="Your sessions that began today.")
    triggers = SubjectSpendShown(many=True)
    agents = SubjectSpendShown(many=True)
    installation = SpendShown(help_text="Everybody's work together: its cap stops yours too.")


class Costs(ApiView):
    serializer_class = CostsShown

    @described("costs_retrieve", CostsShown)
    def get(self, request: Request) -> Response:
        today = self.now.astimezone(UTC).date()
        begun = AgentSession.objects.filter(owner_id=self.person.pk, created_at__date=today)
        triggers = Trigger.objects.filter(owner_id=self.person.pk, deleted_at__isnull=True).order_by("-id")
        agents = Agent.objects.filter(owner_id=self.person.pk).order_by("-id")
        installation = Installation.objects.filter(pk=1).first()
        found = {
            "day": today,
            "sessions_charged_usd": begun.aggregate(total=Sum("cost_total_usd"))["total"] or NOTHING,
            "triggers": _spent(BudgetScope.TRIGGER, list(triggers), today),
            "agents": _spent(BudgetScope.AGENT, list(agents), today),
            "installation": _books(_rows(BudgetScope.INSTALLATION, [0], today).get(0))
            | {"cap_usd": installation.max_cost_per_day_usd if installation else None},
        }
        return Response(CostsShown(found).data)


def _spent(scope: BudgetScope, subjects: list[Any], day: date) -> list[dict[str, Any]]:
    rows = _rows(scope, [subject.pk for subject in subjects], day)
    return [
        {
            "id": subject.public_id,
            "name": subject.name,
            "cap_usd": subject.max_cost_per_day_usd,
            "session_cap_usd": getattr(subject, "max_cost_usd", None),
            **_books(rows.get(subject.pk)),
        }
        for subject in subjects
    ]


def _rows(scope: BudgetScope, pks: list[int], day: date) -> dict[int, Budget]:
    rows = Budget.objects.filter(scope=scope, day=day, subject_id__in=pks)
    return {row.subject_id: row for row in rows}


def _books(row: Budget | None) -> dict[str, Decimal]:
    if row is None:
        return {"charged_usd": NOTHING, "reserved_usd": NOTHING, "actual_usd": NOTHING}
    return {"charged_usd": row.charged_usd, "reserved_usd": row.reserved_usd, "actual_usd": row.actual_usd}
