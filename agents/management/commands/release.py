"""`release`: let new work start again after `halt --all`."""

from argparse import ArgumentParser
from typing import Any

from agents.management.base import RecordedCommand
from agents.people.access import COMMAND
from agents.sessions.halts import release_all_work


class Command(RecordedCommand):
    help = "Releases the halt of all work: new sessions may start, and spared ones go on. Halted sessions stay halted."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--keep-paused",
            action="store_true",
            help="Keeps the sessions that the halt spared paused; `resume` lets them go on one by one.",
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        halt = release_all_work(**self.actor(options), actor=COMMAND, resume_spared=not options["keep_paused"])
        self.print({"halt_id": halt.pk, "released": True}, "Released. New work may start.", options)
