"""Finds credentials by the place they stand in: headers, cookies, URLs, webhook paths, commands, registry files.

Owns the reading of the table in `anchors`. Expressions run on lower-cased text, where a search keeps its literal
prefix; values are judged as they are spelled. Must not judge assignments.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from audit.redaction.anchors import ANCHORS, QUOTE, TESTS, is_real
from audit.redaction.spans import Span, most_candidates
from audit.redaction.values import looks_mixed
from audit.redaction.words import COOKIE_ATTRIBUTES

# How far before a flag its command is looked for.
_COMMAND_LENGTH = 400


@dataclass(frozen=True)
class Place:
    """An anchor and what follows it; a flag counts only after one of the commands in `within`.

    Most anchors never occur in a process: an expression is compiled when its anchor is first met.
    """

    kind: str
    anchor: str
    written: str
    test: Callable[[str], bool]
    within: tuple[str, ...]

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.written)


def _places() -> tuple[Place, ...]:
    places = []
    for kind, anchors, rest, test, within in ANCHORS:
        for anchor in anchors.split("|"):
            word = rf"(?<![a-z]{re.escape(anchor)})" if anchor[0].isalpha() else ""
            written = re.escape(anchor) + word + rest
            places.append(Place(kind, anchor, written, TESTS[test], tuple(within.split("|")) if within else ()))
    return tuple(places)


PLACES = _places()
# Parts that many anchors share: one look for the part stands for a look for each of them.
_SHARED = ("://", "sig", "hook", " -", "key=", "code=", "auth", ".com/", "")


def _by_shared_part() -> dict[str, list[Place]]:
    groups: dict[str, list[Place]] = {}
    for place in PLACES:
        groups.setdefault(next(part for part in _SHARED if part in place.anchor), []).append(place)
    return groups


_GROUPS = tuple(_by_shared_part().items())
_COOKIE = re.compile(rf"cookie(?:{QUOTE})?\s{{0,4}}(?:[:=,]|=>)\s{{0,4}}(?:[\[(]\s{{0,4}})?(?:{QUOTE})?")
_CRUMB = re.compile(
    r"[ \t]*([\w.$%!#~:-]{1,80})=\"?([^;\s\"'\\,]*+)\"?(?:;|,(?=\s{0,4}[\w.-]{1,80}=)|(?=[\s\"'\\,]|\Z))", re.ASCII
)
_SESSION_LEAST = 4
_SESSION_NAME = re.compile(r"sess|sid|auth|token|login|secret|jwt|csrf|xsrf|remember|sso|identity|ticket")


def _cookie_spans(text: str, low: str) -> Iterator[Span]:
    """The values of a cookie header that could carry a session."""
    at = 0
    for header in _COOKIE.finditer(low):
        if header.start() < at:
            continue
        at = header.end()
        while crumb := _CRUMB.match(text, at):
            name, value = crumb[1].lower(), crumb[2]
            named = len(value) >= _SESSION_LEAST and _SESSION_NAME.search(name)
            if name not in COOKIE_ATTRIBUTES and is_real(value) and (named or looks_mixed(value, 10)):
                yield Span(crumb.start(2), crumb.end(2), "cookie")
            at = crumb.end()


def _after_command(place: Place, low: str, start: int) -> bool:
    if not place.within:
        return True
    line = low.rfind("\n", 0, start) + 1 if start < _COMMAND_LENGTH else max(start - _COMMAND_LENGTH, 0)
    before = low[line:start].rpartition("\n")[2]
    return any(word in before for word in place.within)


def _places_for(low: str) -> Iterator[Place]:
    """The places whose anchor, and command if they have one, occur."""
    for part, places in _GROUPS:
        if part in low:
            for place in places:
                if place.anchor in low and (not place.within or any(word in low for word in place.within)):
                    yield place


def place_spans(text: str, low: str) -> Iterator[Span]:
    """Values that stand where credentials stand."""
    left = most_candidates(text)
    for place in _places_for(low):
        for found in place.expression.finditer(low):
            start, end = found.span("value")
            if place.test(text[start:end]) and _after_command(place, low, found.start()):
                yield Span(start, end, place.kind)
            left -= 1
            if left < 0:
                yield Span(0, len(text), "text")
                return
    if "cookie" in low:
        yield from _cookie_spans(text, low)
