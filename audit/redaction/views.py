"""Readings of an encoded text: percent escapes, JSON and Python escapes, HTML entities.

Owns the decoding and the way back: a span found in the decoded reading is mapped to the characters that spell it in the
original. Must not change the text; readings serve to look only.
"""

import re
from bisect import bisect_right

from audit.redaction.spans import Span

_ESCAPE = re.compile(
    r"(?:%[0-9A-Fa-f]{2})++|(?:\\u[0-9A-Fa-f]{4})++|\\{1,8}+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/nrt])"
    r"|&(?:quot|apos|amp|lt|gt|\#\d{1,3}|\#x[0-9A-Fa-f]{1,4});"
)
_NAMED = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
READINGS = 3
# Lines this far from any escape are left out of a reading.
_FAR = 512
_UNIT = len("\\u0000")


def _entity(name: str) -> str:
    if name[0] != "#":
        return _NAMED[name]
    return chr(int(f"0{name[1:]}", 16) if name[1] == "x" else int(name[1:]))


def _decoded(escape: str, start: int) -> tuple[str, int, int]:
    """What a run of like escapes spells, where it stands, and how long each of them is."""
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode("latin-1"), start, 3
    if escape[0] == "&":
        return _entity(escape[1:-1]), start, len(escape)
    if escape[1] == "u":
        return "".join(chr(int(unit, 16)) for unit in escape[2:].split("\\u")), start, _UNIT
    body = escape.lstrip("\\")
    return chr(int(body[1:], 16)) if len(body) > 1 else _LETTERS.get(body, body), start, len(escape)


class Reading:
    """One decoded reading, and for each of its pieces where it stands in the original."""

    def __init__(self, text: str) -> None:
        self._parts: list[str] = []
        # A piece begins at so many characters here and there, and each character here stands for so many there.
        self._here: list[int] = []
        self._there: list[tuple[int, int]] = []
        self._length = last = 0
        for found in _ESCAPE.finditer(text):
            start, end = found.span()
            if start - last > _FAR:
                last = self._skip_lines(text, last, start)
            if start > last:
                self._append(text[last:start], last, 1)
            self._append(*_decoded(found[0], start))
            last = end
        self.escapes = bool(self._parts)
        self._append(text[last:], last, 1)
        self.text = "".join(self._parts)

    def _append(self, part: str, start: int, step: int) -> None:
        self._parts.append(part)
        self._here.append(self._length)
        self._there.append((start, step))
        self._length += len(part)

    def _skip_lines(self, text: str, start: int, end: int) -> int:
        """Finish the line at `start`, leave out those up to the line of `end`, and say where that one begins."""
        first = text.find("\n", start, end) + 1
        if not first:
            return start
        self._append(text[start:first], start, 1)
        return text.rfind("\n", start, end) + 1

    def _back(self, offset: int) -> int:
        at = bisect_right(self._here, offset) - 1
        start, step = self._there[at]
        return start + (offset - self._here[at]) * step

    def original(self, span: Span) -> Span:
        """The same span in the text that was decoded."""
        return Span(self._back(span.start), self._back(span.end), span.kind)


def readings(text: str) -> list[Reading]:
    """Successive decodings of `text`, at most READINGS, until nothing is left to decode."""
    result: list[Reading] = []
    while len(result) < READINGS and ("%" in text or "\\" in text or "&" in text):
        reading = Reading(text)
        if not reading.escapes:
            break
        result.append(reading)
        text = reading.text
    return result
