"""`halt`: stops one session, an agent's sessions, or all work. It takes effect at the next call of each."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.management.base import AGENT_HELP, acting_user, add_acting_user, agent_named, row_named
from agents.models import AgentSession
from agents.people.access import COMMAND
from agents.sessions.halts import AllHalted, HaltCount, agents_halt, halted_again_told, organisation_halt, sessions_halt
from audit.management.base import ActingCommand

USAGE = 2


class Command(ActingCommand):
    help = (
        "Halts one session, an agent's sessions, or all work of the installation (until `release`). A call in flight "
        "ends by itself; no other starts. Halting what is halted, or over, changes nothing, and says so."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("session", nargs="?", help="The public id of a session, or enough of its beginning.")
        what.add_argument("--agent", help=f"Halts the sessions of an agent. {AGENT_HELP}")
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
            found = organisation_halt(by=by, reason=reason, now=now, actor=COMMAND)
            counted = found.sessions
            self._say(_shown(found), _line(found), options)
        else:
            counted = self._halt(options, by=by, reason=reason, now=now, actor=COMMAND)
            line = (
                f"{counted.requested} asked to halt, {counted.already_halted} halted before, {counted.terminal} over."
            )
            self._say(vars(counted), line, options)
        if counted.failed:
            raise CommandError(f"{counted.failed} could not be halted; run the command again.")

    def _halt(self, options: dict[str, Any], **said: Any) -> HaltCount:
        if options["agent"] is not None:
            return agents_halt([agent_named(options["agent"]).pk], **said)
        session = row_named(AgentSession.objects.all(), options["session"], "session")
        return sessions_halt([session.pk], **said)

    def _say(self, found: dict[str, Any], line: str, options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(found) if options["json"] else line)


def _line(found: AllHalted) -> str:
    if found.already:
        return f"{halted_again_told(found)} `manage.py release` lets work start again."
    return f"All work is halted until `release`. Sessions told to stop: {found.sessions.requested}."


def _shown(found: AllHalted) -> dict[str, Any]:
    """The halt that is in force, and how many sessions were told to stop by this command."""
    halt = found.halt
    return {
        "halt_id": halt.pk,
        "halted": "all",
        "already_halted": found.already,
        "by": halt.requested_by.get_username() if halt.requested_by else None,
        "since": halt.requested_at.isoformat(),
        "reason": halt.reason,
        "sessions": found.sessions.requested,
    }
