"""`load_agents`: create agents from agent.yaml files, or the next version of agents with their names."""

import shlex
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import transaction

from agents.definitions.loader import sort_problems
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem
from agents.exceptions import LqopsError
from agents.ledger.boundary import may_run_for
from agents.loop.heartbeat import heartbeat_of
from agents.management.base import (
    RecordedCommand,
    agent_paths,
    counted,
    file_text,
    named_user,
    problem_facts,
    problem_lines,
)
from agents.roster.agents import agent_is_running
from agents.roster.files import DefinitionResult, agent_import
from agents.sensors.validation import sensor_problems
from agents.skills.registry import unresolved_names


class Command(RecordedCommand):
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

    def run(self, options: dict[str, Any]) -> None:
        actor = self.actor(options)
        owner = named_user(options["owner"]) if options["owner"] is not None else actor["by"] or _only_user()
        paths = agent_paths(options["paths"])
        problems: list[Problem] = []
        notes: list[Problem] = []  # of files that have problems
        loaded: list[tuple[Path, DefinitionResult]] = []
        with transaction.atomic():
            for path in paths:
                try:
                    loaded.append((path, _load(path, owner, actor)))
                except DefinitionError as error:
                    problems += error.problems
                    notes += _notes(path, error.rest) if error.rest else ()
                except LqopsError as error:
                    problems.append(Problem(str(path), 0, "", f"a file that can be loaded now: {error}"))
            if problems or options["dry_run"]:
                transaction.set_rollback(True)
        agents = [] if problems else [_facts(path, defined) for path, defined in loaded]
        facts = {"dry_run": options["dry_run"], "agents": agents, **problem_facts(problems, notes)}
        self.print(facts, _text(facts), options)
        if problems:
            raise CommandError(f"{counted(problems, 'problem')} in {counted(paths, 'file')}. Nothing was loaded.")


def _load(path: Path, owner: User, actor: dict[str, Any]) -> DefinitionResult:
    text = file_text(path)
    with transaction.atomic():
        return agent_import(owner=owner, text=text, file=str(path), **actor)


def _only_user() -> User:
    """The owner, if the installation has only one user."""
    users = list(User.objects.filter(is_active=True)[:2])
    if len(users) != 1:
        raise CommandError("Give the owner of the agents: --user or --owner.")
    return users[0]


def _facts(path: Path, defined: DefinitionResult) -> dict[str, Any]:
    broken = [{"name": sensor.name, "problem": sensor.problem} for sensor in defined.definition.broken_sensors]
    return {
        "file": str(path),
        "agent_id": str(defined.agent.public_id),
        "name": defined.agent.name,
        "version": defined.agent.definition_version,
        "digest": defined.agent.definition_digest,
        "changed": defined.changed,
        "told": list(defined.messages),
        "broken_sensors": broken,
        "next": _next_steps(defined),
        "notes": [note.to_json() for note in _notes(path, defined.definition)],
    }


def _next_steps(defined: DefinitionResult) -> list[str]:
    """What to do next with a loaded agent, as commands."""
    agent, definition = defined.agent, defined.definition
    name = shlex.quote(agent.name)
    if agent.archived_at is not None:
        return [f"it is archived; bring it back with `manage.py agent unarchive {name}`."]
    if not agent.enabled:
        return ["it is disabled; enable it in the admin."]
    steps = []
    if not may_run_for(agent.owner_id):
        steps.append(f"{agent.owner} has not opted in, so nothing runs; `manage.py opt_in {agent.owner}` does.")
    if definition.is_autonomous or heartbeat_of(definition) is not None:
        going = agent_is_running(agent)
        steps.append(f"`manage.py agent {'status' if going else 'start'} {name}`.")
    elif not definition.triggers:
        steps.append("it starts nothing on its own: chat with it in the admin, or give it a trigger.")
    return steps


def _text(facts: dict[str, Any]) -> str:
    lines = problem_lines(facts)
    is_dry = facts["dry_run"] and not facts["problems"]
    if is_dry:
        lines.append("Dry run. This would be done:")
    for agent in facts["agents"]:
        unchanged = "" if agent["changed"] else "no changes: "
        verb = "would be" if is_dry and agent["changed"] else "is"
        lines.append(f"{agent['file']}: {unchanged}{agent['name']} {verb} at version {agent['version']}.")
        lines += [f"  {line}" for line in agent["told"]]
        lines += [f"  SKIPPED {sensor['name']}: {sensor['problem']}" for sensor in agent["broken_sensors"]]
        lines += [f"  {line}" for line in problem_lines(agent)]
        lines += [f"  Next: {line}" for line in agent["next"] if not is_dry]
    if is_dry:
        lines.append("Nothing was done.")
    return "\n".join(lines)


def _notes(path: Path, definition: AgentDefinition) -> tuple[Problem, ...]:
    file = str(path)
    return sort_problems(
        [*definition.notes, *unresolved_names(definition, file=file), *sensor_problems(definition, file=file)]
    )
