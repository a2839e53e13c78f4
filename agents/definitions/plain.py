"""From the tree that the strict reader makes to plain values, and back to the lines where they stand. Pure.

YAML 1.1 takes `on` for true, `22:00` for 1320 and `010` for 8. Here a time stays what was written, and a word that
could mean two things is marked, so that only a key that knows what it wants takes it.
"""

import re
from decimal import Decimal
from typing import Any, Final

from agents.definitions.values import Place, Unclear
from agents.text.strict_yaml import Node

_WHOLE: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)?\.[0-9_]*([eE][-+]?[0-9]{1,3})?")
_LONGEST_NUMBER: Final = 40
_MOST_PLACES: Final = 300  # what a float can hold


def plain(node: Node) -> Any:
    match node.kind:
        case "map":
            return {key: plain(value) for key, value in node.entries.items()}
        case "list":
            return [plain(item) for item in node.items]
        case "nothing":
            return None
        case "boolean":
            return _boolean(node.text)
        case "number":
            return _number(node.text)
        case _:
            return node.text


def _boolean(text: str) -> bool | Unclear:
    word = text.lower()
    return word == "true" if word in {"true", "false"} else Unclear(text)


def _number(text: str) -> int | Decimal | str:
    if ":" in text:
        return text
    if len(text) > _LONGEST_NUMBER:
        return Unclear(text)
    digits = text.replace("_", "")
    if _WHOLE.fullmatch(text):
        return int(digits)
    if _DECIMAL.fullmatch(text) and any(sign.isdigit() for sign in digits):
        number = Decimal(digits)
        if abs(number.adjusted()) <= _MOST_PLACES:
            return number
    return Unclear(text)


def line_at(root: Node, place: Place) -> int:
    """The line of the key, or of the nearest one above it that is there."""
    node, line = root, root.line
    try:
        for step in place:
            if isinstance(step, int):
                node = node.items[step]
                line = node.line
            else:
                line, node = node.key_lines[step], node.entries[step]
    except LookupError:
        return line
    return line


def lines_of(node: Node, path: str = "") -> dict[str, int]:
    """The line of every key, by its path."""
    found: dict[str, int] = {}
    for key, value in node.entries.items():
        inner = f"{path}.{key}" if path else key
        found[inner] = node.key_lines[key]
        found.update(lines_of(value, inner))
    for number, item in enumerate(node.items):
        inner = f"{path}[{number}]"
        found[inner] = item.line
        found.update(lines_of(item, inner))
    return found


def path_of(place: Place) -> str:
    """As people write it: `sensors[0].source.tool`."""
    path = ""
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path
