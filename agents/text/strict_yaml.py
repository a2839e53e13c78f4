"""A strict reader of untrusted YAML. It makes texts, lists and maps, and never an object.

Nothing is constructed: the parser's events are checked, then its nodes are read. Anchors, aliases, merge keys, tags,
directives, duplicate keys, characters that a database refuses, and whatever is too large or too deep are refused, with
the line.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import yaml

from agents.exceptions import Invalid

MAX_BYTES: Final = 256 * 1024
MAX_NODES: Final = 10_000
MAX_DEPTH: Final = 12
MAX_KEY_CHARS: Final = 100

_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT: Final = "text"
# The kinds of plain scalars in YAML; everything else is text.
_KINDS: Final = {
    "tag:yaml.org,2002:bool": "boolean",
    "tag:yaml.org,2002:float": "number",
    "tag:yaml.org,2002:int": "number",
    "tag:yaml.org,2002:null": "nothing",
    "tag:yaml.org,2002:timestamp": "date",
}
# The C parser is ten times as fast. Without it the Python one is used; it refuses a few more tabs.
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Control characters except tab and line breaks, and lone surrogates.
UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")

_PLACE: Final = "\0"  # where a message names the line; no accepted text holds it
_DIRECTIVE = re.compile("(?:^|[\x85\u2028\u2029])\ufeff?%", re.MULTILINE)


class Unreadable(Invalid):
    """Why a text cannot be read, and the line; `said` is the message without it."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        place = f" (line {line}, column {column})" if column else f" (line {line})" if line else ""
        super().__init__(message.replace(_PLACE, place))
        self.said = message.replace(_PLACE, "")
        self.line = line


@dataclass(frozen=True)
class Node:
    """A value with its line. `text` is a single value as written.

    `key_lines` holds the lines of a map's keys: a value may begin below its key.
    """

    kind: str
    line: int
    text: str = ""
    items: tuple["Node", ...] = ()
    entries: Mapping[str, "Node"] = field(default_factory=dict)
    key_lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return self.kind == "nothing"


def read_yaml(text: str, *, first_line: int = 1) -> Node:
    """Read the one document of a text. `first_line` is the line of the file at which the text begins."""
    size = len(text) if len(text) > MAX_BYTES else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise Unreadable(f"The YAML is {size} bytes long; at most {MAX_BYTES} are read: shorten or split it.")
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    if unstorable := UNSTORABLE.search(plain):
        raise _unstorable(unstorable, plain.count("\n", 0, unstorable.start()) + first_line)
    if directive := _DIRECTIVE.search(plain):
        line = plain.count("\n", 0, directive.start()) + first_line
        raise Unreadable(f"Directives (%) are not read{_PLACE}.", line)
    try:
        _check_events(plain, first_line)
        root = yaml.compose(plain, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + first_line, mark.column + 1) if mark else (0, 0)
        raise Unreadable(f"This is not YAML: {error.problem or error.context}{_PLACE}.", line, column) from None
    except (yaml.YAMLError, ValueError, OverflowError):  # the Python parser fails on \\U00110000
        raise Unreadable("This is not YAML: an escape stands for no character.") from None
    return Node("nothing", first_line) if root is None else _node(root, first_line)


def _unstorable(found: re.Match[str], line: int) -> Unreadable:
    return Unreadable(f"The character U+{ord(found[0]):04X} cannot be kept{_PLACE}.", line)


def _check_events(text: str, first_line: int) -> None:
    """Refuse what no text may hold, before anything is built. The depth is bounded, so recursion is too."""
    nodes = depth = documents = 0
    for event in yaml.parse(text, Loader=LOADER):
        line = (event.start_mark.line if event.start_mark else 0) + first_line
        depth -= isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise Unreadable(f"A second document begins{_PLACE}; one is read.", line)
        if not isinstance(event, yaml.NodeEvent):
            continue
        nodes += 1
        if nodes > MAX_NODES:
            raise Unreadable(f"The YAML holds more than {MAX_NODES} values{_PLACE}; shorten or split it.", line)
        if depth >= MAX_DEPTH:
            raise Unreadable(f"The YAML is nested more than {MAX_DEPTH} levels deep{_PLACE}.", line)
        if event.anchor:  # of an alias too
            raise Unreadable(f"Anchors (&) and aliases (*) are not read{_PLACE}: write the value out.", line)
        if getattr(event, "tag", None):
            raise Unreadable(f"Tags (!) are not read{_PLACE}: write plain text, lists and maps.", line)
        depth += isinstance(event, yaml.CollectionStartEvent)


def _node(node: yaml.Node, first_line: int) -> Node:
    line = node.start_mark.line + first_line
    if isinstance(node, yaml.SequenceNode):
        return Node("list", line, items=tuple(_node(item, first_line) for item in node.value))
    if isinstance(node, yaml.MappingNode):
        return _map(node, first_line)
    if unstorable := UNSTORABLE.search(node.value):
        raise _unstorable(unstorable, line)
    if node.tag == _MERGE:
        raise Unreadable(f"Merge keys (<<) are not read{_PLACE}: write the values out.", line)
    return Node(_KINDS.get(node.tag, _TEXT), line, node.value)


def _map(node: yaml.MappingNode, first_line: int) -> Node:
    entries: dict[str, Node] = {}
    lines: dict[str, int] = {}
    for key, value in ((_node(key, first_line), value) for key, value in node.value):
        if key.kind != _TEXT or len(key.text) > MAX_KEY_CHARS:
            found = key.kind if key.kind != _TEXT else f"{len(key.text)} characters"
            raise Unreadable(f"A key is text of at most {MAX_KEY_CHARS} characters, found {found}{_PLACE}.", key.line)
        if key.text in entries:
            raise Unreadable(f"{key.text!r} stands twice (lines {lines[key.text]} and {key.line}).", key.line)
        lines[key.text] = key.line
        entries[key.text] = _node(value, first_line)
    return Node("map", node.start_mark.line + first_line, entries=entries, key_lines=lines)
