"""`release`: let new work start again after `halt --all`."""

from argparse import ArgumentParser
from typing import Any

from agents.management.base import RecordedCommand
from agents.people.access import COMMAND
from agents.roster.release import work_release


class Command(RecordedCommand):
    help = "Releases the halt of all work: new sessions may start, and spared ones go on. Halted sessions stay halted."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--keep-paused",
            action="store_true",
            help="Keeps the sessions that the halt spared paused; `resume` lets them go on one by one.",
        )
        parser.add_argument(
            "--start-again",
            action="store_true",
            help="Starts the agents again whose loops or heartbeats the halt has ended.",
        )
        parser.add_argument(
            "--run-again", action="store_true", help="Starts a new run for each run that the halt has ended."
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        found = work_release(
            **self.actor(options),
            actor=COMMAND,
            resume_spared=not options["keep_paused"],
            start_again=options["start_again"],
            run_again=options["run_again"],
        )
        names = [agent.name for agent in found.agents]
        facts = {
            "halt_id": found.halt.pk,
            "released": True,
            "started_again": names,
            "run_again": [str(run.public_id) for run in found.runs],
            "refused": list(found.refused),
            "not_running": list(found.not_running),
        }
        lines = ["Released. New work may start."]
        lines += [f"Started again: {', '.join(names)}."] if found.agents else []
        lines += [f"Runs started again: {len(found.runs)}."] if found.runs else []
        lines += [f"Not started again: {text}" for text in found.refused]
        if found.not_running:
            left = ", ".join(found.not_running)
            lines.append(f"Started earlier, and not running: {left}. `manage.py agent start <name>` starts one again.")
        self.print(facts, "\n".join(lines), options)
