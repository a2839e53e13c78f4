"""Whether a sensor can look at all: its definition can be read, its tool is installed, takes the arguments, changes
nothing and asks nobody, or its path is one that may be looked at."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from agents.conf import sensor_roots, skill_hosts
from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition, DefinitionError, Problem
from agents.enums import SensorState
from agents.models import Agent, Sensor
from agents.policy.consent import needs_person
from agents.sensors.rows import Held, plain, sensor_reject
from agents.sensors.watch import NotLookedAt, place_of
from agents.skills.registry import skill_named, skill_standing
from agents.skills.risk import level_for
from agents.skills.skill import BadArguments, Skill


def fitting(rows: list[Sensor]) -> list[Held]:
    """Those that can run; what cannot is set aside, with the reason."""
    found: list[Held] = []
    for agent, mine in groupby(sorted(rows, key=lambda row: row.agent_id), key=lambda row: row.agent):
        try:
            definition = definition_of(agent)
        except DefinitionError as error:
            for row in mine:
                sensor_reject(row, state=SensorState.INVALID, problem=plain(f"the definition cannot be read: {error}"))
            continue
        found += [held for row in mine if (held := _fitted(row, definition))]
    return found


def _fitted(row: Sensor, definition: AgentDefinition) -> Held | None:
    spec = next((one for one in definition.sensors if one.name == row.name), None)
    if spec is None:
        return None  # the definition has changed this moment; its rows follow
    held = Held.of(row, spec, definition)
    if (odd := unfit(held, row.agent)) is not None:
        sensor_reject(held, state=odd[0], problem=odd[1])
        return None
    return held


def unfit(held: Held, agent: Agent) -> tuple[SensorState, str] | None:
    """What is wrong with it, in the words of its state; None when nothing is."""
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
        return SensorState.INVALID, f"the tool {name} asks a person each time: a sensor can use only what runs unasked"
    return None


def never_fit(definition: AgentDefinition, *, file: str) -> Iterator[Problem]:
    """What keeps sensors from ever looking, as far as it can be told without a database: each with its place."""
    for spec in definition.sensors:
        skill = skill_named(spec.source.tool) if spec.source.tool else None
        wrong = _misuse(skill, spec.source.params) if skill else _misplaced(spec.source.path)
        if wrong is not None:
            key = f"{definition.sensor_keys[spec.name]}.source.{wrong[0]}"
            line = definition.line_of(key) or definition.line_of(definition.sensor_keys[spec.name])
            yield Problem(file, line, key, f"what a sensor can look at: {wrong[1]}")


def _misuse(skill: Skill, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with polling it, and under which key."""
    try:
        skill.arguments(given)
    except BadArguments as error:
        return "params", str(error)
    if skill.side_effects:
        return "tool", f"the tool {skill.name} changes something each time: a sensor may only look"
    return None


def _misplaced(path: str | None) -> tuple[str, str] | None:
    try:
        if path is not None:
            place_of(path, sensor_roots())
    except NotLookedAt as error:
        return "path", str(error)
    return None
