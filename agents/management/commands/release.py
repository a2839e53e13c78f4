"""`release`: let new work start again after `halt --all`."""

from argparse import ArgumentParser
from typing import Any

from agents.conf import clock
from agents.management.base import JsonCommand, acting_user, add_acting_user
from agents.people.access import COMMAND
from agents.sessions.halts import organisation_release


class Command(JsonCommand):
    help = "Releases the halt of all work: new sessions may start. Halted sessions stay halted."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        add_acting_user(parser)

    def run(self, options: dict[str, Any]) -> None:
        halt = organisation_release(by=acting_user(options["user"]), now=clock(), actor=COMMAND)
        self.print({"halt_id": halt.pk, "released": True}, "Released. New work may start.", options)
