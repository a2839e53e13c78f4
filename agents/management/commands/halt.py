"""`halt`: stops one session, an agent's sessions, or all work. It takes effect at the next call of each."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.management.acting import acting_user, add_acting_user, row_named
from agents.models import Agent, AgentSession
from agents.services.actors import COMMAND
from agents.services.halts import organisation_halt, sessions_halt
from audit.management.base import ActingCommand
from audit.models import AuditEvent

USAGE = 2


class Command(ActingCommand):
    help = (
        "Halts one session, an agent's sessions, or all work of the installation (until `release`). A call in flight "
        "ends by itself; no other starts. Halting what is halted, or over, changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("session", nargs="?", help="The public id of a session, or enough of its beginning.")
        what.add_argument("--agent", help="The public id of an agent, or its beginning: halts its sessions.")
        what.add_argument("--all", action="store_true", help="Halts all work and refuses new work until `release`.")
        parser.add_argument("--reason", default="", help="Kept with the halt, for people; --all needs it.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by, now, reason = acting_user(options["user"]), clock(), options["reason"]
        if options["all"]:
            if not reason.strip():
                raise CommandError(
                    'Halting all work needs a reason, for those who find it halted: --reason "…".', returncode=USAGE
                )
            halt = organisation_halt(by=by, reason=reason, now=now, actor=COMMAND)
            told = _told(halt.pk)
            line = f"All work is halted until `release`. Sessions told to stop: {told}."
            self._say({"halt_id": halt.pk, "halted": "all", "sessions": told}, line, options)
            return
        counted = sessions_halt(self._sessions(options), by=by, reason=reason, now=now, actor=COMMAND)
        line = f"{counted.requested} asked to halt, {counted.already_halted} halted before, {counted.terminal} over."
        self._say(vars(counted), line, options)
        if counted.failed:
            raise CommandError(f"{counted.failed} could not be halted; run the command again.")

    def _sessions(self, options: dict[str, Any]) -> list[int]:
        if options["agent"] is not None:
            agent = row_named(Agent.objects.all(), options["agent"], "agent")
            return list(AgentSession.objects.active().filter(agent=agent).values_list("pk", flat=True))
        return [row_named(AgentSession.objects.all(), options["session"], "session").pk]

    def _say(self, found: dict[str, Any], line: str, options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(found) if options["json"] else line)


def _told(halt_pk: int) -> int:
    """How many sessions the halt has reached, this time or when it was said before."""
    asked = AuditEvent.objects.filter(kind="autonomous_session.halt_requested", details__halt_id=halt_pk)
    return asked.count()
