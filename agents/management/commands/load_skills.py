"""`load_skills`: looks through the skill folders, takes new skills and marks changed ones."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.knowledge.playbooks import Loaded, LoadReport, skills_load
from agents.management.base import acting_user, add_acting_user
from audit.management.base import ActingCommand

SAID = {
    "loaded": "new, taken as it is",
    "unchanged": "as it was accepted",
    "changed": "CHANGED; it does not run until it is accepted: look at its files, then --accept {name}",
    "accepted": "accepted as it is now",
    "missing": "MISSING or unreadable; it does not run",
}


class Command(ActingCommand):
    help = (
        "Looks for folders with a SKILL.md in LQOPS_SKILL_FOLDERS. New skills are taken as they are; one whose files "
        "have changed does not run until it is accepted. Fails when a folder could not be read; the others are loaded."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--accept", action="append", default=[], metavar="NAME", nargs="+", help="Accept these skills as they are."
        )
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        accept = [name for names in options["accept"] for name in names]
        try:
            report = skills_load(by=acting_user(options["user"]), now=clock(), accept=accept)
        except LqopsError as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(json.dumps(asdict(report)) if options["json"] else _lines(report, accept))
        if report.problems:
            raise CommandError(f"{len(report.problems)} could not be loaded or accepted; the others were.")


def _lines(report: LoadReport, accept: list[str]) -> str:
    lines = [f"{one.name} (version {one.version}): {_state(one, accept)}" for one in report.skills]
    return "\n".join([*lines, *(f"PROBLEM {problem}" for problem in report.problems)]) or "There are no skills."


def _state(one: Loaded, accept: list[str]) -> str:
    if one.state == "unchanged" and one.name in accept:
        return "nothing to accept: it is as it was accepted"
    return SAID[one.state].format(name=one.name)
