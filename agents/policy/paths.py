"""Paths into a reading: `data.items[0].price`. Pure.

Keys are separated by dots, indexes are in brackets; a negative index counts from the end. A key that contains a dot
or a bracket cannot be named.
"""

import re
from functools import lru_cache
from typing import Any, Final

MAX_PATH_STEPS: Final = 32
_STEP: Final = re.compile(r"(?s:\A|(?<=.)\.)(?P<key>[^.\[\]]+)|\[(?P<index>-?[0-9]{1,9})\]")
_NOTHING: Final = object()

Place = tuple[str | int, ...]


class BadPath(ValueError):
    """The path is not a valid path."""


class PathNotFound(LookupError):
    """The reading has no such part."""


@lru_cache(maxsize=1024)
def path_steps(path: str) -> tuple[str | int, ...]:
    """Return the keys and indexes of a path, in order."""
    steps: list[str | int] = []
    end = 0
    for found in _STEP.finditer(path):
        if found.start() != end:
            break
        steps.append(found["key"] if found["key"] is not None else int(found["index"]))
        end = found.end()
    if end != len(path) or not steps or len(steps) > MAX_PATH_STEPS:
        raise BadPath(
            f"{path!r} is not a path: write at most {MAX_PATH_STEPS} keys and indexes as in data.items[0].price."
        )
    return tuple(steps)


def value_at_path(value: Any, path: str | None) -> Any:
    """Return the part of a value that a path names; without a path, the whole value."""
    if path is None:
        return value
    for number, step in enumerate(steps := path_steps(path), 1):
        value = _inside(value, step)
        if value is _NOTHING:
            raise PathNotFound(f"there is nothing at {path_text(steps[:number])}")
    return value


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
    exists = isinstance(value, list) and -len(value) <= step < len(value)
    return value[step] if exists else _NOTHING


def path_text(steps: Place) -> str:
    """Return a path as people write it: `sensors[0].source.tool`."""
    text = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps)
    return text.removeprefix(".")
