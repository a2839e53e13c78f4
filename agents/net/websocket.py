"""WebSockets to addresses that somebody else chose: the same gate as for every fetch, then one open connection.

The socket is dialled here, to an address that was checked, and handed over; the library that speaks the protocol opens
nothing, follows no redirect and asks no proxy.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ssl import SSLError
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from agents.net.aio import AsyncSafeClient
from agents.net.errors import FetchFailed
from agents.net.limits import Deadline
from agents.net.resolving import LOOKUP_SECONDS
from agents.net.transport import Route
from agents.net.urls import CheckedUrl, check_url

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
