"""Readings of an encoded text: percent escapes, JSON and Python escapes, HTML entities.

Owns the decoding and the way back: a span found in the decoded reading is mapped to the characters that spell it in the
original. Must not change the text; readings serve to look only.
"""

import re
from bisect import bisect_right

from audit.redaction.spans import Span

_ESCAPE = re.compile(
    r"%[0-9A-Fa-f]{2}|\\{1,8}+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/nrt])"
    r"|&(?:quot|apos|amp|lt|gt|\#\d{1,3}|\#x[0-9A-Fa-f]{1,4});"
)
_NAMED = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
READINGS = 3
_FAR = 512


def _decoded(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[0] == "&":
        name = escape[1:-1]
        if name[0] != "#":
            return _NAMED[name]
        return chr(int(f"0{name[1:]}", 16) if name[1] == "x" else int(name[1:]))
    body = escape.lstrip("\\")
    return chr(int(body[1:], 16)) if len(body) > 1 else _LETTERS.get(body, body)


class Reading:
    """One decoded reading and the offsets of its escapes; lines far from any escape are left out of it."""

    def __init__(self, text: str) -> None:
        self._parts: list[str] = []
        self._here: list[int] = [0]
        self._there: list[int] = [0]
        self._length = 0
        last = 0
        for found in _ESCAPE.finditer(text):
            if found.start() - last > _FAR:
                last = self._skip_lines(text, last, found.start())
            self._append(text[last : found.start()], found.start())
            self._append(_decoded(found[0]), found.end())
            last = found.end()
        self._parts.append(text[last:])
        self.text = "".join(self._parts)
        self.escapes = len(self._here) > 1

    def _append(self, part: str, resume: int) -> None:
        """Add a part; what comes next stands at `resume` in the original."""
        self._parts.append(part)
        self._length += len(part)
        self._here.append(self._length)
        self._there.append(resume)

    def _skip_lines(self, text: str, start: int, end: int) -> int:
        """Finish the line at `start`, leave out those up to the line of `end`, and say where that one begins."""
        first = text.find("\n", start, end) + 1
        resume = text.rfind("\n", start, end) + 1
        if not first:
            return start
        self._append(text[start:first], resume)
        return resume

    def _back(self, offset: int) -> int:
        at = bisect_right(self._here, offset) - 1
        return self._there[at] + offset - self._here[at]

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
