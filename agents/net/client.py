"""Fetches from addresses that somebody else chose, in threads that may wait. `aio` holds the twin for event loops."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from ssl import SSLContext
from typing import Self, Unpack, cast

import httpx

from agents.net.body import Body
from agents.net.exchange import Exchange, Gate, Options, failures
from agents.net.limits import Limits
from agents.net.resolving import Resolve
from agents.net.responses import SafeResponse
from agents.net.transport import PinnedTransport, Reroute, Route


class SafeStream:
    """An answer whose body is still to come; it ends with the `with` block that opened it."""

    def __init__(self, response: httpx.Response, body: Body, url: str, redirects: Sequence[str]) -> None:
        self._response = response
        self._body = body
        self.status = response.status_code
        self.headers = response.headers
        self.url = url
        self.redirects = tuple(redirects)

    def iter_bytes(self) -> Iterator[bytes]:
        """The unpacked body, as it comes."""
        chunks = iter(cast("httpx.SyncByteStream", self._response.stream))
        while True:
            with failures():
                chunk = next(chunks, None)
            if chunk is None:
                break
            yield from self._body.feed(chunk)
        self._body.finish()

    def read(self) -> SafeResponse:
        content = b"".join(self.iter_bytes())
        return SafeResponse(self.status, self.headers, content, self.url, self.redirects)


class SafeClient:
    """Holds no connection and no cookie between requests; may be shared by threads."""

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        transport: httpx.BaseTransport | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        allow_hosts: Sequence[str] | None = None,
        allow_networks: Sequence[str] | None = None,
        cross_host: bool = True,
        tls: SSLContext | None = None,
        reroute: Reroute | None = None,
    ) -> None:
        self._gate = Gate(resolve, limits, allow_hosts, allow_networks, cross_host, tls, reroute)
        self._transport = transport

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left open: each request closes what it opened."""

    def get(self, url: str, **options: Unpack[Options]) -> SafeResponse:
        return self.request("GET", url, **options)

    def request(self, method: str, url: str, **options: Unpack[Options]) -> SafeResponse:
        with self.stream(method, url, **options) as answer:
            return answer.read()

    @contextmanager
    def stream(self, method: str, url: str, **options: Unpack[Options]) -> Iterator[SafeStream]:
        exchange = Exchange(self._gate, method, url, options)
        with ExitStack() as held:
            yield self._opened(exchange, held)

    def _opened(self, exchange: Exchange, held: ExitStack) -> SafeStream:
        while True:
            checked = exchange.check()
            transport = self._transport
            if transport is None:
                route = Route(checked, exchange.deadline, self._gate.reroute)
                transport = held.enter_context(closing(PinnedTransport(route, self._gate.tls_context())))
            with failures():
                response = transport.handle_request(exchange.request(checked))
            held.callback(response.close)
            body = exchange.take_head(response, checked)
            if body is not None:
                return SafeStream(response, body, checked.url, exchange.redirects)
            held.close()
