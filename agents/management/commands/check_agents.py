"""`check_agents`: check agent.yaml files, or print their JSON schema. Needs no database."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.definitions.in_force import checked_definition
from agents.definitions.loader import sort_problems
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem, agent_json_schema
from agents.management.base import JsonCommand, agent_paths, counted, file_text, problem_facts, problem_lines
from agents.sensors.validation import sensor_problems
from agents.skills.registry import missing_names, skills_offered
from agents.skills.skill import ALL


class Command(JsonCommand):
    help = (
        "Checks agent.yaml files; needs no database. Problems have a file, line and key. Notes are names that this "
        "installation does not have. Fails if there is a problem; notes do not count. Names of playbooks, skills, "
        "projects, and models that were added in the admin are looked up by `load_agents --dry-run`."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="*", type=Path, help="Files, or folders whose YAML files are checked.")
        parser.add_argument("--schema", action="store_true", help="Print the JSON schema of an agent.yaml.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        if options["schema"]:
            self.stdout.write(json.dumps(agent_json_schema(), indent=2))
            return
        if not options["paths"]:
            raise CommandError("Name files or folders to check, or --schema.")
        paths = agent_paths(options["paths"])
        problems: list[Problem] = []
        notes: list[Problem] = []
        names: set[str] = set()
        for path in paths:
            found, definition = _read(path)
            if definition is not None:
                is_named = all(problem.key != "name" for problem in found)
                found += [*_doubtful(definition, names if is_named else set(), str(path))]
                found += sensor_problems(definition, file=str(path))
                named = missing_names(skills_offered([ALL]).keys(), definition, file=str(path))
                notes += sort_problems([*definition.notes, *named])
                names |= {definition.name} if is_named else set()
            problems += sort_problems(found)
        facts = {"ok": not problems, "files": [str(path) for path in paths], **problem_facts(problems, notes)}
        ok = [] if problems else [f"{counted(paths, 'file')} without problems."]
        self.print(facts, "\n".join([*problem_lines(facts), *ok]), options)
        if problems:
            raise CommandError(f"{counted(problems, 'problem')} in {counted(paths, 'file')}.")


def _read(path: Path) -> tuple[list[Problem], AgentDefinition | None]:
    """The problems of the text, and what can be read of it nevertheless."""
    try:
        return [], checked_definition(file_text(path), file=str(path))
    except DefinitionError as error:
        return list(error.problems), error.rest


def _doubtful(definition: AgentDefinition, names: set[str], file: str) -> list[Problem]:
    """Problems that an import would accept: skipped sensors, and the same name in two files."""
    found = [problem for sensor in definition.broken_sensors for problem in sensor.problems]
    if definition.name in names:
        expected = "a name that no other file has"
        found.append(Problem(file, definition.line_of("name"), "name", expected, f'"{definition.name}"'))
    return found
