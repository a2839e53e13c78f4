"""Redaction of JSON-shaped data: by the names of keys, and by the text of every string.

Owns the walk: new containers, bounded depth, cycles and shared parts visited once. Never raises and changes no number,
date, decimal or id. Must not decide what a credential looks like.
"""

import re
from typing import Any

from audit.redaction.markers import MARKER, marker
from audit.redaction.names import Strength, name_strength
from audit.redaction.redactor import redact
from audit.redaction.values import looks_random

DEPTH = 64
HANDLE = "$secret"
_TEMPLATE = re.compile(r"\$\{[^{}]*\}|\{\{[^{}]*\}\}|\$[A-Z_][A-Z0-9_]*|<[^<>]*>|[^A-Za-z0-9]*")


def _masked(value: str, strength: Strength) -> str:
    """A string under the name of a credential: masked whole, unless it plainly is none."""
    if MARKER.fullmatch(value) or _TEMPLATE.fullmatch(value):
        return value
    return marker("password" if strength is Strength.PASSWORD else "secret", value)


class _Walk:
    """One walk over one value."""

    def __init__(self) -> None:
        # The original is kept beside its copy, so that its id stays taken while the walk lasts.
        self._copies: dict[tuple[int, Strength], tuple[Any, Any]] = {}
        # Names and short words stand in many places.
        self._redacted: dict[str, str] = {}

    def value(self, value: Any, strength: Strength, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(str(value), strength)
        if not isinstance(value, dict | list | tuple):
            return value
        if depth >= DEPTH:
            return marker("depth", "")
        key = (id(value), strength)
        if key not in self._copies:
            self._copies[key] = (value, marker("cycle", ""))
            self._copies[key] = (value, self._container(value, strength, depth + 1))
        return self._copies[key][1]

    def _text(self, value: str, strength: Strength) -> str:
        if strength >= Strength.TOKEN or (strength is Strength.WEAK and looks_random(value)):
            return _masked(value, strength)
        return self._searched(value)

    def _searched(self, text: str) -> str:
        if text not in self._redacted:
            self._redacted[text] = redact(text)
        return self._redacted[text]

    def _container(self, value: Any, strength: Strength, depth: int) -> Any:
        if isinstance(value, dict):
            return self._mapping(value, strength, depth)
        items = [self.value(item, strength, depth) for item in value]
        if isinstance(value, list):
            return items
        return value._make(items) if hasattr(value, "_make") else tuple(items)

    def _mapping(self, value: dict[Any, Any], strength: Strength, depth: int) -> dict[Any, Any]:
        if len(value) == 1 and isinstance(value.get(HANDLE), str):
            return {HANDLE: self._searched(value[HANDLE])}
        result: dict[Any, Any] = {}
        for key, item in value.items():
            if isinstance(key, str):
                # Inside a credential every string counts, whatever its own name.
                inner = strength if strength >= Strength.TOKEN else name_strength(key)
                result[self._searched(str(key))] = self.value(item, inner, depth)
            else:
                result[key] = self.value(item, strength, depth)
        return result


def redact_data(value: Any) -> Any:
    """A copy of `value` with credentials masked in strings, in keys and under the names of credentials."""
    return _Walk().value(value, Strength.NONE, 0)


def contains_marker(value: Any) -> bool:
    """Whether any string inside `value`, keys included, holds a redaction marker."""
    pending = [value]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if MARKER.search(item):
                return True
        elif isinstance(item, dict | list | tuple) and id(item) not in seen:
            seen.add(id(item))
            pending.extend(item)
            if isinstance(item, dict):
                pending.extend(item.values())
    return False
