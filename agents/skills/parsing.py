"""Reads the calls that a model's reply asks for, from tags in its text or from the provider's own form.

All or nothing: one call that cannot be read makes an error of the whole reply. Fenced code is quotation and asks for
nothing. Whether a skill exists, and whether it may run, is decided elsewhere. Time is linear in the length of the text.
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
    Misread,
    Reader,
    number_of,
    shown,
    unstorable,
)
from agents.types import RequestedCall

# Tags to the letter, unless a backslash escapes them; and fences as CommonMark has them, at the beginning of a line, a
# quotation or an entry of a list: in backticks, no backtick follows on the line.
_MARK: Final = re.compile(
    r"(?<!\\)<(?P<tag>skill|parallel|/parallel)>"
    r"|(?<![^\r\n])(?P<before>(?:[ \t>]|(?:[-+*]|\d{1,9}[.)])(?=[ \t]))*+)(?P<fence>`{3,}+(?![^`\r\n]*`)|~{3,}+)"
)
_CLOSING_FENCE: Final = re.compile(r"(?<![^\r\n])(?P<before>[ \t>]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?![^\r\n])")
_DEEPEST: Final = 3  # blanks before a fence; more of them are code, or the inside of a list


class SkillSyntaxError(ValueError):
    """A call cannot be read, so nothing of its reply may run. `position` is the character it is about, from 0."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True)
class SkillCall:
    """A wish of the model: a skill and its arguments. Calls of one `parallel_group` may run side by side."""

    name: str
    arguments: dict[str, Any]
    parallel_group: int | None = None
    id: str = ""


def parse_skill_calls(text: str) -> list[SkillCall]:
    """The calls in `<skill>name(argument=literal)</skill>` tags, in order; `<parallel>` makes a group of its calls."""
    try:
        return _Reply(text).read()
    except Misread as error:
        place = error.place or 0
        line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
        raise SkillSyntaxError(f"Line {line}, column {column}: {error}.", place) from None


def calls_from_native(calls: Sequence[RequestedCall]) -> list[SkillCall]:
    """The calls that the provider handed over apart from the text: the same values, the same rules."""
    return [SkillCall(_native_name(call.name), _native_arguments(call), id=call.id) for call in calls]


# --- Tags ---


class _Reply:
    """One pass over a text. Prose is passed over; what a call consists of is read by the reader of literals."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._calls: list[SkillCall] = []
        self._groups = 0  # blocks that held a call and are closed
        self._opened: int | None = None  # where the open block begins
        self._before = 0  # calls that stand before the open block

    def read(self) -> list[SkillCall]:
        place = 0
        while mark := _MARK.search(self._text, place):
            if mark["fence"]:
                place = self._behind_fence(mark)
            elif mark["tag"] == "skill":
                place = self._call(mark.end())
            else:
                self._block(mark)
                place = mark.end()
        if self._opened is not None and self._calls:
            raise Misread(self._opened, "<parallel> is not closed; write </parallel> behind its last </skill>")
        return self._calls

    @property
    def _holds_calls(self) -> bool:
        return len(self._calls) > self._before

    def _behind_fence(self, opening: re.Match[str]) -> int:
        """A line of at least as many of the same marks closes it, in the same place; else it runs to the end."""
        for line in _CLOSING_FENCE.finditer(self._text, opening.end()):
            if line["fence"].startswith(opening["fence"]) and _is_beside(opening["before"], line["before"]):
                return line.end()
        return len(self._text)

    def _call(self, place: int) -> int:
        reader = Reader(self._text, place)
        reader.skip_blank()
        name = reader.name("a skill such as search(limit=5)")
        reader.skip_blank()
        reader.expect("(", "( and the arguments", NAME_RULE)
        arguments = reader.arguments()
        reader.skip_blank()
        reader.expect("</skill>", "</skill> behind the closing bracket")
        self._calls.append(SkillCall(name, arguments, None if self._opened is None else self._groups))
        return reader.place

    def _block(self, tag: re.Match[str]) -> None:
        if tag["tag"] == "parallel":
            if self._opened is not None:
                raise Misread(tag.start(), "<parallel> stands in another; close that one with </parallel> first")
            self._opened, self._before = tag.start(), len(self._calls)
        elif self._opened is not None:
            if self._holds_calls:
                self._groups += 1
            self._opened = None
        elif self._calls:
            raise Misread(
                tag.start(), "</parallel> closes nothing; write <parallel> before the first <skill> of the block"
            )


def _is_beside(opened: str, closed: str) -> bool:
    """Whether two fences stand in the same quotation and list, by what is before them. In doubt they do not: what is
    taken for quotation does nothing."""
    if opened.count(">") != closed.count(">"):
        return False
    most = _DEEPEST + (">" in opened)  # a quotation mark may have a blank of its own
    inside = opened.rpartition(">")[2].expandtabs(4)
    if len(inside) <= most and opened.strip(" \t>") == "":
        return len(closed.rpartition(">")[2].expandtabs(4)) <= most
    deeper = len(closed.expandtabs(4)) - len(opened.expandtabs(4))
    return 0 <= deeper <= (_DEEPEST if inside.strip() else 0)


# --- The provider's own form ---


def _native_name(name: str) -> str:
    if not NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise SkillSyntaxError(f"{shown(name)} is no name of a skill: {NAME_RULE}.")
    return name


def _native_arguments(call: RequestedCall) -> dict[str, Any]:
    try:
        given = _DECODER.decode(call.arguments)
        if not isinstance(given, dict):
            raise Misread(0, "they are no object; write {} around them, or {} alone if there are none")
        _check(given, depth=0)
    except json.JSONDecodeError as error:
        wrong, place = f"they are not JSON, {error.msg} at character {error.pos}; write one JSON object", error.pos
    except RecursionError:
        wrong, place = TOO_DEEP, None
    except Misread as error:
        wrong, place = str(error), error.place
    else:
        return given
    raise SkillSyntaxError(f"The arguments of {call.name} cannot be read: {wrong}.", place)


def _check(value: object, depth: int) -> None:
    """Refuses what JSON can say and a database cannot keep, and what is nested too deep."""
    if isinstance(value, str):
        if bad := UNSTORABLE.search(value):
            raise Misread(None, unstorable(bad))
    elif isinstance(value, dict | list):
        if depth > MAX_DEPTH:
            raise Misread(None, TOO_DEEP)
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check(item, depth + 1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, value in pairs:
        if key in entries:
            raise Misread(None, f"the key {shown(key)} stands twice in an object; give it once")
        entries[key] = value
    return entries


def _number(digits: str) -> int | float:
    number = number_of(digits.removeprefix("-"), None)
    return -number if digits.startswith("-") else number


def _constant(word: str) -> None:
    raise Misread(None, f"{word} is not JSON; send a number, or null")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)
