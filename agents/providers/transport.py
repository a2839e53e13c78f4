"""The connections to a model server: pooled between calls, and every wait is bounded.

Four waits are bounded: to connect, for the first byte, between bytes, and for the whole call. A model server is
configured by the operator, so its address is not gated; it is never taken from a document or a model.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from typing import Any

import httpcore
import httpx


@dataclass(frozen=True)
class Timeouts:
    """Seconds to wait."""

    connect: float = 10.0
    first_byte: float = 120.0
    between_bytes: float = 60.0
    total: float = 290.0


class BoundedTransport(httpx.BaseTransport):
    """A pool of connections; the timeouts of the current call bound every wait."""

    def __init__(self, timeouts: Timeouts, *, connections: int = 8) -> None:
        self._timeouts = timeouts
        self._pool = httpcore.ConnectionPool(
            ssl_context=_tls(),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=60.0,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _current.deadlines = _Deadlines(self._timeouts)
        url = request.url
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.content,
                extensions={"timeout": {"pool": self._timeouts.first_byte}},
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    def close(self) -> None:
        self._pool.close()


class _Deadlines:
    """The waits of one call. Its thread keeps them, because a pooled connection serves many calls."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._end = time.monotonic() + timeouts.total
        self.has_begun = False

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the whole call took too long")
        return left

    def for_connecting(self) -> float:
        return min(self._timeouts.connect, self._left())

    def for_reading(self) -> float:
        return min(self._timeouts.between_bytes if self.has_begun else self._timeouts.first_byte, self._left())


_current = threading.local()


@cache
def _tls() -> SSLContext:
    """Made once in a process: reading the public authorities takes longer than a call on loopback."""
    return httpcore.default_ssl_context()


class _Backend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_tcp(host, port, _current.deadlines.for_connecting(), local_address))


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        deadlines: _Deadlines = _current.deadlines
        data = self._inner.read(max_bytes, deadlines.for_reading())
        deadlines.has_begun = True
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _current.deadlines.for_connecting())

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _current.deadlines.for_connecting()))

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()
