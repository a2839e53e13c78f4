"""`halt`: halt one session, the sessions of an agent, or all work."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.management.base import AGENT_HELP, RecordedCommand, row_named
from agents.management.halt_answer import all_halted_facts, all_halted_text
from agents.models import Agent, AgentSession
from agents.people.access import COMMAND
from agents.sessions.halts import (
    AllHalted,
    HaltCount,
    agents_halt,
    already_halted_message,
    halt_all_work,
    sessions_halt,
)


class Command(RecordedCommand):
    help = (
        "Halts one session, the sessions of an agent, or all work of the installation (until `release`). A request "
        "to a model is ended within a second; no other call starts. Halting a halted or ended session changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument("session", nargs="?", help="The public id of a session, or its beginning.")
        target.add_argument("--agent", help=f"Halts the sessions of an agent. {AGENT_HELP}")
        target.add_argument("--all", action="store_true", help="Halts all work and refuses new work until `release`.")
        parser.add_argument("--reason", default="", help="Stored with the halt, for people.")
        parser.add_argument(
            "--end-waiting",
            action="store_true",
            help="With --all: also ends sessions that only wait for a person. Default: they are paused.",
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        arguments = {"reason": options["reason"], "actor": COMMAND, **self.actor(options)}
        if options["all"]:
            halted = halt_all_work(spare_waiting=not options["end_waiting"], **arguments)
            self.print(_facts(halted), _text(halted), options)
            return
        count = self._halt(options, arguments)
        text = (
            f"Halt requested for {count.requested}; {count.already_halted} already halted, "
            f"{count.terminal} already ended."
        )
        self.print(vars(count), text, options)
        if count.failed:
            raise CommandError(f"{count.failed} could not be halted. Run the command again.")

    def _halt(self, options: dict[str, Any], arguments: dict[str, Any]) -> HaltCount:
        if options["agent"] is not None:
            return agents_halt([row_named(Agent, options["agent"]).pk], **arguments)
        session = row_named(AgentSession, options["session"])
        return sessions_halt([session.pk], **arguments)


def _text(halted: AllHalted) -> str:
    if halted.already:
        return f"{already_halted_message(halted)} `manage.py release` lets work start again."
    return all_halted_text(ending=halted.ending, spared=halted.spared)


def _facts(halted: AllHalted) -> dict[str, Any]:
    halt = halted.halt
    return all_halted_facts(
        halt_id=halt.pk,
        by=halt.requested_by.get_username() if halt.requested_by else None,
        since=halt.requested_at,
        reason=halt.reason,
        ending=halted.ending,
        spared=halted.spared,
        already=halted.already,
    )
