"""Checks that a sensor can run.

Its definition can be read, its path is allowed, its tool is installed, read-only and runs without approval.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from agents.conf import sensor_roots, skill_hosts
from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem
from agents.enums import SensorState
from agents.models import Agent, Sensor
from agents.policy.consent import needs_person
from agents.sensors.rows import LeasedSensor, safe_text, sensor_reject
from agents.sensors.watch import PathRefused, resolve_path
from agents.skills.registry import skill_named, skill_standing
from agents.skills.risk import level_for
from agents.skills.skill import BadArguments, Skill


def runnable(rows: list[Sensor]) -> list[LeasedSensor]:
    """Return the sensors that can run; set the others aside, with the reason."""
    found: list[LeasedSensor] = []
    for agent, sensors in groupby(sorted(rows, key=lambda row: row.agent_id), key=lambda row: row.agent):
        try:
            definition = definition_of(agent)
        except DefinitionError as error:
            problem = safe_text(f"the definition cannot be read: {error}")
            for row in sensors:
                sensor_reject(row, state=SensorState.INVALID, problem=problem)
            continue
        specs = {spec.name: spec for spec in definition.sensors}
        for row in sensors:
            if row.name not in specs:
                continue  # the definition has just changed; its rows follow
            held = LeasedSensor(row, specs[row.name], definition)
            if (rejected := tool_problem(held, agent)) is not None:
                sensor_reject(row, state=rejected[0], problem=rejected[1])
            else:
                found.append(held)
    return found


def tool_problem(held: LeasedSensor, agent: Agent) -> tuple[SensorState, str] | None:
    """Return the state and problem of a sensor whose tool cannot be polled; None when it can."""
    name, given = held.spec.source.tool, held.spec.source.params
    if name is None:
        return None
    skill = skill_named(name)
    standing = skill_standing(skill.name, skill.level) if skill else None
    if skill is None or standing is None or not standing.enabled:
        return SensorState.UNRESOLVED, f"the tool {name} is not installed, or switched off"
    if (misuse := _misuse(skill, given)) is not None:
        return SensorState.INVALID, misuse[1]
    level = level_for(skill, standing.level, given, skill_hosts())
    if needs_person(skill.capability(level), mode=agent.mode):
        return SensorState.INVALID, f"the tool {name} needs approval for each call: a sensor cannot use it"
    return None


def sensor_problems(definition: AgentDefinition, *, file: str) -> Iterator[Problem]:
    """Yield what keeps sensors from ever running, as far as it is known without a database."""
    for spec in definition.sensors:
        skill = skill_named(spec.source.tool) if spec.source.tool else None
        wrong = _misuse(skill, spec.source.params) if skill else _path_problem(spec.source.path)
        if wrong is not None:
            key = f"{definition.sensor_keys[spec.name]}.source.{wrong[0]}"
            line = definition.line_of(key) or definition.line_of(definition.sensor_keys[spec.name])
            yield Problem(file, line, key, f"a source that a sensor can read: {wrong[1]}")


def _misuse(skill: Skill, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key and the problem of a tool that cannot be polled."""
    try:
        skill.arguments(given)
    except BadArguments as error:
        return "params", str(error)
    if skill.side_effects:
        return "tool", f"the tool {skill.name} has side effects: a sensor may only read"
    return None


def _path_problem(path: str | None) -> tuple[str, str] | None:
    try:
        if path is not None:
            resolve_path(path, sensor_roots())
    except PathRefused as error:
        return "path", str(error)
    return None
