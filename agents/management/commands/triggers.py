"""`triggers`: list the triggers with their next run, costs and pauses."""

from argparse import ArgumentParser
from decimal import Decimal
from typing import Any

from django.template.defaultfilters import pluralize

from agents.ledger.trigger_health import TriggerSpend, triggers_spend
from agents.management.base import JsonCommand, named_user
from agents.models import Trigger
from audit.receipts import usd


class Command(JsonCommand):
    help = "Lists the triggers: when they are next due, what they have cost, and which are paused."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--owner", help="Only the triggers of this user.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        rows = Trigger.objects.filter(deleted_at__isnull=True).select_related("owner").order_by("pk")
        if options["owner"] is not None:
            rows = rows.filter(owner=named_user(options["owner"]))
        triggers = list(rows)
        spend = triggers_spend(trigger.pk for trigger in triggers)
        facts = [_facts(trigger, spend.get(trigger.pk, TriggerSpend())) for trigger in triggers]
        self.print({"triggers": facts}, "\n".join(map(_line, facts)) or "There are no triggers.", options)


def _facts(trigger: Trigger, spend: TriggerSpend) -> dict[str, Any]:
    due = trigger.next_run_at if trigger.enabled and trigger.paused_at is None else None
    return {
        "id": str(trigger.public_id),
        "kind": trigger.kind,
        "name": trigger.name,
        "owner": trigger.owner.get_username(),
        "enabled": trigger.enabled,
        "paused": trigger.pause_reason or None,
        "next_run_at": due.isoformat() if due else None,
        "zone": trigger.zone if due else None,
        "sessions": spend.sessions,
        "spent_usd": str(spend.spent_usd),
        "charged_usd": str(spend.charged_usd),
        "actual_usd": str(spend.actual_usd),
    }


def _line(facts: dict[str, Any]) -> str:
    state = "on" if facts["enabled"] else "off"
    if facts["paused"]:
        state = f"paused: {facts['paused']}"
    due = f"  next {facts['next_run_at']}" if facts["next_run_at"] else ""
    cost = usd(Decimal(facts["spent_usd"]))
    spent = f"{facts['sessions']} run{pluralize(facts['sessions'])}, {cost}"
    return f"{facts['id']}  {facts['kind']}  {facts['name']}  {facts['owner']}  {state}{due}  {spent}"
