"""`away`: name somebody who decides on approvals while a person is away; list and end delegations."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from agents.management.base import RecordedCommand, named_user
from agents.people.delegations import LONGEST, delegation_create, delegation_end, delegations_in_force


class Command(RecordedCommand):
    help = (
        "Lists who decides on approvals for whom. With --delegate, the person is away for some --days and the delegate "
        "decides in their place, where a call binds neither of them. --end ends it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", nargs="?", help="Who is away; needs the permission agents.resolve_approval.")
        parser.add_argument("--delegate", help="The username of the person who decides meanwhile.")
        parser.add_argument("--days", type=int, default=7, help=f"For how long. Default: 7; at most {LONGEST.days}.")
        parser.add_argument("--end", action="store_true", help="The person is back: nobody decides for them any more.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        actor = self.actor(options)
        if options["delegate"] or options["end"]:
            self._change(options, actor)
        rows = delegations_in_force(actor["now"]).order_by("until", "pk")
        if options["username"]:
            rows = rows.filter(owner=named_user(options["username"]))
        facts = [
            {"owner": row.owner.username, "delegate": row.delegate.username, "until": row.until.isoformat()}
            for row in rows
        ]
        text = "\n".join(map(str, rows)) or "Nobody decides for anybody else."
        self.print({"delegations": facts}, text, options)

    def _change(self, options: dict[str, Any], actor: dict[str, Any]) -> None:
        days = options["days"]
        if not options["username"] or (options["delegate"] and options["end"]):
            raise CommandError("Say who is away, and either --delegate or --end.")
        if not 1 <= days <= LONGEST.days:
            raise CommandError(f"--days {days} is not between 1 and {LONGEST.days}.")
        owner = named_user(options["username"])
        if options["delegate"]:
            until = actor["now"] + timedelta(days=days)
            delegation_create(owner=owner, delegate=named_user(options["delegate"]), until=until, **actor)
        for row in delegations_in_force(actor["now"]).filter(owner=owner) if options["end"] else ():
            delegation_end(delegation=row, **actor)
