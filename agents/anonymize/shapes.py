"""Walks JSON-shaped data and the messages of a request, and hands every text in it to a function.

Decides which fields are the grammar of a message and are left alone; what is personal is decided elsewhere.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from agents.anonymize.vault import Original

# Takes a text or a whole number and the key that it stands under; gives what is to stand there instead.
Change = Callable[[Original, str], Any]

# Fields that servers read. `data` and `file_data` hold encoded files.
GRAMMAR = frozenset(
    {"role", "type", "id", "tool_call_id", "tool_use_id", "call_id", "index", "status", "cache_control", "media_type"}
    | {"data", "file_data", "file_id", "signature", "format", "detail"}
)
ARGUMENTS = frozenset({"arguments", "input"})
TOOL_ROLES = frozenset({"tool", "function"})
LITERAL = re.compile(r'("(?:[^"\\]++|\\.)*+")(\s*:)?|(?<![\w.+-])(\d{6,19})(?![\w.])')


def changed_data(value: Any, change: Change, label: str = "") -> Any:
    """Values, and keys as texts of their own. Items of a list stand under the key of the list."""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return change(value, label)
    if isinstance(value, Mapping):
        return {
            change(key, "") if isinstance(key, str) else key: changed_data(item, change, str(key))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)([changed_data(item, change, label) for item in value])
    return value


def changed_message(value: Any, change: Change) -> Any:
    """A message or a part of one. Inside the arguments of a tool call everything is data."""
    if isinstance(value, str):
        return changed_text(value, change)
    if isinstance(value, Mapping):
        kept = GRAMMAR | {"name"} if _names_a_tool(value) else GRAMMAR
        return {key: item if key in kept else _changed_field(key, item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [changed_message(item, change) for item in value]
    return value


def _names_a_tool(value: Mapping[str, Any]) -> bool:
    return not ARGUMENTS.isdisjoint(value) or value.get("role") in TOOL_ROLES


def _changed_field(key: str, value: Any, change: Change) -> Any:
    if key in ARGUMENTS and not isinstance(value, str):
        return changed_data(value, change)
    return changed_message(value, change)


def changed_text(text: str, change: Change) -> Any:
    """A text that is JSON is changed inside its strings, so that it stays JSON and its escapes hide nothing."""
    if text.startswith("data:"):
        return text
    return changed_json(text, change) if is_json(text) else change(text, "")


def is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def changed_json(text: str, change: Change) -> str:
    label = ""

    def changed(match: re.Match[str]) -> str:
        nonlocal label
        literal, colon, number = match.groups()
        if literal is None:
            return _literal(number, int(number), change, label)
        decoded = json.loads(literal)
        if colon is None:
            return _literal(literal, decoded, change, label)
        label = decoded
        return _literal(literal, decoded, change, "") + colon

    return LITERAL.sub(changed, text)


def _literal(literal: str, value: Original, change: Change, label: str) -> str:
    """The literal as it was written, unless its value changes."""
    new = change(value, label)
    return literal if new == value else json.dumps(new, ensure_ascii=False)
