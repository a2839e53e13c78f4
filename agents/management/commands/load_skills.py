"""`load_skills`: read the skill folders, load new skills and mark changed ones."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from agents.knowledge.playbooks import LoadedSkill, LoadReport, skills_load
from agents.management.base import RecordedCommand

STATES = {
    "loaded": "new, loaded",
    "unchanged": "unchanged",
    "changed": "CHANGED; it does not run until it is accepted: review its files, then --accept {name}",
    "accepted": "accepted as it is now",
    "missing": "MISSING or unreadable; it does not run",
}


class Command(RecordedCommand):
    help = (
        "Reads the folders with a SKILL.md in LQOPS_SKILL_FOLDERS. New skills are loaded. A skill whose files have "
        "changed does not run until it is accepted. Fails if a folder cannot be read; the others are loaded."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--accept", action="append", default=[], metavar="NAME", nargs="+", help="Accept these skills as they are."
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        accept = [name for names in options["accept"] for name in names]
        report = skills_load(**self.actor(options), accept=accept)
        self.print(asdict(report), _text(report, accept), options)
        if report.problems:
            raise CommandError(f"{len(report.problems)} could not be loaded or accepted. The others were.")


def _text(report: LoadReport, accept: list[str]) -> str:
    lines = [f"{skill.name} (version {skill.version}): {_state(skill, accept)}" for skill in report.skills]
    return "\n".join([*lines, *(f"PROBLEM {problem}" for problem in report.problems)]) or "There are no skills."


def _state(skill: LoadedSkill, accept: list[str]) -> str:
    if skill.state == "unchanged" and skill.name in accept:
        return "nothing to accept: unchanged"
    return STATES[skill.state].format(name=skill.name)
