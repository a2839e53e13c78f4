"""Reads an agent.yaml: strictly, once, with every problem named at its line and key. Pure text in, a definition out.

A sensor that is wrong breaks itself alone: it is named in `broken_sensors`, and the agent starts without it.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from agents.definitions.plain import line_at, lines_of, path_of, plain
from agents.definitions.problems import DefinitionError, Problem
from agents.definitions.refusals import one_key_of, refusals, shown
from agents.definitions.schema import MOST_SENSORS, MOST_TRIGGERS, AgentDefinition, BrokenSensor, SensorSpec, Written
from agents.definitions.triggers import TriggerSpec
from agents.definitions.values import NAME, Place, truth
from agents.enums import SensorKind, TriggerKind
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.text.strict_yaml import Node, Unreadable, read_yaml

__all__ = ["DefinitionError", "Problem", "read_definition"]

NAME_CHARS: Final = 120
_NO_SETTING: Final = "there is no such setting; there are "  # as agents.policy.guardrails says it
_SETTINGS: Final[dict[str, type[LoopConfig | GuardrailsConfig]]] = {"loop": LoopConfig, "guardrails": GuardrailsConfig}


def read_definition(text: str, *, file: str = "agent.yaml", name: str = "") -> AgentDefinition:
    """The definition, or every problem that keeps it from being one. Without a name of its own it goes by `name`, or
    is called as its file is."""
    try:
        root = read_yaml(text)
    except Unreadable as error:
        said = f"{error.said[0].lower()}{error.said[1:].rstrip('.')}"
        raise DefinitionError((Problem(file, error.line, "", f"YAML that can be read: {said}"),)) from None
    return _Reading(root, file).definition(name or PurePath(file).stem[:NAME_CHARS] or "agent")


class _Reading:
    """One pass over one tree: problems are gathered, not raised one by one."""

    def __init__(self, root: Node, file: str) -> None:
        self._root = root
        self._file = file
        self._problems: list[Problem] = []
        self._left_out: set[str] = set()  # keys that are wrong

    def definition(self, default_name: str) -> AgentDefinition:
        given = {} if self._root.is_nothing else plain(self._root)
        said = given if isinstance(given, dict) else {}
        self._check_settings(said)
        triggers = _listed(said, "triggers", MOST_TRIGGERS)
        listed = _listed(said, "sensors", MOST_SENSORS)
        sensors, broken = self._sensors(listed or [])
        specs = [self._trigger(number, given) for number, given in enumerate(triggers or [])]
        if isinstance(given, dict):
            named = {key: value for key, value in given.items() if value is not None or key not in Written.model_fields}
            read_apart: dict[str, Any] = {} if listed is None else {"sensors": tuple(sensors.values())}
            read_apart |= {} if triggers is None else {"triggers": tuple(spec for spec, _ in specs)}
            given = {"name": default_name, **named, **read_apart}
        written = self._written(given)
        if written is not None:
            self._check_triggers(written.zone, triggers or [], specs)
        told = [*self._problems, *(problem for one in broken for problem in one.problems)]
        if written is None:
            raise DefinitionError(in_order(told))
        read = AgentDefinition.read(
            written,
            named=said.get("name") is not None,
            broken_sensors=broken,
            notes=tuple(self._notes(written, sensors)),
            lines=lines_of(self._root),
            sensor_keys={sensor.name: path_of(("sensors", number)) for number, sensor in sensors.items()},
        )
        if self._problems:
            raise DefinitionError(in_order(told), rest=read)
        return read

    def _written(self, given: Any) -> Written | None:
        """What the keys say; without those that are wrong, so that whatever else is wrong can be found."""
        try:
            return Written.model_validate(given)
        except ValidationError as error:
            told = self._told(error, Written)
            self._problems += told
            wrong = {one.key.partition(".")[0].partition("[")[0] for one in told}
            if not isinstance(given, dict) or not wrong & given.keys():
                return None
            self._left_out |= wrong
            return self._written({"name": "agent", **{key: given[key] for key in given.keys() - wrong}})

    def _trigger(self, number: int, given: Any) -> tuple[TriggerSpec, set[str]]:
        """What can be read of a trigger, and which of its keys are wrong."""
        self._check_settings(given, "triggers", number)
        try:
            return TriggerSpec.model_validate(given), set()
        except ValidationError as error:
            self._problems += self._told(error, TriggerSpec, ("triggers", number))
            wrong = {str(refusal.place[0]) for refusal in refusals(error, TriggerSpec) if refusal.place}
        right = {key: given[key] for key in given.keys() - wrong} if isinstance(given, dict) else {}
        needed = {"name": f"#{number + 1}", "kind": TriggerKind.MANUAL}
        return TriggerSpec.model_validate({**needed, **right}), wrong | (needed.keys() - right.keys())

    def _check_triggers(self, zone: str, listed: list[Any], specs: list[tuple[TriggerSpec, set[str]]]) -> None:
        taken: set[str] = set()
        for number, (given, (spec, wrong)) in enumerate(zip(listed, specs, strict=True)):
            if spec.name in taken:
                wanted = "a name that no other trigger of this agent has"
                self._problems.append(self._problem(("triggers", number, "name"), wanted, spec.name))
            taken.add(spec.name)
            for key, wanted in spec.misfits(zone, wrong):
                got = given.get(key)  # what has a kind is a map
                self._problems.append(self._problem(("triggers", number, key), wanted, got))

    def _sensors(self, listed: Any) -> tuple[dict[int, SensorSpec], tuple[BrokenSensor, ...]]:
        """Those that can run, by their place in the list, and those that cannot."""
        good: dict[int, SensorSpec] = {}
        broken: list[BrokenSensor] = []
        taken: set[str] = set()
        for number, given in enumerate(listed):
            place: Place = ("sensors", number)
            name = _name(given)
            problems: list[Problem] = []
            if name and name in taken:
                problems.append(self._problem((*place, "name"), "a name that no other sensor has", name))
            try:
                sensor = SensorSpec.model_validate(given)
            except ValidationError as error:
                problems += self._told(error, SensorSpec, place)
            if problems:
                called = name if name and name not in taken else f"{name or 'sensor'}#{number + 1}"
                broken.append(_broken(given, called, problems))
            else:
                good[number] = sensor
            taken.add(name)
        return good, tuple(broken)

    def _check_settings(self, given: Any, *above: str | int) -> None:
        """Settings of the agent's runs, and of those of each trigger."""
        for section, config in _SETTINGS.items():
            settings = given.get(section) if isinstance(given, dict) else None
            for key, value in settings.items() if isinstance(settings, dict) else ():
                try:
                    config.merged({key: truth(value)})
                except ValueError as error:
                    why = str(error).partition(": ")[2]
                    self._problems.append(self._setting((*above, section, key), why, value))

    def _notes(self, written: Written, sensors: Mapping[int, SensorSpec]) -> Iterator[Problem]:
        """What is no mistake, and yet may not be meant."""
        triggers = {trigger.name for trigger in written.triggers}
        for number, sensor in sensors.items():
            for place, update in enumerate(sensor.updates):
                if update.field not in written.hot_state.fields and "hot_state" not in self._left_out:
                    wanted = "a field of hot_state: what is written to any other is dropped"
                    yield self._problem(("sensors", number, "updates", place, "field"), wanted, update.field)
            for place, signal in enumerate(sensor.signals):
                if signal.spawn is not None and signal.spawn not in triggers:
                    wanted = "a trigger of this file, unless the agent has one of that name already"
                    yield self._problem(("sensors", number, "signals", place, "spawn"), wanted, signal.spawn)

    def _told(self, error: ValidationError, model: type[BaseModel], above: Place = ()) -> list[Problem]:
        return [
            Problem(self._file, line_at(self._root, place), path_of(place), refusal.expected, refusal.got)
            for refusal in refusals(error, model)
            for place in [(*above, *refusal.place)]
        ]

    def _setting(self, place: Place, why: str, value: Any) -> Problem:
        """`it must be true or false.` as what was expected."""
        said = why.removeprefix("it must be ").rstrip(".")
        known = said.removeprefix(_NO_SETTING)
        if known == said:
            return self._problem(place, said, value)
        return Problem(
            self._file, line_at(self._root, place), path_of(place), one_key_of(known.split(", "), str(place[-1]))
        )

    def _problem(self, place: Place, wanted: str, got: Any) -> Problem:
        return Problem(self._file, line_at(self._root, place), path_of(place), wanted, shown(got))


def _listed(said: Mapping[str, Any], key: str, most: int) -> list[Any] | None:
    """What is looked through one by one; the schema says what is wrong with anything else."""
    listed = said.get(key)
    return listed if isinstance(listed, list) and len(listed) <= most else None


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """By line, each once."""
    return tuple(sorted(set(problems), key=lambda problem: (problem.line, problem.key)))


def _name(given: Any) -> str:
    """What a sensor is called, if that is a name."""
    name = given.get("name") if isinstance(given, dict) else None
    return str(name) if isinstance(name, str) and NAME.fullmatch(name) else ""


def _broken(given: Any, name: str, problems: list[Problem]) -> BrokenSensor:
    """One without a name of its own, or with that of another, goes by its place: no sensor can be named like that."""
    kind = given.get("type") if isinstance(given, dict) else None
    return BrokenSensor(
        name=name,
        kind=SensorKind(kind) if isinstance(kind, str) and kind in SensorKind.values else SensorKind.POLL,
        problems=tuple(problems),
    )
