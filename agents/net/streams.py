"""Reads a stream of server-sent events, piece by piece, as the WHATWG standard says; opens nothing.

Written here because the known decoders keep a line whole until it ends, however long it is. What is larger than
allowed is thrown away as it comes and reported in its place; the events after it are read as if it had not been.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_EVENT_BYTES: Final = 256 * 1024
MAX_ID_CHARS: Final = 512
CONTENT_TYPE: Final = "text/event-stream"
_BREAK: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ServerEvent:
    """One event. `id` is where to go on after it; empty when the source has named no such place.

    `named`: the id is its own, and not that of an event before it.
    """

    data: str
    id: str = ""
    kind: str = "message"
    named: bool = False


@dataclass(frozen=True)
class TooLarge:
    """An event was larger than allowed and its data are gone. `id` is where to go on after it."""

    limit: int
    id: str = ""
    named: bool = False


class EventReader:
    """Feed it what arrives. It holds one event at most, and no more than `max_bytes` of it."""

    def __init__(self, last_id: str = "", *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._last_id = last_id
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._line_is_lost = False
        self._after_return = False  # a line ended with CR as the last byte of a piece: LF would belong to it
        self._at_start = True
        self._begin()

    def _begin(self) -> None:
        self._data: list[str] = []
        self._kept = 0
        self._kind = ""
        self._named = False
        self._oversize = False

    def feed(self, piece: bytes) -> Iterator[ServerEvent | TooLarge]:
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        start = 0
        for found in _BREAK.finditer(piece):
            self._take(piece[start : found.start()])
            start = found.end()
            self._after_return = found[0] == b"\r" and start == len(piece)
            told = self._end_of_line()
            if told is not None:
                yield told
        self._take(piece[start:])

    def _take(self, part: bytes) -> None:
        """More of the line at hand; of one that is too long nothing is kept, nor of what came before it."""
        if self._kept + len(self._line) + len(part) > self._max_bytes:
            self._oversize = self._line_is_lost = True
            self._line.clear()
            self._data.clear()
            self._kept = 0
        if not self._line_is_lost:
            self._line += part

    def _end_of_line(self) -> ServerEvent | TooLarge | None:
        line, self._line = bytes(self._line), bytearray()
        if self._line_is_lost:
            self._line_is_lost = self._at_start = False
            return None
        if self._at_start:
            line, self._at_start = line.removeprefix(_BOM), False
        if line:
            self._field(line)
            return None
        told = self._told()
        self._begin()
        return told

    def _field(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data" and not self._oversize:
            self._data.append(value)
            self._kept += len(line)
        elif name == "event":
            self._kind = value[:MAX_ID_CHARS]
        elif name == "id" and _is_place(value):
            self._last_id, self._named = value, bool(value)

    def _told(self) -> ServerEvent | TooLarge | None:
        if self._oversize:
            return TooLarge(self._max_bytes, self._last_id, self._named)
        if not self._data:
            return None
        return ServerEvent("\n".join(self._data), self._last_id, self._kind or "message", self._named)


def _is_place(value: str) -> bool:
    """Whether a request can name it again in a header."""
    return len(value) <= MAX_ID_CHARS and value.isascii() and value.isprintable()
