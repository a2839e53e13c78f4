"""A strict reader of untrusted YAML. It makes texts, lists and maps, and never an object.

It uses only the parser's events: nothing is constructed. Anchors, aliases, merge keys, tags, directives, duplicate
keys, characters that a database refuses, and whatever is too large or too deep are refused, with the line.
"""

import re
from collections.abc import Iterator, Mapping
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

    @property
    def is_single(self) -> bool:
        return self.kind not in {"list", "map"}


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
        return _Reader(plain, first_line).read()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + first_line, mark.column + 1) if mark else (0, 0)
        raise Unreadable(f"This is not YAML: {error.problem or error.context}{_PLACE}.", line, column) from None
    except (yaml.YAMLError, ValueError, OverflowError):  # the Python parser fails on \\U00110000
        raise Unreadable("This is not YAML: an escape stands for no character.") from None


def _unstorable(found: re.Match[str], line: int) -> Unreadable:
    return Unreadable(f"The character U+{ord(found[0]):04X} cannot be kept{_PLACE}.", line)


class _Reader:
    """Builds the tree from the parser's events. The depth is bounded, so recursion is too."""

    def __init__(self, text: str, first_line: int) -> None:
        self._first_line = first_line
        self._resolver = yaml.resolver.Resolver()
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=LOADER)
        self._nodes = 0

    def read(self) -> Node:
        next(self._events)  # the stream begins
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return Node("nothing", self._first_line)
        root = self._node(next(self._events), depth=1)
        next(self._events)  # the document ends
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise Unreadable(f"A second document begins{_PLACE}; one is read.", self._line(event))
        return root

    def _node(self, event: yaml.Event, *, depth: int) -> Node:
        line = self._line(event)
        self._check(event, depth, line)
        if isinstance(event, yaml.ScalarEvent):
            return self._single(event, line)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(line, depth)
        return self._map(line, depth)

    def _check(self, event: yaml.Event, depth: int, line: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Unreadable(f"The YAML holds more than {MAX_NODES} values{_PLACE}; shorten or split it.", line)
        if depth > MAX_DEPTH:
            raise Unreadable(f"The YAML is nested more than {MAX_DEPTH} levels deep{_PLACE}.", line)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Unreadable(f"Anchors (&) and aliases (*) are not read{_PLACE}: write the value out.", line)
        if getattr(event, "tag", None):
            raise Unreadable(f"Tags (!) are not read{_PLACE}: write plain text, lists and maps.", line)

    def _single(self, event: yaml.ScalarEvent, line: int) -> Node:
        if unstorable := UNSTORABLE.search(event.value):
            raise _unstorable(unstorable, line)
        tag = self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        if tag == _MERGE:
            raise Unreadable(f"Merge keys (<<) are not read{_PLACE}: write the values out.", line)
        return Node(_KINDS.get(tag, _TEXT), line, event.value)

    def _list(self, line: int, depth: int) -> Node:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth=depth + 1))
        return Node("list", line, items=tuple(items))

    def _map(self, line: int, depth: int) -> Node:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth=depth + 1)
            if key.kind != _TEXT or len(key.text) > MAX_KEY_CHARS:
                found = key.kind if key.kind != _TEXT else f"{len(key.text)} characters"
                message = f"A key is text of at most {MAX_KEY_CHARS} characters, found {found}{_PLACE}."
                raise Unreadable(message, key.line)
            if key.text in entries:
                raise Unreadable(f"{key.text!r} stands twice (lines {lines[key.text]} and {key.line}).", key.line)
            lines[key.text] = key.line
            entries[key.text] = self._node(next(self._events), depth=depth + 1)
        return Node("map", line, entries=entries, key_lines=lines)

    def _line(self, event: yaml.Event) -> int:
        return (event.start_mark.line if event.start_mark else 0) + self._first_line
