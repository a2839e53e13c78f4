"""`release`: let new work start again after `halt --all`."""

from typing import Any

from agents.management.base import RecordedCommand
from agents.people.access import COMMAND
from agents.sessions.halts import organisation_release


class Command(RecordedCommand):
    help = "Releases the halt of all work: new sessions may start. Halted sessions stay halted."

    def run(self, options: dict[str, Any]) -> None:
        halt = organisation_release(**self.actor(options), actor=COMMAND)
        self.print({"halt_id": halt.pk, "released": True}, "Released. New work may start.", options)
