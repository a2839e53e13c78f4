"""`release`: let new work start again after `halt --all`."""

from typing import Any

from agents.management.base import RecordedCommand
from agents.people.access import COMMAND
from agents.sessions.halts import release_all_work


class Command(RecordedCommand):
    help = "Releases the halt of all work: new sessions may start. Halted sessions stay halted."

    def run(self, options: dict[str, Any]) -> None:
        halt = release_all_work(**self.actor(options), actor=COMMAND)
        self.print({"halt_id": halt.pk, "released": True}, "Released. New work may start.", options)
