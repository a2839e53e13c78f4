"""`load_agents`: create agents from agent.yaml files, or the next version of agents with their names."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import transaction

from agents.conf import clock
from agents.definitions.loader import sort_problems
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem
from agents.exceptions import LqopsError
from agents.management.base import (
    JsonCommand,
    acting_user,
    add_acting_user,
    agent_paths,
    agent_text,
    counted,
    named_user,
)
from agents.roster.files import DefinitionResult, agent_import
from agents.sensors.validation import sensor_problems
from agents.skills.registry import unresolved_names


class Command(JsonCommand):
    help = (
        "Creates agents from agent.yaml files or, if their owner has one of that name, its next version. A file "
        "without changes changes nothing. If one file has a problem, none is loaded."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "paths",
            nargs="+",
            type=Path,
            help="Files, or folders whose YAML files are loaded in the order of their names.",
        )
        parser.add_argument("--owner", help="The username of the agents' owner. Default: --user.")
        parser.add_argument("--dry-run", action="store_true", help="Print what would be done, and do nothing.")
        super().add_arguments(parser)
        add_acting_user(parser)

    def run(self, options: dict[str, Any]) -> None:
        by = acting_user(options["user"])
        owner = named_user(options["owner"]) if options["owner"] is not None else by or _only_user()
        paths = agent_paths(options["paths"])
        dry = options["dry_run"]
        problems: list[Problem] = []
        notes: list[Problem] = []  # of files that have problems
        loaded: list[tuple[Path, DefinitionResult]] = []
        with transaction.atomic():
            for path in paths:
                try:
                    loaded.append((path, _load(path, owner, by)))
                except DefinitionError as error:
                    problems += error.problems
                    notes += _notes(path, error.rest) if error.rest else ()
                except LqopsError as error:
                    problems.append(Problem(str(path), 0, "", f"a file that can be loaded now: {error}"))
            if problems or dry:
                transaction.set_rollback(True)
        done = [] if problems else loaded
        self.print(_facts(done, problems, notes, dry=dry), _text(done, problems, notes, dry=dry), options)
        if problems:
            raise CommandError(f"{counted(problems, 'problem')} in {counted(paths, 'file')}. Nothing was loaded.")


def _load(path: Path, owner: User, by: User | None) -> DefinitionResult:
    text = agent_text(path)
    if isinstance(text, Problem):
        raise DefinitionError((text,))
    with transaction.atomic():
        return agent_import(owner=owner, text=text, by=by, now=clock(), file=str(path))


def _only_user() -> User:
    """The owner, if the installation has only one user."""
    users = list(User.objects.filter(is_active=True)[:2])
    if len(users) != 1:
        raise CommandError("Give the owner of the agents: --user or --owner.")
    return users[0]


def _facts(
    loaded: list[tuple[Path, DefinitionResult]], problems: list[Problem], notes: list[Problem], *, dry: bool
) -> dict[str, Any]:
    agents = [
        {
            "file": str(path),
            "agent_id": str(defined.agent.public_id),
            "name": defined.agent.name,
            "version": defined.agent.definition_version,
            "digest": defined.agent.definition_digest,
            "changed": defined.changed,
            "told": list(defined.messages),
            "broken_sensors": [
                {"name": sensor.name, "problem": sensor.problem} for sensor in defined.definition.broken_sensors
            ],
            "notes": [note.to_json() for note in _notes(path, defined.definition)],
        }
        for path, defined in loaded
    ]
    return {
        "dry_run": dry,
        "agents": agents,
        "problems": [problem.to_json() for problem in problems],
        "notes": [note.to_json() for note in notes],
    }


def _text(
    loaded: list[tuple[Path, DefinitionResult]], problems: list[Problem], notes: list[Problem], *, dry: bool
) -> str:
    lines = [*(f"PROBLEM {problem}" for problem in problems), *(f"NOTE {note}" for note in notes)]
    if dry and not problems:
        lines.append("Dry run. This would be done:")
    for path, defined in loaded:
        unchanged = "" if defined.changed else "no changes: "
        verb = "would be" if dry and defined.changed else "is"
        lines.append(f"{path}: {unchanged}{defined.agent.name} {verb} at version {defined.agent.definition_version}.")
        lines += [f"  {line}" for line in defined.messages]
        lines += [f"  SKIPPED {sensor.name}: {sensor.problem}" for sensor in defined.definition.broken_sensors]
        lines += [f"  NOTE {note}" for note in _notes(path, defined.definition)]
    if dry and not problems:
        lines.append("Nothing was done.")
    return "\n".join(lines)


def _notes(path: Path, definition: AgentDefinition) -> tuple[Problem, ...]:
    file = str(path)
    return sort_problems(
        [*definition.notes, *unresolved_names(definition, file=file), *sensor_problems(definition, file=file)]
    )
