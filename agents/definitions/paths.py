"""Which part of a reading a field gets: `data.items[0].price`. Keys between dots, places in brackets. Pure.

A place counts from the front, or, below zero, from the back. A key that holds a dot or a bracket cannot be named.
"""

import re
from functools import lru_cache
from typing import Any, Final

MOST_STEPS: Final = 32
_NOTHING: Final = object()
_STEP: Final = re.compile(r"(?s:\A|(?<=.)\.)(?P<key>[^.\[\]]+)|\[(?P<place>-?[0-9]{1,9})\]")


class BadPath(ValueError):
    """The path is not written as one."""


class NothingThere(LookupError):
    """The reading has no such part."""


@lru_cache(maxsize=1024)
def steps_of(path: str) -> tuple[str | int, ...]:
    """The keys and places of a path, in order."""
    steps: list[str | int] = []
    end = 0
    for found in _STEP.finditer(path):
        if found.start() != end:
            break
        steps.append(found["key"] if found["key"] is not None else int(found["place"]))
        end = found.end()
    if end != len(path) or not steps or len(steps) > MOST_STEPS:
        raise BadPath(f"{path!r} is no path: write keys and places as in data.items[0].price, at most {MOST_STEPS}.")
    return tuple(steps)


def part_of(value: Any, path: str | None) -> Any:
    """The part that the path names; the whole without one. What is not there raises NothingThere, and says where."""
    if path is None:
        return value
    for number, step in enumerate(steps := steps_of(path), 1):
        value = _inside(value, step)
        if value is _NOTHING:
            raise NothingThere(f"there is nothing at {shown(steps[:number])}")
    return value


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
    fits = isinstance(value, list) and -len(value) <= step < len(value)
    return value[step] if fits else _NOTHING


def shown(steps: tuple[str | int, ...]) -> str:
    text = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps)
    return text.removeprefix(".")
