"""Reads an agent.yaml strictly, and names every problem with its line and key. Also writes one.

Pure: text in, a definition out. A wrong sensor breaks only itself: it is listed in `broken_sensors`, and the agent
starts without it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from decimal import Decimal
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, Final, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from agents.definitions.schema import (
    MAX_SENSORS,
    MAX_TRIGGERS,
    AgentDefinition,
    AgentKeys,
    BrokenSensor,
    DefinitionError,
    Problem,
    SensorSpec,
    TriggerSpec,
)
from agents.definitions.values import EXPECTED, NAME, Ambiguous, Place, as_flag
from agents.enums import SensorKind, TriggerKind
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.text.strict_yaml import Node, Unreadable, read_yaml
from audit.redaction import redact

NAME_CHARS: Final = 120
EXCERPT_CHARS: Final = 60
LINE_CHARS: Final = 100
MAX_NUMBER_CHARS: Final = 40
MAX_EXPONENT: Final = 300  # of a float
_WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)?\.[0-9_]*([eE][-+]?[0-9]{1,3})?")
_KEY: Final = "[key]"  # the end of pydantic's location of a wrong key of a map
_SETTINGS: Final[dict[str, type[LoopConfig | GuardrailsConfig]]] = {"loop": LoopConfig, "guardrails": GuardrailsConfig}


def read_definition(text: str, *, file: str = "agent.yaml", name: str = "") -> AgentDefinition:
    """Return the definition, or raise DefinitionError with every problem.

    A text without a name gets `name`, or the name of its file.
    """
    try:
        root = read_yaml(text)
    except Unreadable as error:
        reason = f"{error.said[0].lower()}{error.said[1:].rstrip('.')}"
        raise DefinitionError((Problem(file, error.line, "", f"YAML that can be read: {reason}"),)) from None
    return _Reading(root, file).definition(name or PurePath(file).stem[:NAME_CHARS] or "agent")


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems by line, each once."""
    return tuple(sorted(set(problems), key=lambda problem: (problem.line, problem.key)))


