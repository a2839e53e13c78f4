"""Connections to checked addresses: pinned, used for one request, bounded in time and size.

The host name of the URL goes into the Host header and the certificate check. It is never used to connect: that would
ask DNS a second time.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from ssl import SSLContext, SSLError
from typing import Any

import httpcore

from agents.net.urls import CheckedUrl, FetchFailed

MEBIBYTE = 1024 * 1024
MAX_ATTEMPTS = 4
MAX_HEAD_BYTES = 96 * 1024  # everything before the body, interim responses included
HEAD_STEP = 8 * 1024  # bytes of the body that may be read together with the head

# Sends a checked address elsewhere. Tests only: a server on loopback stands in for a public address.
Reroute = Callable[[str, int], tuple[str, int]]


@dataclass(frozen=True)
class Limits:
    """Limits of one fetch."""

    deadline: float = 30.0  # seconds for lookup, connection, TLS, headers, body and all redirects together
    max_bytes: int = 5 * MEBIBYTE  # of the body, as sent and as decompressed
    max_ratio: int = 100  # decompressed to sent; checked above one mebibyte
    max_redirects: int = 5
    max_headers: int = 200
    max_header_bytes: int = 64 * 1024


class Deadline:
    """A point in time. Every wait of a fetch is cut to what is left until then."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise FetchFailed("deadline")
        return seconds


async def connect(checked: CheckedUrl, deadline: Deadline, reroute: Reroute | None) -> socket.socket:
    """Connect to the first checked address that can be reached."""
    addresses = checked.addresses[:MAX_ATTEMPTS]
    for tried, address in enumerate(addresses):
        place = reroute(address, checked.port) if reroute else (address, checked.port)
        connected = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
        connected.settimeout(0)  # the event loop waits, the socket does not
        try:
            async with asyncio.timeout(deadline.left() / (len(addresses) - tried)):
                await asyncio.get_running_loop().sock_connect(connected, place)
        except BaseException as error:
            connected.close()
            if not isinstance(error, OSError):  # TimeoutError is one: then the next address is tried
                raise
        else:
            return connected
    deadline.left()
    raise FetchFailed("connect")


class _Stream(httpcore.AsyncNetworkStream):
    """A connection as httpcore needs it. Whoever uses it limits the time; little may come before the body."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._head_left = MAX_HEAD_BYTES
        self.head_is_read = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - its interface
        try:
            data = await self._reader.read(max_bytes if self.head_is_read else min(max_bytes, HEAD_STEP))
        except OSError:
            raise httpcore.ReadError from None
        if not self.head_is_read:
            self._head_left -= len(data)
            if self._head_left < 0:
                raise FetchFailed("headers")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its interface
        self._writer.write(buffer)
        try:
            await self._writer.drain()
        except OSError:
            raise httpcore.WriteError from None

    async def aclose(self) -> None:
        self._writer.transport.abort()
        await asyncio.sleep(0)  # the loop closes the socket


async def send(
    request: httpcore.Request, checked: CheckedUrl, connected: socket.socket, tls: SSLContext, opened: AsyncExitStack
) -> httpcore.Response:
    """Send a request on a connection of its own: hosts that share an address would skip a certificate check.

    `opened` closes the connection. httpcore would leave it open if the task were cancelled while it closes.
    """
    secure: dict[str, Any] = {}
    if checked.scheme == "https":
        tls.set_alpn_protocols(["http/1.1"])
        secure = {"ssl": tls, "server_hostname": checked.host}
    try:
        stream = _Stream(*await asyncio.open_connection(sock=connected, **secure))
    except BaseException as error:
        connected.close()
        if isinstance(error, OSError):
            raise FetchFailed("tls" if isinstance(error, SSLError) else "connect") from None
        raise
    opened.push_async_callback(stream.aclose)
    response = await httpcore.AsyncHTTP11Connection(request.url.origin, stream).handle_async_request(request)
    stream.head_is_read = True
    return response
