"""Reads an agent.yaml: strictly, once, with every problem named at its line and key. Pure text in, a definition out.

A sensor that is wrong breaks itself alone: it is named in `broken_sensors`, and the agent starts without it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, Final, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from agents.definitions.schema import (
    MOST_SENSORS,
    MOST_TRIGGERS,
    AgentDefinition,
    BrokenSensor,
    DefinitionError,
    Problem,
    SensorSpec,
    TriggerSpec,
    Written,
)
from agents.definitions.values import EXPECTED, NAME, Place, Unclear, truth
from agents.enums import SensorKind, TriggerKind
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.text.strict_yaml import Node, Unreadable, read_yaml
from audit.redaction import redact

# From the tree that the strict reader makes to plain values, and back to the lines where they stand. Pure.
#
# YAML 1.1 takes `on` for true, `22:00` for 1320 and `010` for 8. Here a time stays what was written, and a word that
# could mean two things is marked, so that only a key that knows what it wants takes it.


_WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)?\.[0-9_]*([eE][-+]?[0-9]{1,3})?")
_LONGEST_NUMBER: Final = 40
_MOST_PLACES: Final = 300  # what a float can hold


def plain(node: Node) -> Any:
    match node.kind:
        case "map":
            return {key: plain(value) for key, value in node.entries.items()}
        case "list":
            return [plain(item) for item in node.items]
        case "nothing":
            return None
        case "boolean":
            return _boolean(node.text)
        case "number":
            return _number(node.text)
        case _:
            return node.text


def _boolean(text: str) -> bool | Unclear:
    word = text.lower()
    return word == "true" if word in {"true", "false"} else Unclear(text)


def _number(text: str) -> int | Decimal | str:
    if ":" in text:
        return text
    if len(text) > _LONGEST_NUMBER:
        return Unclear(text)
    digits = text.replace("_", "")
    if _WHOLE.fullmatch(text):
        return int(digits)
    if _DECIMAL.fullmatch(text) and any(sign.isdigit() for sign in digits):
        number = Decimal(digits)
        if abs(number.adjusted()) <= _MOST_PLACES:
            return number
    return Unclear(text)


def line_at(root: Node, place: Place) -> int:
    """The line of the key, or of the nearest one above it that is there."""
    node, line = root, root.line
    try:
        for step in place:
            if isinstance(step, int):
                node = node.items[step]
                line = node.line
            else:
                line, node = node.key_lines[step], node.entries[step]
    except LookupError:
        return line
    return line


def lines_of(node: Node, path: str = "") -> dict[str, int]:
    """The line of every key, by its path."""
    found: dict[str, int] = {}
    for key, value in node.entries.items():
        inner = f"{path}.{key}" if path else key
        found[inner] = node.key_lines[key]
        found.update(lines_of(value, inner))
    for number, item in enumerate(node.items):
        inner = f"{path}[{number}]"
        found[inner] = item.line
        found.update(lines_of(item, inner))
    return found


def path_of(place: Place) -> str:
    """As people write it: `sensors[0].source.tool`."""
    path = ""
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


# What pydantic found wrong, in the words of a person: the place, what was expected there, what was found. Pure.


SHOWN_CHARS: Final = 60
_KEY: Final = "[key]"  # how pydantic says that the key of a map is wrong, not its value


@dataclass(frozen=True)
class Refusal:
    place: Place
    expected: str
    got: str


def refusals(error: ValidationError, model: type[BaseModel]) -> Iterator[Refusal]:
    for found in error.errors(include_url=False):
        place, kind, given = found["loc"], found["type"], found["input"]
        if place and place[-1] == _KEY and kind != "extra_forbidden":
            place = place[:-1]
        if kind == EXPECTED:
            key = found["ctx"]["key"]
            yield Refusal((*place, *key), found["ctx"]["what"], shown(_below(given, key)))
        elif kind == "missing":
            yield Refusal(place, f"a value: {_last(place)} is needed", "nothing")
        elif kind == "extra_forbidden":
            yield Refusal(place, one_key_of(_keys(model, place[:-1]), str(place[-1])), "")
        elif (section := _section(model, place)) is not None:
            yield Refusal(place, f"a map with the keys {', '.join(section.model_fields)}", shown(given))
        else:
            yield Refusal(place, found["msg"], shown(given))


def _last(place: Place) -> str:
    return str(place[-1]) if place else "the text"


def _below(given: Any, key: Place) -> Any:
    for step in key:
        try:
            given = getattr(given, str(step)) if isinstance(given, BaseModel) else given[step]
        except (KeyError, IndexError, TypeError, AttributeError):
            return None
    return given


def one_key_of(keys: list[str], key: str) -> str:
    """What was expected in the place of a key that is not known."""
    near = get_close_matches(key, keys, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"one of the keys {', '.join(keys)}{hint}"


def _keys(model: type[BaseModel], place: Place) -> list[str]:
    section = _section(model, place)
    return list(section.model_fields) if section else []


def _section(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """The part of the schema that a place speaks of. Steps into a list or a map of sections are passed over."""
    section: type[BaseModel] | None = model
    steps = iter(place)
    for step in steps:
        field = section.model_fields.get(str(step)) if section else None
        if field is None:
            return None
        section, many = _inner(field.annotation)
        if many and next(steps, None) is None:
            return None
    return section


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    many = get_origin(annotation) in {tuple, dict}
    for part in get_args(annotation):
        section, inner_many = _inner(part)
        if section is not None:
            return section, many or inner_many
    return None, many


def shown(given: Any) -> str:
    if given is None:
        return "nothing"
    if isinstance(given, dict | BaseModel):
        return "a map"
    if isinstance(given, list | tuple):
        return "a list"
    if isinstance(given, Decimal):
        return str(given)
    shown = json.dumps(redact(given) if isinstance(given, str) else given, ensure_ascii=False, default=str)
    return shown if len(shown) <= SHOWN_CHARS else f"{shown[: SHOWN_CHARS - 1]}…"


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


# Writes an agent.yaml for an agent that never had one. Pure values in, text out; reading it gives the same values.


LINE_CHARS: Final = 100


def write_definition(values: Mapping[str, Any]) -> str:
    """The keys in the order given; what is empty is left out."""
    kept = {key: value for key, value in values.items() if value not in (None, "", [], {})}
    return yaml.dump(kept, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS)


class _Dumper(yaml.SafeDumper):
    """Knows amounts of money, which are exact."""


def _amount(dumper: yaml.SafeDumper, amount: Decimal) -> yaml.ScalarNode:
    kind = "int" if amount == amount.to_integral_value() else "float"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", f"{amount.normalize():f}")


_Dumper.add_representer(Decimal, _amount)
_Dumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(str(text)))