class _Reading:
    """Reads one tree, and collects problems instead of raising the first one."""

    def __init__(self, root: Node, file: str) -> None:
        self._root = root
        self._file = file
        self._lines = _lines_of(root)
        self._problems: list[Problem] = []
        self._wrong_keys: set[str] = set()

    def definition(self, default_name: str) -> AgentDefinition:
        given = {} if self._root.is_nothing else _plain(self._root)
        keys = given if isinstance(given, dict) else {}
        self._check_settings(keys)
        sensor_list = _bounded_list(keys, "sensors", MAX_SENSORS)
        trigger_list = _bounded_list(keys, "triggers", MAX_TRIGGERS)
        sensors, broken = self._sensors(sensor_list or [])
        triggers = [self._trigger(number, trigger) for number, trigger in enumerate(trigger_list or [])]
        if isinstance(given, dict):
            name = keys.get("name")
            given = {**keys, "name": default_name if name is None else name}
            if sensor_list is not None:
                given["sensors"] = tuple(sensors.values())
            if trigger_list is not None:
                given["triggers"] = tuple(spec for spec, _ in triggers)
        written = self._written(given)
        if written is not None:
            self._check_triggers(written.zone, trigger_list or [], triggers)
        problems = sort_problems([*self._problems, *(problem for sensor in broken for problem in sensor.problems)])
        if written is None:
            raise DefinitionError(problems)
        read = AgentDefinition.read(
            written,
            named=keys.get("name") is not None,
            broken_sensors=broken,
            notes=tuple(self._notes(written, sensors)),
            lines=self._lines,
            sensor_keys={sensor.name: _path_of(("sensors", number)) for number, sensor in sensors.items()},
        )
        if self._problems:
            raise DefinitionError(problems, rest=read)
        return read

    # --- Sections ---

    def _written(self, given: Any) -> AgentKeys | None:
        """Validate the keys. Wrong ones are left out, so that other problems can be found as well."""
        try:
            return AgentKeys.model_validate(given)
        except ValidationError as error:
            self._problems += self._validation_problems(error, AgentKeys)
            wrong = _first_keys(error)
            if not isinstance(given, dict) or not wrong & given.keys():
                return None
            self._wrong_keys |= wrong
            return self._written({"name": "agent", **{key: given[key] for key in given.keys() - wrong}})

    def _trigger(self, number: int, given: Any) -> tuple[TriggerSpec, set[str]]:
        """Return what can be read of a trigger, and its wrong keys."""
        self._check_settings(given, "triggers", number)
        try:
            return TriggerSpec.model_validate(given), set()
        except ValidationError as error:
            self._problems += self._validation_problems(error, TriggerSpec, ("triggers", number))
            wrong = _first_keys(error)
        right = {key: given[key] for key in given.keys() - wrong} if isinstance(given, dict) else {}
        required = {"name": f"#{number + 1}", "kind": TriggerKind.MANUAL}
        return TriggerSpec.model_validate({**required, **right}), wrong | (required.keys() - right.keys())

    def _check_triggers(self, zone: str, listed: list[Any], specs: list[tuple[TriggerSpec, set[str]]]) -> None:
        names: set[str] = set()
        for number, (given, (spec, wrong)) in enumerate(zip(listed, specs, strict=True)):
            if spec.name in names:
                unique = "a name that no other trigger of this agent has"
                self._problems.append(self._problem(("triggers", number, "name"), unique, spec.name))
            names.add(spec.name)
            for key, expected in spec.misfits(zone, wrong):  # only a map has a kind, and so misfits
                self._problems.append(self._problem(("triggers", number, key), expected, given.get(key)))

    def _sensors(self, listed: list[Any]) -> tuple[dict[int, SensorSpec], tuple[BrokenSensor, ...]]:
        """Return the sensors that can run, by their index, and the broken ones."""
        good: dict[int, SensorSpec] = {}
        broken: list[BrokenSensor] = []
        names: set[str] = set()
        for number, given in enumerate(listed):
            place: Place = ("sensors", number)
            name = _sensor_name(given)
            problems: list[Problem] = []
            if name and name in names:
                problems.append(self._problem((*place, "name"), "a name that no other sensor has", name))
            try:
                sensor = SensorSpec.model_validate(given)
            except ValidationError as error:
                problems += self._validation_problems(error, SensorSpec, place)
            if problems:
                own_name = name if name and name not in names else f"{name or 'sensor'}#{number + 1}"
                broken.append(BrokenSensor(own_name, _sensor_kind(given), tuple(problems)))
            else:
                good[number] = sensor
            names.add(name)
        return good, tuple(broken)

    def _check_settings(self, given: Any, *above: str | int) -> None:
        """Check the settings of runs, of the agent or of one trigger."""
        for section, config in _SETTINGS.items():
            settings = given.get(section) if isinstance(given, dict) else None
            for key, value in settings.items() if isinstance(settings, dict) else ():
                try:
                    config.merged({key: as_flag(value)})
                except ValueError as error:
                    place = (*above, section, key)
                    known = [field.name for field in fields(config)]
                    message = str(error)  # `name = value: it must be …`
                    if message.partition(" = ")[0] in known:
                        reason = message.rpartition(": ")[2].removeprefix("it must be ").rstrip(".")
                        self._problems.append(self._problem(place, reason, value))
                    else:
                        self._problems.append(self._unknown_key(place, known))

    def _notes(self, written: AgentKeys, sensors: Mapping[int, SensorSpec]) -> Iterator[Problem]:
        """Yield what is valid, but may not be intended."""
        triggers = {trigger.name for trigger in written.triggers}
        for number, sensor in sensors.items():
            for index, update in enumerate(sensor.updates):
                if update.field not in written.hot_state.fields and "hot_state" not in self._wrong_keys:
                    expected = "a field of hot_state: values for any other field are dropped"
                    yield self._problem(("sensors", number, "updates", index, "field"), expected, update.field)
            for index, signal in enumerate(sensor.signals):
                if signal.spawn is not None and signal.spawn not in triggers:
                    expected = "a trigger of this file, unless the agent already has one of that name"
                    yield self._problem(("sensors", number, "signals", index, "spawn"), expected, signal.spawn)

    # --- Problems ---

    def _validation_problems(self, error: ValidationError, model: type[BaseModel], above: Place = ()) -> list[Problem]:
        """Return pydantic's errors as problems: its location with our line, what was expected, what was found."""
        problems = []
        for found in error.errors(include_url=False):
            place, kind, given = found["loc"], found["type"], found["input"]
            if place and place[-1] == _KEY and kind != "extra_forbidden":
                place = place[:-1]
            if kind == EXPECTED:
                key = found["ctx"]["key"]
                problem = self._problem((*above, *place, *key), found["ctx"]["what"], _value_at(given, key))
            elif kind == "missing":
                problem = self._problem((*above, *place), f"a value: {place[-1]} is required", None)
            elif kind == "extra_forbidden":
                section = _section(model, place[:-1])
                problem = self._unknown_key((*above, *place), list(section.model_fields) if section else [])
            else:
                section = _section(model, place)
                keys = f"a map with the keys {', '.join(section.model_fields)}" if section else found["msg"]
                problem = self._problem((*above, *place), keys, given)
            problems.append(problem)
        return problems

    def _unknown_key(self, place: Place, known: list[str]) -> Problem:
        near = get_close_matches(str(place[-1]), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        expected = f"one of the keys {', '.join(known)}{hint}"
        return Problem(self._file, self._line(place), _path_of(place), expected)

    def _problem(self, place: Place, expected: str, got: Any) -> Problem:
        return Problem(self._file, self._line(place), _path_of(place), expected, _excerpt(got))

    def _line(self, place: Place) -> int:
        """Return the line of a key, or of the nearest one above it."""
        above = (self._lines.get(_path_of(place[:length])) for length in range(len(place), 0, -1))
        return next((line for line in above if line), self._root.line)


def _first_keys(error: ValidationError) -> set[str]:
    return {str(found["loc"][0]) for found in error.errors(include_url=False) if found["loc"]}


def _section(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """Return the model at a place of the schema. Steps into a list or a map of sections are skipped."""
    section: type[BaseModel] | None = model
    steps = iter(place)
    for step in steps:
        field = section.model_fields.get(str(step)) if section else None
        if field is None:
            return None
        section, is_collection = _section_of(field.annotation)
        if is_collection and next(steps, None) is None:
            return None
    return section


def _section_of(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model in an annotation, and whether it is in a list or a map."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    is_collection = get_origin(annotation) in {tuple, dict}
    for part in get_args(annotation):
        section, inner = _section_of(part)
        if section is not None:
            return section, is_collection or inner
    return None, is_collection


def _value_at(given: Any, key: Place) -> Any:
    for step in key:
        try:
            given = getattr(given, str(step)) if isinstance(given, BaseModel) else given[step]
        except (KeyError, IndexError, TypeError, AttributeError):
            return None
    return given


def _excerpt(given: Any) -> str:
    if given is None:
        return "nothing"
    if isinstance(given, dict | BaseModel):
        return "a map"
    if isinstance(given, list | tuple):
        return "a list"
    if isinstance(given, Decimal):
        return str(given)
    text = json.dumps(redact(given) if isinstance(given, str) else given, ensure_ascii=False, default=str)
    return text if len(text) <= EXCERPT_CHARS else f"{text[: EXCERPT_CHARS - 1]}…"


def _bounded_list(keys: Mapping[str, Any], key: str, limit: int) -> list[Any] | None:
    """Return a list whose items are read one by one; the schema refuses anything else."""
    listed = keys.get(key)
    return listed if isinstance(listed, list) and len(listed) <= limit else None


def _sensor_name(given: Any) -> str:
    name = given.get("name") if isinstance(given, dict) else None
    return str(name) if isinstance(name, str) and NAME.fullmatch(name) else ""


def _sensor_kind(given: Any) -> SensorKind:
    kind = given.get("type") if isinstance(given, dict) else None
    return SensorKind(kind) if isinstance(kind, str) and kind in SensorKind.values else SensorKind.POLL


# --- The YAML tree ---
#
# YAML 1.1 reads `on` as true, `22:00` as 1320 and `010` as 8. Here a time stays text, and an ambiguous word is marked,
# so that only a key that knows what it expects accepts it.


def _plain(node: Node) -> Any:
    match node.kind:
        case "map":
            return {key: _plain(value) for key, value in node.entries.items()}
        case "list":
            return [_plain(item) for item in node.items]
        case "nothing":
            return None
        case "boolean":
            word = node.text.lower()
            return word == "true" if word in {"true", "false"} else Ambiguous(node.text)
        case "number":
            return _number(node.text)
        case _:
            return node.text


def _number(text: str) -> int | Decimal | str:
    if ":" in text:
        return text
    if len(text) > MAX_NUMBER_CHARS:
        return Ambiguous(text)
    digits = text.replace("_", "")
    if _WHOLE.fullmatch(text):
        return int(digits)
    if _DECIMAL.fullmatch(text) and any(sign.isdigit() for sign in digits):
        number = Decimal(digits)
        if abs(number.adjusted()) <= MAX_EXPONENT:
            return number
    return Ambiguous(text)


def _lines_of(node: Node, path: str = "") -> dict[str, int]:
    """Return the line of every key and item, by its path."""
    lines: dict[str, int] = {}
    for key, value in node.entries.items():
        inner = f"{path}.{key}" if path else key
        lines[inner] = node.key_lines[key]
        lines.update(_lines_of(value, inner))
    for number, item in enumerate(node.items):
        inner = f"{path}[{number}]"
        lines[inner] = item.line
        lines.update(_lines_of(item, inner))
    return lines


def _path_of(place: Place) -> str:
    """Return a place as people write it: `sensors[0].source.tool`."""
    path = ""
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


# --- Writing ---


def write_definition(values: Mapping[str, Any]) -> str:
    """Write an agent.yaml with the keys in the order given, without empty ones. Reading it gives the same values."""
    kept = {key: value for key, value in values.items() if value not in (None, "", [], {})}
    return yaml.dump(kept, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS)


class _Dumper(yaml.SafeDumper):
    """Writes amounts of money exactly."""


def _amount(dumper: yaml.SafeDumper, amount: Decimal) -> yaml.ScalarNode:
    kind = "int" if amount == amount.to_integral_value() else "float"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", f"{amount.normalize():f}")


_Dumper.add_representer(Decimal, _amount)
_Dumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(str(text)))
