"""Opens the connection: to an address that was checked, for one request, and never past the deadline.

The name in the URL is used for the Host header and the certificate, never to find the way: that would ask DNS again.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

import httpcore
import httpx

from agents.net.urls import CheckedUrl, FetchFailed

# --- How much a fetch may take: bytes, ratio, headers, redirects, and time over everything ---


MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    deadline: float = 30.0  # seconds for lookup, connection, TLS, headers, body and all redirects together
    max_bytes: int = 5 * MEBIBYTE  # of the body: as sent, and as unpacked, each
    max_ratio: int = 100  # unpacked to sent; judged from the first mebibyte on
    max_redirects: int = 5
    max_headers: int = 200
    max_header_bytes: int = 64 * 1024


class Deadline:
    """A point in time; every wait of a fetch is cut to what is left until then."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise FetchFailed("deadline")
        return seconds


# Where a checked address is reached. Only tests replace it, to stand on loopback for a public address.
Reroute = Callable[[str, int], tuple[str, int]]

MAX_ATTEMPTS = 4
MAX_HEAD_BYTES = 96 * 1024  # everything before the body, interim answers included
HEAD_STEP = 8 * 1024  # how much of a body may be taken along with its head
UNREACHABLE = (httpcore.ConnectError, httpcore.ConnectTimeout)


class Route:
    """The way to one checked URL: which addresses to try, how long, and how much may come before the body."""

    def __init__(self, checked: CheckedUrl, deadline: Deadline, reroute: Reroute | None) -> None:
        self._checked = checked
        self._reroute = reroute
        self._head_left: int | None = MAX_HEAD_BYTES
        self.deadline = deadline

    def places(self) -> Iterator[tuple[str, int, float]]:
        addresses = self._checked.addresses[:MAX_ATTEMPTS]
        for tried, address in enumerate(addresses):
            place = address, self._checked.port
            host, port = self._reroute(*place) if self._reroute else place
            yield host, port, self.deadline.left() / (len(addresses) - tried)

    def step(self, max_bytes: int) -> int:
        return max_bytes if self._head_left is None else min(max_bytes, HEAD_STEP)

    def count(self, data: bytes) -> bytes:
        if self._head_left is not None:
            self._head_left -= len(data)
            if self._head_left < 0:
                raise FetchFailed("headers")
        return data

    def head_is_read(self) -> None:
        self._head_left = None


class Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, route: Route) -> None:
        self._inner = inner
        self._route = route

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._route.count(self._inner.read(self._route.step(max_bytes), self._route.deadline.left()))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Part by part: a peer that reads slowly would otherwise get the whole time again for each part."""
        connection = self._inner.get_extra_info("socket")
        rest = memoryview(buffer)
        while rest:
            connection.settimeout(self._route.deadline.left())
            try:
                rest = rest[connection.send(rest) :]
            except TimeoutError:
                raise FetchFailed("deadline") from None
            except OSError as error:
                raise httpcore.WriteError(error) from error

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return Stream(self._inner.start_tls(ssl_context, server_hostname, self._route.deadline.left()), self._route)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Dialer(httpcore.NetworkBackend):
    def __init__(self, route: Route) -> None:
        self._route = route
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for address, number, seconds in self._route.places():
            try:
                return Stream(self._inner.connect_tcp(address, number, seconds, socket_options=[]), self._route)
            except UNREACHABLE as error:
                failure = error
        raise failure


class AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream, route: Route) -> None:
        self._inner = inner
        self._route = route

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - its interface
        return self._route.count(await self._inner.read(self._route.step(max_bytes), self._route.deadline.left()))

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
        except BaseException:  # a handshake that is cancelled belongs to nobody yet who would close it
            await self._inner.aclose()
            raise
        return AsyncStream(secured, self._route)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class AsyncDialer(httpcore.AsyncNetworkBackend):
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
                return AsyncStream(await self._inner.connect_tcp(address, number, seconds), self._route)
            except UNREACHABLE as error:
                failure = error
        raise failure


class _Chunks(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


class _AsyncChunks(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.aiter_stream()

    async def aclose(self) -> None:
        await self._answer.aclose()


class PinnedTransport(httpx.BaseTransport):
    """One connection for one request: sharing it between hosts of one address would skip a certificate check."""

    def __init__(self, route: Route, tls: SSLContext) -> None:
        self._route = route
        self._pool = httpcore.ConnectionPool(ssl_context=tls, network_backend=Dialer(route))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._pool.handle_request(_plain(request))
        self._route.head_is_read()
        return httpx.Response(answer.status, headers=answer.headers, stream=_Chunks(answer))

    def close(self) -> None:
        self._pool.close()


class AsyncPinnedTransport(httpx.AsyncBaseTransport):
    """As PinnedTransport."""

    def __init__(self, route: Route, tls: SSLContext) -> None:
        self._route = route
        self._pool = httpcore.AsyncConnectionPool(ssl_context=tls, network_backend=AsyncDialer(route))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._pool.handle_async_request(_plain(request))
        self._route.head_is_read()
        return httpx.Response(answer.status, headers=answer.headers, stream=_AsyncChunks(answer))

    async def aclose(self) -> None:
        await self._pool.aclose()


def _plain(request: httpx.Request) -> httpcore.Request:
    url = request.url
    return httpcore.Request(
        method=request.method,
        url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=request.content,
    )
