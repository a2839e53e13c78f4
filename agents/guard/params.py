"""Reads a handler's parameters: a wrong one is a clear error before anything is written."""

from collections.abc import Mapping
from typing import Any

from audit.kinds import LABEL


class BadParams(ValueError):
    """A parameter is missing or of the wrong kind."""


def text(params: Mapping[str, Any], name: str, default: str | None = None, *, limit: int = 100_000) -> str:
    value = params.get(name, default)
    if value is None:
        raise BadParams(f"{name!r} is missing.")
    if not isinstance(value, str):
        raise BadParams(f"{name!r} must be text, not {type(value).__name__}.")
    return value[:limit]


def label(params: Mapping[str, Any], name: str) -> str:
    """A name that can stand in the record: letters, digits and . : / @ + - _, no spaces."""
    value = text(params, name)
    if not value or not LABEL.fullmatch(value):
        raise BadParams(f"{name!r} must be a name without spaces, at most 128 characters, not {value[:64]!r}.")
    return value
