"""Secrets by handle: `{"$secret": "name"}` stands for a value that nobody but the skill itself gets to see.

A handle is taken only in arguments that a skill declares for it. Journal, digest, approver and record hold the handle;
the value is put in its place when the skill is run (agents.guard.skills), and is masked wherever it shows after that.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from agents.conf import named_secrets

HANDLE: Final = "$secret"


class BadHandle(ValueError):
    """A handle that stands where none is taken, or that names no secret."""


def holds_handle(value: Any) -> bool:
    if isinstance(value, Mapping):
        return HANDLE in value or any(map(holds_handle, value.values()))
    return isinstance(value, list | tuple) and any(map(holds_handle, value))


def stood_in(given: Mapping[str, Any], taken: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments with a text in place of each handle, so that they can be checked; and which stands for which."""
    stand_ins: dict[str, Any] = {}

    def stand_in(name: str) -> str:
        text = f"secret-{secrets.token_hex(8)}"
        stand_ins[text] = {HANDLE: name}
        return text

    return _replaced(given, taken, stand_in), stand_ins


def put_back(value: Any, stand_ins: Mapping[str, Any]) -> Any:
    """Handles in the places of their texts again."""
    if isinstance(value, dict):
        return {name: put_back(item, stand_ins) for name, item in value.items()}
    if isinstance(value, list):
        return [put_back(item, stand_ins) for item in value]
    return stand_ins.get(value, value) if isinstance(value, str) else value


def resolved(given: Mapping[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The arguments with the secrets themselves; for the skill's own eyes."""
    return _replaced(given, taken, lambda name: named_secrets()[name])


def with_handles(schema: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The JSON schema of arguments in which a text may be a handle; the same where there are no secrets to name."""
    names = sorted(named_secrets())
    if not names or not taken:
        return schema
    handle = {
        "type": "object",
        "description": "A secret by its name. Its value is put in when the call is made; you never see it.",
        "properties": {HANDLE: {"type": "string", "enum": names}},
        "required": [HANDLE],
        "additionalProperties": False,
    }
    parts = schema["properties"]
    return {**schema, "properties": {**parts, **{name: _or_handle(parts[name], handle) for name in taken}}}


def _or_handle(part: Any, handle: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_or_handle(item, handle) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "string":
        return {"anyOf": [part, handle]}
    inside = {"items", "anyOf", "additionalProperties"}
    return {name: _or_handle(item, handle) if name in inside else item for name, item in part.items()}


def _replaced(given: Mapping[str, Any], taken: Iterable[str], put: Callable[[str], str]) -> dict[str, Any]:
    accepted = frozenset(taken)
    for name, value in given.items():
        if name not in accepted and holds_handle(value):
            raise BadHandle(f"{name} takes no secret; {_takers(accepted)}")
    return {name: _inside(value, put) if name in accepted else value for name, value in given.items()}


def _inside(value: Any, put: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return put(_name(value)) if HANDLE in value else {name: _inside(item, put) for name, item in value.items()}
    return [_inside(item, put) for item in value] if isinstance(value, list | tuple) else value


def _name(handle: Mapping[str, Any]) -> str:
    name = handle[HANDLE]
    if len(handle) != 1 or not isinstance(name, str) or name not in named_secrets():
        known = ", ".join(sorted(named_secrets())) or "none"
        raise BadHandle(
            f"there is no secret {str(name)[:64]!r}; a handle is {{'$secret': name}}, and known are: {known}"
        )
    return name


def _takers(accepted: frozenset[str]) -> str:
    return f"a handle may stand in {', '.join(sorted(accepted))}" if accepted else "no argument of this skill does"
