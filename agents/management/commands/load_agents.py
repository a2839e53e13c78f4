"""`load_agents`: makes agents from agent.yaml files, or the next version of those that have their names."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import transaction

from agents.conf import clock
from agents.definitions.loader import in_order
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem
from agents.exceptions import LqopsError
from agents.management.base import acting_user, add_acting_user, agent_paths, agent_text, counted, named_user
from agents.roster.files import Defined, agent_import
from agents.sensors.validation import never_fit
from agents.skills.registry import unresolved
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Makes agents from agent.yaml files or, where their owner has one of that name, its next version. A file that "
        "says what its agent says already changes nothing. All are loaded, or, if one has a problem, none."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "paths", nargs="+", type=Path, help="Files, or folders whose YAML files are loaded by name."
        )
        parser.add_argument("--owner", help="The username of the agents' owner; by default the one of --user.")
        parser.add_argument("--dry-run", action="store_true", help="Say what would be done, and do nothing.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = acting_user(options["user"])
        owner = named_user(options["owner"]) if options["owner"] is not None else by or _only_user()
        paths, dry = agent_paths(options["paths"]), options["dry_run"]
        problems: list[Problem] = []
        notes: list[Problem] = []  # of files that have problems
        loaded: list[tuple[Path, Defined]] = []
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
        tell = _json if options["json"] else _lines
        self.stdout.write(tell(done, problems, notes, dry=dry))
        if problems:
            raise CommandError(f"{counted(problems, 'problem')} in {counted(paths, 'file')}: nothing was loaded.")


def _load(path: Path, owner: User, by: User | None) -> Defined:
    text = agent_text(path)
    if isinstance(text, Problem):
        raise DefinitionError((text,))
    with transaction.atomic():
        return agent_import(owner=owner, text=text, by=by, now=clock(), file=str(path))


def _only_user() -> User:
    """Where there is one person, it is plain whose agents these are."""
    users = list(User.objects.filter(is_active=True)[:2])
    if len(users) != 1:
        raise CommandError("Say whose agents these are: --user, or --owner.")
    return users[0]


def _json(loaded: list[tuple[Path, Defined]], problems: list[Problem], notes: list[Problem], *, dry: bool) -> str:
    agents = [
        {
            "file": str(path),
            "agent_id": str(defined.agent.public_id),
            "name": defined.agent.name,
            "version": defined.agent.definition_version,
            "digest": defined.agent.definition_digest,
            "changed": defined.changed,
            "told": list(defined.told),
            "broken_sensors": [
                {"name": sensor.name, "problem": sensor.problem} for sensor in defined.definition.broken_sensors
            ],
            "notes": [note.to_json() for note in _notes(path, defined.definition)],
        }
        for path, defined in loaded
    ]
    told = {"problems": [one.to_json() for one in problems], "notes": [one.to_json() for one in notes]}
    return json.dumps({"dry_run": dry, "agents": agents, **told})


def _lines(loaded: list[tuple[Path, Defined]], problems: list[Problem], notes: list[Problem], *, dry: bool) -> str:
    lines = [*(f"PROBLEM {problem}" for problem in problems), *(f"NOTE {note}" for note in notes)]
    if dry and not problems:
        lines.append("This is what would be done:")
    for path, defined in loaded:
        stays = "" if defined.changed else "nothing has changed: "
        stands = "would be" if dry and defined.changed else "is"
        lines.append(f"{path}: {stays}{defined.agent.name} {stands} at version {defined.agent.definition_version}.")
        lines += [f"  {told}" for told in defined.told]
        lines += [f"  SKIPPED {sensor.name}: {sensor.problem}" for sensor in defined.definition.broken_sensors]
        lines += [f"  NOTE {note}" for note in _notes(path, defined.definition)]
    if dry and not problems:
        lines.append("Nothing was done: this was a dry run.")
    return "\n".join(lines)


def _notes(path: Path, definition: AgentDefinition) -> tuple[Problem, ...]:
    file = str(path)
    return in_order([*definition.notes, *unresolved(definition, file=file), *never_fit(definition, file=file)])
