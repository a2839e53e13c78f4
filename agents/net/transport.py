"""Connections to checked addresses: pinned, used for one request, bounded in time and size.

The host name of the URL goes into the Host header and the certificate check. It is never used to connect: that would
ask DNS a second time.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

import httpcore
import httpx

from agents.net.urls import CheckedUrl, FetchFailed

MEBIBYTE = 1024 * 1024
MAX_ATTEMPTS = 4
MAX_HEAD_BYTES = 96 * 1024  # everything before the body, interim responses included
HEAD_STEP = 8 * 1024  # bytes of the body that may be read together with the head
UNREACHABLE = (httpcore.ConnectError, httpcore.ConnectTimeout)

# Sends a checked address elsewhere. Tests only: a server on loopback stands in for a public address.
Reroute = Callable[[str, int], tuple[str, int]]


@dataclass(frozen=True)
class Limits:
    """What one fetch may use."""

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


class Route:
    """The way to one checked URL: addresses to try, time for each, and bytes allowed before the body."""

    def __init__(self, checked: CheckedUrl, deadline: Deadline, reroute: Reroute | None) -> None:
        self._checked = checked
        self._reroute = reroute
        self._head_left: int | None = MAX_HEAD_BYTES
        self.deadline = deadline

    def places(self) -> Iterator[tuple[str, int, float]]:
        """Yield address, port and seconds to wait, for each address to try."""
        addresses = self._checked.addresses[:MAX_ATTEMPTS]
        for tried, address in enumerate(addresses):
            place = address, self._checked.port
            host, port = self._reroute(*place) if self._reroute else place
            yield host, port, self.deadline.left() / (len(addresses) - tried)

    def read_size(self, max_bytes: int) -> int:
        return max_bytes if self._head_left is None else min(max_bytes, HEAD_STEP)

    def count(self, data: bytes) -> bytes:
        if self._head_left is not None:
            self._head_left -= len(data)
            if self._head_left < 0:
                raise FetchFailed("headers")
        return data

    def head_is_read(self) -> None:
        self._head_left = None


class _Stream(httpcore.AsyncNetworkStream):
    """A connection whose every wait ends at the deadline."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, route: Route) -> None:
        self._inner = inner
        self._route = route

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - its interface
        return self._route.count(await self._inner.read(self._route.read_size(max_bytes), self._route.deadline.left()))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its interface
        await self._inner.write(buffer, self._route.deadline.left())

    async def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - its interface
    ) -> httpcore.AsyncNetworkStream:
        try:
            secured = await self._inner.start_tls(ssl_context, server_hostname, self._route.deadline.left())
        except BaseException:  # nobody else closes the connection of a handshake that was cancelled
            await self._inner.aclose()
            raise
        return _Stream(secured, self._route)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to the addresses of a route, whatever host it is asked for."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - its interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for address, number, seconds in self._route.places():
            try:
                return _Stream(await self._inner.connect_tcp(address, number, seconds), self._route)
            except UNREACHABLE as error:
                failure = error
        raise failure


class _Chunks(httpx.AsyncByteStream):
    """The body of a response, as httpx wants it."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_stream()

    async def aclose(self) -> None:
        await self._response.aclose()


class PinnedTransport(httpx.AsyncBaseTransport):
    """One connection for one request: hosts that share an address would otherwise skip a certificate check."""

    def __init__(self, route: Route, tls: SSLContext) -> None:
        self._route = route
        self._pool = httpcore.AsyncConnectionPool(ssl_context=tls, network_backend=_Backend(route))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.content,
            )
        )
        self._route.head_is_read()
        return httpx.Response(response.status, headers=response.headers, stream=_Chunks(response))

    async def aclose(self) -> None:
        await self._pool.aclose()
