"""The connection to a model server: kept open between calls, and patient only so long.

Four waits are bounded: to connect, for the first byte, between bytes, and for everything together. A model server is
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
class Patience:
    """How long to wait, in seconds."""

    connect: float = 10.0
    first_byte: float = 120.0
    between_bytes: float = 60.0
    total: float = 290.0


class _Clock:
    """The waits of one request, kept by the thread that makes it; pooled connections look it up at every read."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._end = time.monotonic() + patience.total
        self.begun = False

    def _left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the whole call took too long")
        return left

    def for_connecting(self) -> float:
        return min(self._patience.connect, self._left())

    def for_reading(self) -> float:
        return min(self._patience.between_bytes if self.begun else self._patience.first_byte, self._left())


_current = threading.local()


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        clock: _Clock = _current.clock
        data = self._inner.read(max_bytes, clock.for_reading())
        clock.begun = True
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _current.clock.for_connecting())

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _current.clock.for_connecting()))

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


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
        return _Stream(self._inner.connect_tcp(host, port, _current.clock.for_connecting(), local_address))


@cache
def _tls() -> SSLContext:
    """Reading the public authorities takes longer than a call on loopback: once in a process is enough."""
    return httpcore.default_ssl_context()


class Wire(httpx.BaseTransport):
    """A pool of connections whose every wait is bounded by the patience of the call at hand."""

    def __init__(self, patience: Patience, *, connections: int = 8) -> None:
        self._patience = patience
        self._pool = httpcore.ConnectionPool(
            ssl_context=_tls(),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=60.0,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _current.clock = _Clock(self._patience)
        url = request.url
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.content,
                extensions={"timeout": {"pool": self._patience.first_byte}},
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()
