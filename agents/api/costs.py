"""What today has cost so far, in UTC: per trigger and agent of the person, and for the installation; and their caps.

Lists hold those that spent most, and no more than fit on a page; the totals beside them count all.
"""

from datetime import UTC, date
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet, Sum
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.api.fields import UsdField
from agents.api.schema import described
from agents.enums import BudgetScope
from agents.models import Agent, AgentSession, Budget, Installation, Trigger

NOTHING = Decimal(0)
MOST_LISTED = 50


class SpendShown(serializers.Serializer[Any]):
    charged_usd = UsdField(help_text="What was approved and charged.")
    reserved_usd = UsdField(help_text="Set aside for calls under way.")
    actual_usd = UsdField(help_text="What providers reported.")
    cap_usd = UsdField(allow_null=True, help_text="For the day; null: no cap of its own.")


class SubjectSpendShown(SpendShown):
    id = serializers.UUIDField()
    name = serializers.CharField()
    session_cap_usd = UsdField(allow_null=True, help_text="For each session that it spawns; triggers only.")


class TotalShown(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="How many there are, listed or not.")
    charged_usd = UsdField()
    reserved_usd = UsdField()
    actual_usd = UsdField()


class CostsShown(serializers.Serializer[Any]):
    day = serializers.DateField()
    sessions_charged_usd = UsdField(help_text="Your sessions that began today.")
    triggers = SubjectSpendShown(many=True, help_text=f"The {MOST_LISTED} that were charged most, at most.")
    triggers_total = TotalShown()
    agents = SubjectSpendShown(many=True, help_text=f"The {MOST_LISTED} that were charged most, at most.")
    agents_total = TotalShown()
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
            "triggers": _spent(BudgetScope.TRIGGER, triggers, today),
            "triggers_total": _total(BudgetScope.TRIGGER, triggers, today),
            "agents": _spent(BudgetScope.AGENT, agents, today),
            "agents_total": _total(BudgetScope.AGENT, agents, today),
            "installation": _books(
                Budget.objects.filter(scope=BudgetScope.INSTALLATION, day=today, subject_id=0).first()
            )
            | {"cap_usd": installation.max_cost_per_day_usd if installation else None},
        }
        return Response(CostsShown(found).data)


def _spent(scope: BudgetScope, subjects: QuerySet[Any], day: date) -> list[dict[str, Any]]:
    """Those that were charged most, then the newest."""
    booked = _booked(scope, subjects, day).order_by("-charged_usd", "-subject_id")[:MOST_LISTED]
    rows = {row.subject_id: row for row in booked}
    found = subjects.in_bulk(rows)
    listed = [found[pk] for pk in rows] + list(subjects.exclude(pk__in=rows)[: MOST_LISTED - len(rows)])
    return [
        {
            "id": subject.public_id,
            "name": subject.name,
            "cap_usd": subject.max_cost_per_day_usd,
            "session_cap_usd": getattr(subject, "max_cost_usd", None),
            **_books(rows.get(subject.pk)),
        }
        for subject in listed
    ]


def _total(scope: BudgetScope, subjects: QuerySet[Any], day: date) -> dict[str, Any]:
    names = ("charged_usd", "reserved_usd", "actual_usd")
    sums = _booked(scope, subjects, day).aggregate(**{name: Sum(name) for name in names})
    return {"count": subjects.count(), **{name: sums[name] or NOTHING for name in names}}


def _booked(scope: BudgetScope, subjects: QuerySet[Any], day: date) -> QuerySet[Budget]:
    return Budget.objects.filter(scope=scope, day=day, subject_id__in=subjects.order_by().values("pk"))


def _books(row: Budget | None) -> dict[str, Decimal]:
    if row is None:
        return {"charged_usd": NOTHING, "reserved_usd": NOTHING, "actual_usd": NOTHING}
    return {"charged_usd": row.charged_usd, "reserved_usd": row.reserved_usd, "actual_usd": row.actual_usd}
