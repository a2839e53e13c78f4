"""What the runs of triggers have cost to date, in both ledgers."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Count, Sum

from agents.models import AgentSession, Trigger

ZERO = Decimal(0)


@dataclass(frozen=True)
class TriggerSpend:
    """Charged is what was approved before the calls, actual what the reported tokens cost."""

    sessions: int = 0
    charged_usd: Decimal = ZERO
    actual_usd: Decimal = ZERO


def trigger_spend(trigger: Trigger) -> TriggerSpend:
    return triggers_spend([trigger.pk]).get(trigger.pk, TriggerSpend())


def triggers_spend(trigger_pks: Iterable[int]) -> dict[int, TriggerSpend]:
    """By trigger, in one statement; a trigger without sessions is left out."""
    rows = AgentSession.objects.filter(trigger__in=list(trigger_pks)).values("trigger_id")
    sums = rows.annotate(sessions=Count("pk"), charged=Sum("cost_total_usd"), actual=Sum("cost_actual_usd"))
    return {row["trigger_id"]: TriggerSpend(row["sessions"], row["charged"], row["actual"]) for row in sums.order_by()}
