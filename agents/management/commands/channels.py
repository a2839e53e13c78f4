"""`channels`: list where people are told, test one, and send again what it could not deliver."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Count, Q

from agents.enums import OutboxStatus
from agents.management.base import RecordedCommand, row_named
from agents.models import Channel, OutboxMessage
from agents.people.outbox import channel_test, copy_replay


class Command(RecordedCommand):
    help = "Lists the channels of all users, tests one, or sends again what one could not deliver."
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--test", metavar="CHANNEL", help="Send a test message. Public id, its beginning, or name.")
        which.add_argument("--replay", metavar="CHANNEL", help="Send again what could not be delivered there.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        if options["test"]:
            trial = channel_test(channel=row_named(Channel, options["test"]), **self.actor(options))
            if not trial.ok:
                raise CommandError(f"The test message did not arrive. {trial.text}")
            self.print({"ok": True, "text": trial.text}, f"The test message was sent. {trial.text}", options)
        elif options["replay"]:
            channel = row_named(Channel, options["replay"])
            dead = OutboxMessage.objects.filter(channel=channel, status=OutboxStatus.FAILED).order_by("pk")
            number = len([copy_replay(copy=copy, **self.actor(options)) for copy in dead])
            self.print({"replayed": number}, f"{number} to be sent again.", options)
        else:
            self._list(options)

    def _list(self, options: dict[str, Any]) -> None:
        dead = Count("copies", filter=Q(copies__status=OutboxStatus.FAILED))
        rows = Channel.objects.select_related("owner").annotate(dead=dead).order_by("owner__username", "pk")
        facts = [
            {
                "channel": str(row.public_id),
                "owner": row.owner.get_username(),
                "kind": row.kind,
                "name": row.name,
                "enabled": row.enabled,
                "error": row.error or None,
                "undelivered": row.dead,
            }
            for row in rows
        ]
        self.print(facts, "\n".join([*map(_line, facts), f"{len(facts)} listed."]), options)


def _line(row: dict[str, Any]) -> str:
    state = "off" if not row["enabled"] else f"failing: {row['error']}" if row["error"] else "on"
    dead = f"  {row['undelivered']} undelivered" if row["undelivered"] else ""
    return f"{row['channel']}  {row['owner']}  {row['kind']}  {row['name']}  {state}{dead}"
