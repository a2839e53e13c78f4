"""`triggers`: lists what spawns sessions, when it is next due, what it has cost, and what is paused."""

import json
from argparse import ArgumentParser
from typing import Any

from django.template.defaultfilters import pluralize

from agents.ledger.trigger_health import TriggerSpend, triggers_spend
from agents.management.base import acting_user
from agents.models import Trigger
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = "Lists the triggers that are in use: when they are next due, what they have cost, and which are paused."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--owner", help="Only the triggers of this user.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = Trigger.objects.filter(deleted_at__isnull=True).select_related("owner").order_by("pk")
        if options["owner"] is not None:
            rows = rows.filter(owner=acting_user(options["owner"]))
        triggers = list(rows)
        spend = triggers_spend(trigger.pk for trigger in triggers)
        found = [_described(trigger, spend.get(trigger.pk, TriggerSpend())) for trigger in triggers]
        lines = "\n".join(map(_line, found)) or "There are no triggers."
        self.stdout.write(json.dumps({"triggers": found}) if options["json"] else lines)


def _described(trigger: Trigger, spend: TriggerSpend) -> dict[str, Any]:
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
        "charged_usd": str(spend.charged_usd),
        "actual_usd": str(spend.actual_usd),
    }


def _line(found: dict[str, Any]) -> str:
    state = "on" if found["enabled"] else "off"
    if found["paused"]:
        state = f"paused: {found['paused']}"
    due = f"  next {found['next_run_at']}" if found["next_run_at"] else ""
    spent = f"{found['sessions']} session{pluralize(found['sessions'])}, {found['charged_usd']} USD"
    return f"{found['id']}  {found['kind']}  {found['name']}  {found['owner']}  {state}{due}  {spent}"
