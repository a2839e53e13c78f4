"""Reads the skill calls of a model's reply, from tags in its text or from the provider's own form.

All or nothing: one unreadable call makes the whole reply an error. Fenced code is quotation and is skipped. Whether a
skill exists or may run is decided elsewhere. Time is linear in the length of the text.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.skills.literals import (
    MAX_DEPTH,
    MAX_NAME_CHARS,
    NAME,
    NAME_RULE,
    TOO_DEEP,
    UNSTORABLE,
    LiteralError,
    Reader,
    excerpt,
    number_of,
    unstorable_error,
)
from agents.types import RequestedCall
from audit.repetition import possessive

_BEFORE: Final = possessive(r"[ \t>]|(?:[-+*]|\d{1,9}[.)])(?=[ \t])")
# Exact tags that no backslash escapes; and CommonMark fences at the start of a line, a quotation or a list item. No
# backtick may follow a fence of backticks on its line.
_MARK: Final = re.compile(
    r"(?<!\\)<(?P<tag>skill|parallel|/parallel)>"
    rf"|(?<![^\r\n])(?P<before>{_BEFORE})(?P<fence>`{{3,}}+(?![^`\r\n]*`)|~{{3,}}+)"
)
_CLOSING_FENCE: Final = re.compile(r"(?<![^\r\n])(?P<before>[ \t>]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?![^\r\n])")
_MAX_INDENT: Final = 3  # blanks before a fence; more are indented code, or the inside of a list


class SkillSyntaxError(ValueError):
    """A call cannot be read, so no call of its reply may run. `position` is the offset of the error, from 0."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True)
class SkillCall:
    """A requested call: a skill and its arguments. Calls of one `parallel_group` may run in parallel."""

    name: str
    arguments: dict[str, Any]
    parallel_group: int | None = None
    id: str = ""


def parse_skill_calls(text: str) -> list[SkillCall]:
    """Return the calls in `<skill>name(argument=literal)</skill>` tags, in order. `<parallel>` groups its calls."""
    try:
        return _Reply(text).read()
    except LiteralError as error:
        position = error.position or 0
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        raise SkillSyntaxError(f"Line {line}, column {column}: {error}.", position) from None


def calls_from_native(calls: Sequence[RequestedCall]) -> list[SkillCall]:
    """Return the calls that the provider sent apart from the text. The same values and rules apply."""
    return [SkillCall(_native_name(call.name), _native_arguments(call), id=call.id) for call in calls]


# --- Tags ---


class _Reply:
    """One pass over a text that skips prose and reads calls."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._calls: list[SkillCall] = []
        self._groups = 0  # closed blocks with a call
        self._block_start: int | None = None  # position of the open block
        self._calls_before = 0  # calls before the open block

    def read(self) -> list[SkillCall]:
        position = 0
        while mark := _MARK.search(self._text, position):
            if mark["fence"]:
                position = self._fence_end(mark)
            elif mark["tag"] == "skill":
                position = self._call(mark.end())
            else:
                self._block(mark)
                position = mark.end()
        if self._block_start is not None and self._calls:
            raise LiteralError(self._block_start, "<parallel> is not closed; write </parallel> after its last </skill>")
        return self._calls

    def _fence_end(self, opening: re.Match[str]) -> int:
        """Return the end of a fenced block: a line of at least as many marks at the same level, else the end."""
        for line in _CLOSING_FENCE.finditer(self._text, opening.end()):
            if line["fence"].startswith(opening["fence"]) and _is_same_level(opening["before"], line["before"]):
                return line.end()
        return len(self._text)

    def _call(self, position: int) -> int:
        reader = Reader(self._text, position)
        reader.skip_blank()
        name = reader.name("a skill such as search(limit=5)")
        reader.skip_blank()
        reader.expect("(", "( and the arguments", NAME_RULE)
        arguments = reader.arguments()
        reader.skip_blank()
        reader.expect("</skill>", "</skill> after the closing bracket")
        self._calls.append(SkillCall(name, arguments, None if self._block_start is None else self._groups))
        return reader.position

    def _block(self, tag: re.Match[str]) -> None:
        if tag["tag"] == "parallel":
            if self._block_start is not None:
                raise LiteralError(tag.start(), "<parallel> is nested; close the first one with </parallel>")
            self._block_start = tag.start()
            self._calls_before = len(self._calls)
        elif self._block_start is not None:
            self._groups += len(self._calls) > self._calls_before
            self._block_start = None
        elif self._calls:
            raise LiteralError(
                tag.start(), "</parallel> closes nothing; write <parallel> before the first <skill> of the block"
            )


def _is_same_level(opened: str, closed: str) -> bool:
    """Return whether two fences are in the same quotation and list, by the text before them.

    In doubt they are not: calls in a block that stays open are not run.
    """
    if opened.count(">") != closed.count(">"):
        return False
    max_indent = _MAX_INDENT + (">" in opened)  # a quotation mark may have a blank of its own
    inside = opened.rpartition(">")[2].expandtabs(4)
    if len(inside) <= max_indent and opened.strip(" \t>") == "":
        return len(closed.rpartition(">")[2].expandtabs(4)) <= max_indent
    deeper = len(closed.expandtabs(4)) - len(opened.expandtabs(4))
    return 0 <= deeper <= (_MAX_INDENT if inside.strip() else 0)


# --- Native calls ---


def _native_name(name: str) -> str:
    if not NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise SkillSyntaxError(f"{excerpt(name)} is not a skill name: {NAME_RULE}.")
    return name


def _native_arguments(call: RequestedCall) -> dict[str, Any]:
    try:
        given = _DECODER.decode(call.arguments)
        if not isinstance(given, dict):
            raise LiteralError(0, "they are not an object; put them in {}, or send {} if there are none")
        _check(given, depth=0)
    except json.JSONDecodeError as error:
        problem = f"they are not JSON, {error.msg} at character {error.pos}; write one JSON object"
        position: int | None = error.pos
    except RecursionError:
        problem, position = TOO_DEEP, None
    except LiteralError as error:
        problem, position = str(error), error.position
    else:
        return given
    raise SkillSyntaxError(f"The arguments of {call.name} cannot be read: {problem}.", position)


def _check(value: object, depth: int) -> None:
    """Refuse strings that a database cannot store, and values that are nested too deep."""
    if isinstance(value, str):
        if bad := UNSTORABLE.search(value):
            raise LiteralError(None, unstorable_error(bad))
    elif isinstance(value, dict | list):
        if depth > MAX_DEPTH:
            raise LiteralError(None, TOO_DEEP)
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check(item, depth + 1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise LiteralError(None, f"the key {excerpt(key)} occurs twice in an object; give it once")
        entries[key] = value
    return entries


def _number(digits: str) -> int | float:
    number = number_of(digits.removeprefix("-"), None)
    return -number if digits.startswith("-") else number


def _constant(word: str) -> None:
    raise LiteralError(None, f"{word} is not JSON; send a number or null")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)
