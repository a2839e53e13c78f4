"""The connections to a model server: pooled between calls, every wait bounded, and any wait interrupted.

Four waits are bounded: to connect, for the first token, between tokens, and for the whole call. Before the server has
answered at all, and in a reply that does not stream, any byte counts as a token; in a stream only a piece of the reply
does, since servers send headers and comments while they still read a long prompt. Whoever waits is asked
a few times a second whether to go on, so a halt ends a call while the server says nothing. The address of a model
server is never taken from a document or a model: those of the deployment's file are not gated; one that was set in the
admin passes the URL gate (agents.net) at every connection, which goes to the address that was checked.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from typing import Any, TypeVar

import httpcore
import httpx

from agents.conf import ca_file
from agents.net.client import without_old_versions
from agents.net.urls import check_url
from agents.providers.base import LOOK_SECONDS
from agents.providers.proxies import Proxy
from agents.tls import with_private_authorities

Result = TypeVar("Result")


@dataclass(frozen=True)
class Timeouts:
    """Seconds to wait."""

    connect: float = 10.0
    first_token: float = 120.0
    between_tokens: float = 60.0
    total: float = 290.0


class BoundedTransport(httpx.BaseTransport):
    """A pool of connections; the timeouts of the current call bound every wait."""

    def __init__(
        self, timeouts: Timeouts, *, connections: int = 8, proxy: Proxy | None = None, gated: bool = False
    ) -> None:
        self._timeouts = timeouts
        options: dict[str, Any] = {
            "ssl_context": _tls(ca_file()),
            "max_connections": connections,
            "max_keepalive_connections": connections,
            "keepalive_expiry": 60.0,
            "network_backend": _Backend(gated=gated and proxy is None),  # a proxy looks up names by its own rules
        }
        if proxy is None:
            self._pool = httpcore.ConnectionPool(**options)
        else:
            # To http:// only: inside a TLS connection to the proxy, _Stream would write past the inner one.
            url = httpcore.URL(scheme="http", host=proxy.host, port=proxy.port, target="/")
            self._pool = httpcore.HTTPProxy(url, proxy_auth=proxy.auth, **options)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _current.deadlines = _Deadlines(self._timeouts)
        url = request.url
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.content,
                extensions={"timeout": {"pool": self._timeouts.first_token}},
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    def close(self) -> None:
        self._pool.close()


@contextmanager
def interrupted_by(look: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `look` a few times a second while a call inside the block waits. What it raises ends the call.

    Gives a function that tells whether anything was sent.
    """
    _current.look = look
    _current.deadlines = None
    try:
        yield lambda: _current.deadlines is not None and _current.deadlines.has_sent
    finally:
        _current.look = None


class _Deadlines:
    """The waits of one call. Its thread keeps them, because a pooled connection serves many calls."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._began = time.monotonic()
        self._end = self._began + timeouts.total
        self._last_token: float | None = None
        self.has_sent = False

    def for_connecting(self) -> float:
        return min(time.monotonic() + self._timeouts.connect, self._end)

    def for_reading(self) -> float:
        if self._last_token is None:
            return min(self._began + self._timeouts.first_token, self._end)
        return min(self._last_token + self._timeouts.between_tokens, self._end)

    def token_came(self) -> None:
        self._last_token = time.monotonic()


_current = threading.local()


def token_came() -> None:
    """Note that a piece of the reply came in: the wait for the next one begins."""
    if (deadlines := getattr(_current, "deadlines", None)) is not None:
        deadlines.token_came()


def _look(deadline: float, late: type[httpcore.TimeoutException]) -> float:
    """Return how long to wait before the next look; raise when the call is to end."""
    if (look := getattr(_current, "look", None)) is not None:
        look()
    left = deadline - time.monotonic()
    if left <= 0:
        raise late
    return min(left, LOOK_SECONDS)


def _in_helper(work: Callable[[], Result], deadline: float) -> Result:
    """Do what cannot be interrupted (names, handshakes) in a thread, which is abandoned when the call is to end."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 raised again in the calling thread
            done.set_exception(error)

    threading.Thread(target=run, name="connect", daemon=True).start()
    while not done.done():
        wait = _look(deadline, httpcore.ConnectTimeout)
        try:
            return done.result(wait)
        except TimeoutError:
            continue
    return done.result()


@cache
def _tls(_: str) -> SSLContext:
    """Made once in a process: reading the public authorities takes longer than a call on loopback."""
    return without_old_versions(with_private_authorities(httpcore.default_ssl_context()))


class _Backend(httpcore.NetworkBackend):
    def __init__(self, *, gated: bool = False) -> None:
        self._inner = httpcore.SyncBackend()
        self._gated = gated

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        deadline = _current.deadlines.for_connecting()
        wait = deadline - time.monotonic()

        def connect() -> httpcore.NetworkStream:
            address = check_url(f"http://{_in_url(host)}:{port}/").addresses[0] if self._gated else host
            return self._inner.connect_tcp(address, port, wait, local_address)

        return _Stream(_in_helper(connect, deadline))


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        deadlines: _Deadlines = _current.deadlines
        deadline = deadlines.for_reading()
        while True:
            wait = _look(deadline, httpcore.ReadTimeout)
            try:
                data = self._inner.read(max_bytes, wait)
            except httpcore.ReadTimeout:
                continue
            return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        deadline = _current.deadlines.for_connecting()
        _current.deadlines.has_sent = True
        connected = self._inner.get_extra_info("socket")
        left = memoryview(buffer)
        while left:
            connected.settimeout(_look(deadline, httpcore.WriteTimeout))
            try:
                left = left[connected.send(left) :]
            except TimeoutError:
                continue
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        deadlines: _Deadlines = _current.deadlines
        deadline = deadlines.for_connecting()
        wait = deadline - time.monotonic()
        secured = _Stream(_in_helper(lambda: self._inner.start_tls(ssl_context, server_hostname, wait), deadline))
        deadlines.has_sent = False  # so far only a proxy was spoken to
        return secured

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
