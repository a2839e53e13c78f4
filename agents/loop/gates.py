"""The gate's ledger: what it did for an agent on each UTC day, what that cost, and what it spared."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from django.db import transaction
from django.db.models import F

from agents.enums import TurnState
from agents.ledger.budgets import micro
from agents.models import AgentSession, GateDay, Turn
from agents.policy.costs import usd
from agents.types import ZERO

AVERAGED_TURNS: Final = 50


@transaction.atomic
def gate_note(session: AgentSession, *, asked: bool, skipped: str, spent: Decimal, now: datetime) -> None:
    """One look of the gate. `skipped` says why it stayed shut: unchanged or immaterial; empty when it opened."""
    if session.agent_id is None:
        return
    day = now.astimezone(UTC).date()
    GateDay.objects.bulk_create([GateDay(agent_id=session.agent_id, day=day)], ignore_conflicts=True)
    saved = turn_average(session.agent_id) if skipped else ZERO
    GateDay.objects.filter(agent_id=session.agent_id, day=day).update(
        asked=F("asked") + int(asked),
        opened=F("opened") + int(not skipped),
        unchanged=F("unchanged") + int(skipped == "unchanged"),
        immaterial=F("immaterial") + int(skipped == "immaterial"),
        spent_usd=F("spent_usd") + micro(spent),
        saved_usd=F("saved_usd") + micro(saved),
    )


def turn_average(agent_id: int) -> Decimal:
    """What the agent's last full turns cost on average."""
    rows = Turn.objects.filter(session__agent_id=agent_id, state=TurnState.DONE).order_by("-pk")
    costs = list(rows.values_list("cost_usd", flat=True)[:AVERAGED_TURNS])
    return usd(sum(costs, ZERO) / len(costs)) if costs else ZERO
