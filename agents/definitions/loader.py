"""Reads an agent.yaml strictly, and names every problem with its line and key. Also writes one.

Pure: text in, a definition out. A wrong sensor breaks only itself: it is listed in `broken_sensors`, and the agent
starts without it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final, TypeVar

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
    Section,
    SensorSpec,
    TriggerSpec,
)
from agents.definitions.values import NAME, Ambiguous
from agents.enums import SensorKind, TriggerKind
from agents.exceptions import Invalid
from agents.policy.paths import Place, path_text
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
Keys = TypeVar("Keys", AgentKeys, TriggerSpec)
Valid = TypeVar("Valid", bound=Section)


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
        self._given = {} if root.is_nothing else plain_values(root)
        self._file = file
        self._lines = lines_of(root)
        self._problems: list[Problem] = []

    def definition(self, default_name: str) -> AgentDefinition:
        is_map = isinstance(self._given, dict)
        keys = dict(self._given) if is_map else {}
        is_named = keys.get("name") is not None
        sensor_list = _bounded_list(keys, "sensors", MAX_SENSORS)
        trigger_list = _bounded_list(keys, "triggers", MAX_TRIGGERS)
        sensors, broken = self._sensors(sensor_list or [])
        required = {"kind": TriggerKind.MANUAL}
        triggers = [
            self._read(TriggerSpec, trigger, {"name": f"#{number + 1}", **required}, ("triggers", number))
            for number, trigger in enumerate(trigger_list or [])
        ]
        if not is_named:
            keys["name"] = default_name
        if sensor_list is not None:
            keys["sensors"] = tuple(sensors.values())
        if trigger_list is not None:
            keys["triggers"] = tuple(spec for spec, _ in triggers)
        written, wrong = self._read(AgentKeys, keys if is_map else self._given, {"name": default_name})
        self._check_triggers(written.zone, trigger_list or [], triggers)
        definition = AgentDefinition.model_construct(
            _fields_set=written.model_fields_set - (frozenset() if is_named else {"name"}),
            **{name: getattr(written, name) for name in AgentKeys.model_fields},
            broken_sensors=broken,
            notes=tuple(self._notes(written, sensors, has_fields="hot_state" not in wrong)),
            lines=self._lines,
            sensor_keys={sensor.name: path_text(("sensors", number)) for number, sensor in sensors.items()},
        )
        if self._problems:
            listed = [*self._problems, *(problem for sensor in broken for problem in sensor.problems)]
            raise DefinitionError(sort_problems(listed), rest=definition if is_map else None)
        return definition

    # --- Sections ---

    def _read(
        self, model: type[Keys], given: Any, required: Mapping[str, Any], place: Place = ()
    ) -> tuple[Keys, set[str]]:
        """Return a section without its wrong keys, and those keys. Wrong ones that it needs come from `required`."""
        try:
            return model.model_validate(given), set()
        except ValidationError as error:
            self._problems += validation_problems(error, lines=self._lines, file=self._file, above=place)
            wrong = {str(found["loc"][0]) for found in error.errors(include_url=False) if found["loc"]}
        right = {key: given[key] for key in given.keys() - wrong} if isinstance(given, dict) else {}
        return model.model_validate({**required, **right}), wrong | (required.keys() - right.keys())

    def _check_triggers(self, zone: str, listed: list[Any], specs: list[tuple[TriggerSpec, set[str]]]) -> None:
        names: set[str] = set()
        for number, (given, (spec, wrong)) in enumerate(zip(listed, specs, strict=True)):
            if spec.name in names:
                unique = "a name that no other trigger of this agent has"
                self._problems.append(self._problem(("triggers", number, "name"), unique, spec.name))
            names.add(spec.name)
            for key, expected in spec.conflicts(zone, wrong):  # only a map has a kind, and so conflicts
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
                problems += validation_problems(error, lines=self._lines, file=self._file, above=place)
            if problems:
                own_name = name if name and name not in names else f"{name or 'sensor'}#{number + 1}"
                broken.append(BrokenSensor(own_name, _sensor_kind(given), tuple(problems)))
            else:
                good[number] = sensor
            names.add(name)
        return good, tuple(broken)

    def _notes(self, written: AgentKeys, sensors: Mapping[int, SensorSpec], *, has_fields: bool) -> Iterator[Problem]:
        """Yield what is valid, but may not be intended."""
        triggers = {trigger.name for trigger in written.triggers}
        for number, sensor in sensors.items():
            for index, update in enumerate(sensor.updates):
                if has_fields and update.field not in written.hot_state.fields:
                    expected = "a field of hot_state: values for any other field are dropped"
                    yield self._problem(("sensors", number, "updates", index, "field"), expected, update.field)
            for index, signal in enumerate(sensor.signals):
                if signal.spawn is not None and signal.spawn not in triggers:
                    expected = "a trigger of this file, unless the agent already has one of that name"
                    yield self._problem(("sensors", number, "signals", index, "spawn"), expected, signal.spawn)

    def _problem(self, place: Place, expected: str, got: Any) -> Problem:
        return _problem_at(place, expected, _excerpt(got), lines=self._lines, file=self._file)


# --- Problems ---


def validation_problems(
    error: ValidationError, *, lines: Mapping[str, int], file: str = "", above: Place = ()
) -> Iterator[Problem]:
    """Yield the errors of a Section with their keys and lines."""
    for found in error.errors(include_url=False):
        place = found["loc"][:-1] if found["loc"][-1:] == (_KEY,) else found["loc"]
        what, key, got = (found["ctx"][name] for name in ("what", "key", "got"))
        got = _excerpt(_value_at(found["input"], key)) if got is None else got
        yield _problem_at((*above, *place, *key), what, got, lines=lines, file=file)


def require_valid(model: type[Valid], given: Any, lines: Mapping[str, int]) -> Valid:
    """Return the section, or raise Invalid with every problem, and its line if there is one."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = sort_problems(validation_problems(error, lines=lines))
    places = {problem: f" (line {problem.line})" if problem.line else "" for problem in problems}
    raise Invalid("\n".join(f"{problem.text}{place}" for problem, place in places.items()))


def _problem_at(place: Place, expected: str, got: str, *, lines: Mapping[str, int], file: str) -> Problem:
    """Return a problem with the line of its key, or of the nearest one above it."""
    above = (lines.get(path_text(place[:length]), 0) for length in range(len(place), -1, -1))
    return Problem(file, next((line for line in above if line), 0), path_text(place), expected, got)


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
    """Return the list if it is short enough, else None: then the schema refuses it."""
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


def plain_values(node: Node) -> Any:
    """Return the values of a tree."""
    match node.kind:
        case "map":
            return {key: plain_values(value) for key, value in node.entries.items()}
        case "list":
            return [plain_values(item) for item in node.items]
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


def lines_of(node: Node, path: str = "") -> dict[str, int]:
    """Return the line of every key and item, by its path; the path of the whole is empty."""
    lines = {path: node.line}
    for key, value in node.entries.items():
        inner = f"{path}.{key}" if path else key
        lines |= lines_of(value, inner) | {inner: node.key_lines[key]}
    for number, item in enumerate(node.items):
        lines |= lines_of(item, f"{path}[{number}]")
    return lines


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
