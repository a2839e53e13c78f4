"""What an agent.yaml names and this installation does not have: skills and models. Nothing of it stops an agent."""

from collections.abc import Iterator, Set
from difflib import get_close_matches
from typing import Final

from django.conf import settings

from agents.definitions.problems import Problem
from agents.definitions.schema import AgentDefinition, SensorSpec
from agents.models import SkillSetting
from agents.skills.registry import installed_skills

_SKILL: Final = "the name of a skill that is installed and switched on"
_SET_UP: Final = "a skill that can work as lqops is set up: "
_MODEL: Final = "the name of a model that is declared"


def unresolved(definition: AgentDefinition, *, file: str = "agent.yaml") -> list[Problem]:
    """Each with its place. A sensor or field whose skill is missing says so itself, and the agent starts."""
    off = set(SkillSetting.objects.filter(enabled=False).values_list("name", flat=True))
    return not_among(installed_skills().keys() - off, definition, file=file)


def not_among(skills: Set[str], definition: AgentDefinition, *, file: str) -> list[Problem]:
    """The same, with these skills and without a database."""
    return [
        *(
            Problem(file, definition.line_of(key), key, _wanted(name, skills), name)
            for key, name in _tools(definition, skills)
        ),
        *(Problem(file, definition.line_of(key), key, _MODEL, name) for key, name in _models(definition)),
    ]


def _wanted(name: str, skills: Set[str]) -> str:
    if name in skills:
        return f"{_SET_UP}{_lacking(name)}"
    near = get_close_matches(name, skills, n=1)
    return f"{_SKILL} (did you mean {near[0]}?)" if near else _SKILL


def _lacking(name: str) -> str:
    skill = installed_skills().get(name)
    return skill.lacking if skill else ""


def _tools(definition: AgentDefinition, skills: Set[str]) -> Iterator[tuple[str, str]]:
    named = [(f"skills[{number}]", name) for number, name in enumerate(definition.skills or ())]
    fields = definition.hot_state.fields.items()
    named += [(f"hot_state.fields.{field}.refresh_tool", spec.refresh_tool or "") for field, spec in fields]
    named += [(f"{key}.source.tool", sensor.source.tool or "") for key, sensor in _sensors(definition)]
    yield from ((key, name) for key, name in named if name and (name not in skills or _lacking(name)))


def _models(definition: AgentDefinition) -> Iterator[tuple[str, str]]:
    named = {"model": definition.model}
    if definition.autonomy is not None:
        named["autonomy.precheck_model"] = definition.autonomy.precheck_model
    for key, sensor in _sensors(definition):
        named |= {f"{key}.signals[{number}].model": signal.model for number, signal in enumerate(sensor.signals)}
    for key, name in named.items():
        if name is not None and name not in settings.LQOPS_MODELS:
            yield key, name


def _sensors(definition: AgentDefinition) -> Iterator[tuple[str, SensorSpec]]:
    return ((definition.sensor_keys[sensor.name], sensor) for sensor in definition.sensors)
