"""Fetches from addresses that somebody else chose, inside an event loop. The rules are those of `client`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from ssl import SSLContext
from typing import Self, Unpack, cast

import httpx

from agents.net.body import Body
from agents.net.exchange import Exchange, Gate, Options, failures
from agents.net.limits import Deadline, Limits
from agents.net.resolving import Resolve
from agents.net.responses import SafeResponse
from agents.net.transport import AsyncPinnedTransport, Reroute, Route

CHECKS_AT_A_TIME = 64


class AsyncSafeStream:
    """An answer whose body is still to come; it ends with the `async with` block that opened it."""

    def __init__(
        self, response: httpx.Response, body: Body, url: str, redirects: Sequence[str], deadline: Deadline
    ) -> None:
        self._response = response
        self._body = body
        self._deadline = deadline
        self.status = response.status_code
        self.headers = response.headers
        self.url = url
        self.redirects = tuple(redirects)

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """The unpacked body, as it comes."""
        chunks = aiter(cast("httpx.AsyncByteStream", self._response.stream))
        while True:
            with failures():
                async with asyncio.timeout(self._deadline.left()):
                    chunk = await anext(chunks, None)
            if chunk is None:
                break
            for piece in self._body.feed(chunk):
                yield piece
        self._body.finish()

    async def read(self) -> SafeResponse:
        content = b"".join([piece async for piece in self.iter_bytes()])
        return SafeResponse(self.status, self.headers, content, self.url, self.redirects)


class AsyncSafeClient:
    """Holds no connection and no cookie between requests; belongs to one event loop at a time."""

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        allow_hosts: Sequence[str] | None = None,
        allow_networks: Sequence[str] | None = None,
        cross_host: bool = True,
        tls: SSLContext | None = None,
        reroute: Reroute | None = None,
    ) -> None:
        self._gate = Gate(resolve, limits, allow_hosts, allow_networks, cross_host, tls, reroute)
        self._transport = transport
        # Its own threads: a slow name server must not hold up whatever else the loop runs in its few.
        self._checks = ThreadPoolExecutor(CHECKS_AT_A_TIME, thread_name_prefix="url-check")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._checks.shutdown(wait=False)

    async def get(self, url: str, **options: Unpack[Options]) -> SafeResponse:
        return await self.request("GET", url, **options)

    async def request(self, method: str, url: str, **options: Unpack[Options]) -> SafeResponse:
        async with self.stream(method, url, **options) as answer:
            return await answer.read()

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Unpack[Options]) -> AsyncIterator[AsyncSafeStream]:
        exchange = Exchange(self._gate, method, url, options)
        async with AsyncExitStack() as held:
            yield await self._opened(exchange, held)

    async def _opened(self, exchange: Exchange, held: AsyncExitStack) -> AsyncSafeStream:
        while True:
            with failures():
                async with asyncio.timeout(exchange.deadline.left()):
                    checked = await asyncio.get_running_loop().run_in_executor(self._checks, exchange.check)
            transport = self._transport
            if transport is None:
                route = Route(checked, exchange.deadline, self._gate.reroute)
                transport = await held.enter_async_context(
                    aclosing(AsyncPinnedTransport(route, self._gate.tls_context()))
                )
            with failures():
                async with asyncio.timeout(exchange.deadline.left()):
                    response = await transport.handle_async_request(exchange.request(checked))
            held.push_async_callback(response.aclose)
            body = exchange.take_head(response, checked)
            if body is not None:
                return AsyncSafeStream(response, body, checked.url, exchange.redirects, exchange.deadline)
            await held.aclose()
