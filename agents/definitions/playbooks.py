"""Playbooks as YAML that people write, keep under version control and send to each other. Pure text in and out.

Every refusal names the place and the line: `positions[2].severity: expected text, found list (line 14)`.
Writing and reading again gives the same values.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import yaml

from agents.definitions.playbook_text import DEFAULT_SEVERITY, Position
from agents.exceptions import Invalid
from agents.text.strict_yaml import Node, read_yaml

KEYS: Final = ("name", "positions")
POSITION_KEYS: Final = tuple(field.name for field in fields(Position))
LISTS: Final = frozenset({"fallbacks", "must_contain", "must_not_contain"})
LINE_CHARS: Final = 100
_OTHER_BREAKS: Final = frozenset("\r\x85\u2028\u2029")


def read_playbook(text: str) -> tuple[str, tuple[Position, ...]]:
    """The name and the positions. What they may hold beyond their shape is for the service to say."""
    root = read_yaml(text)
    _demand_map(root, "", KEYS)
    name = _text(root, "name", "name")
    listed = root.entries.get("positions")
    if listed is None or listed.is_nothing:
        raise _refusal("positions", "is missing", root if listed is None else listed)
    if listed.kind != "list":
        raise _expected("positions", "list", listed)
    return name, tuple(_position(node, f"positions[{number}]") for number, node in enumerate(listed.items))


def write_playbook(name: str, positions: Sequence[Position]) -> str:
    """The same as YAML; what is empty is left out."""
    content = {"name": name, "positions": [_entries(position) for position in positions]}
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS)


def _position(node: Node, path: str) -> Position:
    _demand_map(node, path, POSITION_KEYS)
    values: dict[str, Any] = {"issue": _text(node, "issue", f"{path}.issue")}
    for key in POSITION_KEYS[1:]:
        given = node.entries.get(key)
        if given is None or given.is_nothing:
            continue
        values[key] = _texts(given, f"{path}.{key}") if key in LISTS else _said(given, f"{path}.{key}")
    return Position(**values)


def _demand_map(node: Node, path: str, known: tuple[str, ...]) -> None:
    if node.kind != "map":
        raise _expected(path or "the playbook", f"map of {', '.join(known)}", node)
    for key, value in node.entries.items():
        if key not in known:
            place = f"{path}.{key}" if path else key
            raise _refusal(place, f"is not known; there are {', '.join(known)}", value)


def _text(node: Node, key: str, path: str) -> str:
    """A text that has to be there."""
    given = node.entries.get(key)
    if given is None or given.is_nothing or not (said := _said(given, path)).strip():
        raise _refusal(path, "is missing", given or node)
    return said


def _texts(node: Node, path: str) -> tuple[str, ...]:
    if node.kind != "list":
        raise _expected(path, "list of texts", node)
    return tuple(_said(item, f"{path}[{number}]") for number, item in enumerate(node.items))


def _said(node: Node, path: str) -> str:
    if node.kind == "text":
        return node.text
    raise _expected(path, "text", node, "; put it in quotes" if node.is_single and not node.is_nothing else "")


def _expected(path: str, wanted: str, node: Node, more: str = "") -> Invalid:
    return _refusal(path, f"expected {wanted}, found {node.kind}{more}", node)


def _refusal(path: str, said: str, node: Node) -> Invalid:
    return Invalid(f"{path}: {said} (line {node.line})")


def _entries(position: Position) -> dict[str, Any]:
    values = {key: getattr(position, key) for key in POSITION_KEYS}
    values["severity"] = position.severity or DEFAULT_SEVERITY
    return {key: list(value) if key in LISTS else value for key, value in values.items() if value}


class _Dumper(yaml.SafeDumper):
    """Prose of several lines as a block, so that a person can read and change it."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Line breaks other than \\n would be read as one: in double quotes they are escaped.
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
