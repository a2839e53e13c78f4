"""Connections to checked addresses: pinned, used for one request, bounded in time and size.

The host name of the URL goes into the Host header and the certificate check. It is never used to connect: that would
ask DNS a second time.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from ssl import SSLContext

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
        self._addresses = checked.addresses[:MAX_ATTEMPTS]
        self._port = checked.port
        self._reroute = reroute
        self._head_left: int | None = MAX_HEAD_BYTES
        self.host = checked.host
        self.deadline = deadline

    def places(self) -> Iterator[tuple[str, int, float]]:
        """Yield address, port and seconds to wait, for each address to try."""
        for tried, address in enumerate(self._addresses):
            place = address, self._port
            host, port = self._reroute(*place) if self._reroute else place
            yield host, port, self.deadline.left() / (len(self._addresses) - tried)

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

    async def aclose(self) -> None:
        await self._inner.aclose()


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
        self._tls = tls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._send(request, await self._connect())

    async def _connect(self) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for address, port, seconds in self._route.places():
            try:
                return await httpcore.AnyIOBackend().connect_tcp(address, port, seconds)
            except UNREACHABLE as error:
                failure = error
        raise failure

    async def _send(self, request: httpx.Request, stream: httpcore.AsyncNetworkStream) -> httpx.Response:
        parts = request.url
        url = httpcore.URL(scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path)
        try:
            if parts.scheme == "https":
                self._tls.set_alpn_protocols(["http/1.1"])
                stream = await stream.start_tls(self._tls, self._route.host, self._route.deadline.left())
            connection = httpcore.AsyncHTTP11Connection(url.origin, _Stream(stream, self._route))
            response = await connection.handle_async_request(
                httpcore.Request(request.method, url, headers=request.headers.raw, content=request.content)
            )
        except BaseException:  # nobody else closes the connection of a request that was cancelled early
            await stream.aclose()
            raise
        self._route.head_is_read()
        return httpx.Response(response.status, headers=response.headers, stream=_Chunks(response))
