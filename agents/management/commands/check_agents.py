"""`check_agents`: says everything that is wrong with agent.yaml files, and what they name that is not here."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.definitions.in_force import definition_checked
from agents.definitions.loader import in_order
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem
from agents.management.base import agent_paths, agent_text, counted
from agents.sensors.validation import never_fit
from agents.skills.registry import installed_skills, not_among
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Checks agent.yaml files; needs no database. Every problem is named with file, line and key; notes tell what "
        "a file names that this installation does not have. Fails when there is a problem; a note is none."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, help="Files, or folders whose YAML files are checked.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")

    def handle(self, *args: Any, **options: Any) -> None:
        paths = agent_paths(options["paths"])
        problems: list[Problem] = []
        notes: list[Problem] = []
        names: set[str] = set()
        for path in paths:
            found, definition = _read(path)
            if definition is not None:
                is_named = all(problem.key != "name" for problem in found)
                found += [*_doubtful(definition, names if is_named else set(), str(path))]
                found += never_fit(definition, file=str(path))
                named = not_among(installed_skills().keys(), definition, file=str(path))
                notes += in_order([*definition.notes, *named])
                names |= {definition.name} if is_named else set()
            problems += in_order(found)
        self.stdout.write(_json(paths, problems, notes) if options["json"] else _lines(paths, problems, notes))
        if problems:
            raise CommandError(f"{counted(problems, 'problem')} in {counted(paths, 'file')}.")


def _read(path: Path) -> tuple[list[Problem], AgentDefinition | None]:
    """What is wrong with the text, and what can be read of it all the same."""
    text = agent_text(path)
    if isinstance(text, Problem):
        return [text], None
    try:
        return [], definition_checked(text, file=str(path))
    except DefinitionError as error:
        return list(error.problems), error.rest


def _doubtful(definition: AgentDefinition, names: set[str], file: str) -> list[Problem]:
    """What an import would take, and a person would not want: sensors that are skipped, and one name in two files."""
    found = [problem for sensor in definition.broken_sensors for problem in sensor.problems]
    if definition.name in names:
        wanted = "a name that no other file has"
        found.append(Problem(file, definition.line_of("name"), "name", wanted, f'"{definition.name}"'))
    return found


def _json(paths: list[Path], problems: list[Problem], notes: list[Problem]) -> str:
    told = {"problems": [one.to_json() for one in problems], "notes": [one.to_json() for one in notes]}
    return json.dumps({"ok": not problems, "files": [str(path) for path in paths], **told})


def _lines(paths: list[Path], problems: list[Problem], notes: list[Problem]) -> str:
    good = [] if problems else [f"{counted(paths, 'file')} {'is' if len(paths) == 1 else 'are'} fine."]
    return "\n".join([*(f"PROBLEM {one}" for one in problems), *(f"NOTE {one}" for one in notes), *good])
