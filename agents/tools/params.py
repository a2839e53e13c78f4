"""Reads a handler's parameters: a wrong one is a clear error before anything is written."""

from collections.abc import Mapping
from typing import Any


class BadParams(ValueError):
    """A parameter is missing or of the wrong kind."""


def text(params: Mapping[str, Any], name: str, default: str | None = None, *, limit: int = 100_000) -> str:
    value = params.get(name, default)
    if value is None:
        raise BadParams(f"{name!r} is missing.")
    if not isinstance(value, str):
        raise BadParams(f"{name!r} must be text, not {type(value).__name__}.")
    return value[:limit]
