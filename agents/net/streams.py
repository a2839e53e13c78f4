"""Long-lived streams: a reader for server-sent events, and WebSockets through the URL gate.

The event reader is our own because known decoders buffer a line until it ends, however long it is. The reader drops an
event that is too large while it arrives, reports it in its place, and reads on with the next one.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from agents.net.client import AsyncSafeClient, translated_errors
from agents.net.transport import Deadline
from agents.net.transport import connect as connect_socket
from agents.net.urls import CheckedUrl, FetchFailed

# --- Server-sent events, as the WHATWG standard defines them ---

MAX_EVENT_BYTES: Final = 256 * 1024
MAX_ID_CHARS: Final = 512
CONTENT_TYPE: Final = "text/event-stream"
_BREAK: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ServerSentEvent:
    """One event. `data` is None for one that was larger than allowed: its data are lost.

    `id` is where to resume after it; empty when the server has sent none. `named`: the event carries the id itself, and
    does not inherit it from an earlier event.
    """

    data: str | None
    id: str = ""
    kind: str = "message"
    named: bool = False


class EventReader:
    """Turns bytes into events. Holds one event at most, and no more than `max_bytes` of it."""

    def __init__(self, last_id: str = "", *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._last_id = last_id
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._line_is_lost = False
        self._after_return = False  # the last piece ended with CR: an LF that follows belongs to it
        self._at_start = True
        self._begin()

    def _begin(self) -> None:
        self._data: list[str] = []
        self._kept = 0
        self._kind = ""
        self._named = False
        self._oversize = False

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        start = 0
        for found in _BREAK.finditer(piece):
            self._take(piece[start : found.start()])
            start = found.end()
            self._after_return = found[0] == b"\r" and start == len(piece)
            event = self._end_of_line()
            if event is not None:
                yield event
        self._take(piece[start:])

    def _take(self, part: bytes) -> None:
        """Append to the current line. When the event gets too large, drop all of it."""
        if self._kept + len(self._line) + len(part) > self._max_bytes:
            self._oversize = self._line_is_lost = True
            self._line.clear()
            self._data.clear()
            self._kept = 0
        if not self._line_is_lost:
            self._line += part

    def _end_of_line(self) -> ServerSentEvent | None:
        line = bytes(self._line)
        self._line.clear()
        if self._line_is_lost:
            self._line_is_lost = self._at_start = False
            return None
        if self._at_start:
            line = line.removeprefix(_BOM)
            self._at_start = False
        if line:
            self._field(line)
            return None
        event = self._event()
        self._begin()
        return event

    def _field(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data" and not self._oversize:
            self._data.append(value)
            self._kept += len(line)
        elif name == "event":
            self._kind = value[:MAX_ID_CHARS]
        elif name == "id" and _can_be_header(value):
            self._last_id = value
            self._named = bool(value)

    def _event(self) -> ServerSentEvent | None:
        if not self._data and not self._oversize:
            return None
        data = None if self._oversize else "\n".join(self._data)
        return ServerSentEvent(data, self._last_id, self._kind or "message", self._named)


def _can_be_header(value: str) -> bool:
    """True when a request can send the id back as Last-Event-ID."""
    return len(value) <= MAX_ID_CHARS and value.isascii() and value.isprintable()


# --- WebSockets ---
#
# The socket is connected here, to a checked address, and handed to the library. With a socket given, the library
# connects to nothing, follows no redirect and uses no proxy.

SCHEMES: Final = ("ws", "wss")
MAX_MESSAGE_BYTES: Final = 256 * 1024
OPEN_SECONDS: Final = 10.0
PING_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 1.0
MAX_UNREAD: Final = 4  # messages that are buffered; then the peer has to wait
TOO_BIG: Final = 1009


class AsyncSafeSocket:
    """An open WebSocket. It is closed by the `async with` block that opened it."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> str | bytes:
        """Wait for the next message. Raises FetchFailed when the connection has ended."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as closed:
            too_big = closed.sent is not None and closed.sent.code == TOO_BIG
            raise FetchFailed("too_large" if too_big else "connection") from None


class StreamingClient(AsyncSafeClient):
    """An AsyncSafeClient that also opens WebSockets."""

    @asynccontextmanager
    async def websocket(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = MAX_MESSAGE_BYTES,
        open_seconds: float = OPEN_SECONDS,
    ) -> AsyncIterator[AsyncSafeSocket]:
        deadline = Deadline(open_seconds)
        checked = await self.run_check(partial(self.check, url, deadline, SCHEMES), deadline)
        connection = await self._handshake(checked, deadline, max_bytes, headers or {})
        try:
            yield AsyncSafeSocket(connection)
        finally:
            try:
                await connection.close()
            finally:
                connection.transport.abort()  # if this task was cancelled while it closed

    async def _handshake(
        self, checked: CheckedUrl, deadline: Deadline, max_bytes: int, headers: Mapping[str, str]
    ) -> ClientConnection:
        connected = await connect_socket(checked, deadline, self.reroute)
        secure: dict[str, Any] = {}
        if checked.scheme == "wss":
            secure = {"ssl": self.tls_context(), "server_hostname": checked.host}
        try:
            # A redirect is a ValueError when a socket was given.
            with translated_errors(InvalidHandshake, ValueError):
                return await connect(
                    checked.url,
                    sock=connected,
                    additional_headers=headers,
                    compression=None,  # a small compressed message can be large: sizes count as they are sent
                    user_agent_header="lqops",
                    open_timeout=deadline.left(),
                    ping_interval=PING_SECONDS,
                    ping_timeout=PING_SECONDS,
                    close_timeout=CLOSE_SECONDS,
                    max_size=max_bytes,
                    max_queue=MAX_UNREAD,
                    **secure,
                )
        except BaseException:
            connected.close()
            raise
