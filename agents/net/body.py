"""Unpacks a body piece by piece and stops at the limits: never more than one small piece beyond them is in memory.

Knows nothing of connections: a client feeds it what arrives.
"""

import zlib
from collections.abc import Iterator

from agents.net.errors import FetchFailed
from agents.net.limits import MEBIBYTE, Deadline, Limits

ACCEPTED = "gzip, deflate"
PIECE = 64 * 1024
MAX_LAYERS = 2
MAX_MEMBERS = 1000  # parts of one gzip stream; each costs work although it may hold nothing
GZIP, ZLIB, RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
GZIP_START = b"\x1f"
ZLIB_METHOD = 8  # the low half of the first byte; a bare deflate stream never starts with it


class Inflate:
    """One layer of gzip or deflate."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._gzip = coding != "deflate"
        self._max_bytes = max_bytes
        self._engine = zlib.decompressobj(GZIP) if self._gzip else None
        self._size = 0
        self._members = 1

    @property
    def complete(self) -> bool:
        return self._engine is not None and self._engine.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._engine is None:  # servers send "deflate" with and without the header that the standard asks for
            self._engine = zlib.decompressobj(ZLIB if data[0] & 15 == ZLIB_METHOD else RAW)
        more = False
        while data or more:
            if self._engine.eof:
                if not self._gzip or not data.startswith(GZIP_START):
                    return  # padding after the end is no content
                self._engine = self._next_member()
            try:
                piece = self._engine.decompress(data, PIECE)
            except zlib.error:
                raise FetchFailed("encoding") from None
            self._size += len(piece)
            if self._size > self._max_bytes:
                raise FetchFailed("too_large")
            if piece:
                yield piece
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            more = len(piece) == PIECE  # the engine may hold back output although it took all input

    def _next_member(self) -> "zlib._Decompress":
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise FetchFailed("encoding")
        return zlib.decompressobj(GZIP)


class Body:
    """The body of one answer: counts what was sent and what it unpacks to."""

    def __init__(self, content_encoding: str, limits: Limits, deadline: Deadline) -> None:
        self._content_encoding = content_encoding
        self._layers: list[Inflate] | None = None
        self._limits = limits
        self._deadline = deadline
        self._sent = 0
        self._unpacked = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._deadline.left()
        if not data:
            return
        self._sent += len(data)
        if self._sent > self._limits.max_bytes:
            raise FetchFailed("too_large")
        if self._layers is None:  # only now: the answer to HEAD names an encoding and has no body
            self._layers = self._named_layers()
        for piece in _through(self._layers, data):
            self._unpacked += len(piece)
            if self._unpacked > max(MEBIBYTE, self._sent * self._limits.max_ratio):
                raise FetchFailed("ratio")
            yield piece

    def finish(self) -> None:
        if not all(layer.complete for layer in self._layers or []):
            raise FetchFailed("encoding")

    def _named_layers(self) -> list[Inflate]:
        named = [coding.strip().lower() for coding in self._content_encoding.split(",")]
        codings = [coding for coding in named if coding not in {"", "identity"}]
        if len(codings) > MAX_LAYERS or not set(codings) <= {"gzip", "x-gzip", "deflate"}:
            raise FetchFailed("encoding")
        return [Inflate(coding, self._limits.max_bytes) for coding in reversed(codings)]


def _through(layers: list[Inflate], data: bytes) -> Iterator[bytes]:
    if not layers:
        yield data
        return
    for piece in layers[0].feed(data):
        yield from _through(layers[1:], piece)
