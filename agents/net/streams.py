"""Reads a stream of server-sent events, piece by piece, as the WHATWG standard says; opens nothing.

Written here because the known decoders keep a line whole until it ends, however long it is. What is larger than
allowed is thrown away as it comes and reported in its place; the events after it are read as if it had not been.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from ssl import SSLError
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from agents.net.client import AsyncSafeClient
from agents.net.transport import Deadline, Route
from agents.net.urls import LOOKUP_SECONDS, CheckedUrl, FetchFailed, check_url

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


# WebSockets to addresses that somebody else chose: the same gate as for every fetch, then one open connection.
#
# The socket is dialled here, to an address that was checked, and handed over; the library that speaks the protocol
# opens nothing, follows no redirect and asks no proxy.


SCHEMES: Final = ("ws", "wss")
MAX_MESSAGE_BYTES: Final = 256 * 1024
OPEN_SECONDS: Final = 10.0
PING_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 1.0
MOST_WAITING: Final = 4  # messages that have come and nobody has asked for; then the peer has to wait
TOO_BIG: Final = 1009


class AsyncSafeSocket:
    """Messages as they come; it ends with the `async with` block that opened it."""

    def __init__(self, connection: ClientConnection, url: str) -> None:
        self._connection = connection
        self.url = url

    async def receive(self) -> str | bytes:
        """The next message. Raises FetchFailed when there will be none, for whatever reason."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as closed:
            too_big = closed.sent is not None and closed.sent.code == TOO_BIG
            raise FetchFailed("too_large" if too_big else "connection") from None


class StreamingClient(AsyncSafeClient):
    """An AsyncSafeClient that opens WebSockets as well."""

    @asynccontextmanager
    async def websocket(
        self, url: str, *, max_bytes: int = MAX_MESSAGE_BYTES, open_seconds: float = OPEN_SECONDS
    ) -> AsyncIterator[AsyncSafeSocket]:
        deadline = Deadline(open_seconds)
        checked = await self._checked(url, deadline)
        connection = await self._shaken(checked, deadline, max_bytes)
        try:
            yield AsyncSafeSocket(connection, checked.url)
        finally:
            await connection.close()

    async def _checked(self, url: str, deadline: Deadline) -> CheckedUrl:
        def check() -> CheckedUrl:
            return check_url(
                url,
                schemes=SCHEMES,
                resolve=self._gate.resolve,
                allow_hosts=self._gate.allow_hosts,
                allow_networks=self._gate.allow_networks,
                lookup_seconds=min(LOOKUP_SECONDS, deadline.left()),
            )

        try:
            async with asyncio.timeout(deadline.left()):
                return await asyncio.get_running_loop().run_in_executor(self._checks, check)
        except TimeoutError:
            raise FetchFailed("deadline") from None

    async def _shaken(self, checked: CheckedUrl, deadline: Deadline, max_bytes: int) -> ClientConnection:
        """The handshake over a socket of ours. With a socket given, the library neither redirects nor uses a proxy."""
        dialled = await _dialled(Route(checked, deadline, self._gate.reroute))
        secure: dict[str, Any] = {}
        if checked.scheme == "wss":
            secure = {"ssl": self._gate.tls_context(), "server_hostname": checked.host}
        try:
            with _failures():
                return await connect(
                    checked.url,
                    sock=dialled,
                    compression=None,  # what is packed small can be large; a message counts as it is sent
                    user_agent_header="lqops",
                    open_timeout=deadline.left(),
                    ping_interval=PING_SECONDS,
                    ping_timeout=PING_SECONDS,
                    close_timeout=CLOSE_SECONDS,
                    max_size=max_bytes,
                    max_queue=MOST_WAITING,
                    **secure,
                )
        except BaseException:
            dialled.close()
            raise


async def _dialled(route: Route) -> socket.socket:
    for address, port, seconds in route.places():
        dialled = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        dialled.settimeout(0)  # the event loop waits, the socket does not
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_connect(dialled, (address, port))
        except OSError:  # a time that is up is one too
            dialled.close()
        except BaseException:
            dialled.close()
            raise
        else:
            return dialled
    route.deadline.left()
    raise FetchFailed("connect")


@contextmanager
def _failures() -> Iterator[None]:
    """Errors of the handshake, in our words: theirs may quote the request or the answer."""
    try:
        yield
    except SSLError:
        raise FetchFailed("tls") from None
    except TimeoutError:
        raise FetchFailed("deadline") from None
    except (InvalidHandshake, ValueError):  # a redirect is a ValueError: with a socket given, none is followed
        raise FetchFailed("protocol") from None
    except (OSError, EOFError):
        raise FetchFailed("connection") from None
