"""What pydantic found wrong, in the words of a person: the place, what was expected there, what was found. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from agents.definitions.values import EXPECTED, Place
from audit.redaction import redact

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
