"""Fetches from addresses that somebody else chose, in threads that may wait. `aio` holds the twin for event loops."""

import asyncio
import codecs
import json
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext, SSLError
from typing import Any, Self, TypedDict, Unpack, cast
from urllib.parse import urlencode, urljoin

import httpcore
import httpx
from httpx import Headers

from agents.net.transport import MEBIBYTE, AsyncPinnedTransport, Deadline, Limits, PinnedTransport, Reroute, Route
from agents.net.urls import LOOKUP_SECONDS, CheckedUrl, FetchFailed, Resolve, UrlRefused, check_url, refuse_characters

# Unpacks a body piece by piece and stops at the limits: never more than one small piece beyond them is in memory.
#
# Knows nothing of connections: a client feeds it what arrives.


ACCEPTED = "gzip, deflate"
PIECE = 64 * 1024
MAX_LAYERS = 2
MAX_MEMBERS = 1000  # parts of one gzip stream; each costs work although it may hold nothing
GZIP, ZLIB, RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
GZIP_START = b"\x1f"
ZLIB_METHOD = 8  # the low half of the first byte; a bare deflate stream never starts with it


class Inflate:
    """One layer of gzip or deflate."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._gzip = coding != "deflate"
        self._max_bytes = max_bytes
        self._engine = zlib.decompressobj(GZIP) if self._gzip else None
        self._size = 0
        self._members = 1

    @property
    def complete(self) -> bool:
        return self._engine is not None and self._engine.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._engine is None:  # servers send "deflate" with and without the header that the standard asks for
            self._engine = zlib.decompressobj(ZLIB if data[0] & 15 == ZLIB_METHOD else RAW)
        more = False
        while data or more:
            if self._engine.eof:
                if not self._gzip or not data.startswith(GZIP_START):
                    return  # padding after the end is no content
                self._engine = self._next_member()
            try:
                piece = self._engine.decompress(data, PIECE)
            except zlib.error:
                raise FetchFailed("encoding") from None
            self._size += len(piece)
            if self._size > self._max_bytes:
                raise FetchFailed("too_large")
            if piece:
                yield piece
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            more = len(piece) == PIECE  # the engine may hold back output although it took all input

    def _next_member(self) -> "zlib._Decompress":
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise FetchFailed("encoding")
        return zlib.decompressobj(GZIP)


class Body:
    """The body of one answer: counts what was sent and what it unpacks to."""

    def __init__(self, content_encoding: str, limits: Limits, deadline: Deadline) -> None:
        self._content_encoding = content_encoding
        self._layers: list[Inflate] | None = None
        self._limits = limits
        self._deadline = deadline
        self._sent = 0
        self._unpacked = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._deadline.left()
        if not data:
            return
        self._sent += len(data)
        if self._sent > self._limits.max_bytes:
            raise FetchFailed("too_large")
        if self._layers is None:  # only now: the answer to HEAD names an encoding and has no body
            self._layers = self._named_layers()
        for piece in _through(self._layers, data):
            self._unpacked += len(piece)
            if self._unpacked > max(MEBIBYTE, self._sent * self._limits.max_ratio):
                raise FetchFailed("ratio")
            yield piece

    def finish(self) -> None:
        if not all(layer.complete for layer in self._layers or []):
            raise FetchFailed("encoding")

    def _named_layers(self) -> list[Inflate]:
        named = [coding.strip().lower() for coding in self._content_encoding.split(",")]
        codings = [coding for coding in named if coding not in {"", "identity"}]
        if len(codings) > MAX_LAYERS or not set(codings) <= {"gzip", "x-gzip", "deflate"}:
            raise FetchFailed("encoding")
        return [Inflate(coding, self._limits.max_bytes) for coding in reversed(codings)]


def _through(layers: list[Inflate], data: bytes) -> Iterator[bytes]:
    if not layers:
        yield data
        return
    for piece in layers[0].feed(data):
        yield from _through(layers[1:], piece)


# --- One fetch from first request to last answer, without the I/O: both clients walk through it ---
#
# Owns the rules for redirects, credentials and headers. It checks each hop anew; what connects is `dialing`.


REDIRECTS = {301, 302, 303, 307, 308}
SEE_OTHER = 303
KEEPS_METHOD = {307, 308}
NO_BODY = {204, 304}
# What another host may see of the caller's headers. A list of secret names would miss the next one that is invented.
HARMLESS = {"accept", "accept-language", "cache-control", "content-language", "content-type", "if-modified-since",
            "if-none-match", "pragma", "range", "user-agent"}  # fmt: skip
# The client decides these: they say where the request goes and where it ends.
OWN = {"accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
       "trailer", "transfer-encoding", "upgrade"}  # fmt: skip
LENGTH = re.compile(r"[0-9]+", re.ASCII)


class Options(TypedDict, total=False):
    """What a caller may say about one request."""

    headers: Mapping[str, str]
    params: Mapping[str, str | int | Sequence[str | int]]
    content: bytes | str
    json: Any
    secret_headers: Iterable[str]  # never sent on to another origin, in addition to all that are not known harmless
    limits: Limits


@dataclass(frozen=True)
class Gate:
    """How a client was set up."""

    resolve: Resolve | None
    limits: Limits
    allow_hosts: Sequence[str] | None
    allow_networks: Sequence[str] | None
    cross_host: bool
    tls: SSLContext | None
    reroute: Reroute | None

    def tls_context(self) -> SSLContext:
        return self.tls or _public_tls()


@cache
def _public_tls() -> SSLContext:
    """Checks certificates and names against the public authorities, whatever the environment says."""
    return httpx.create_ssl_context(trust_env=False)


class Exchange:
    def __init__(self, gate: Gate, method: str, url: str, options: Options) -> None:
        self._gate = gate
        self._limits = options.get("limits", gate.limits)
        self._method = method.upper()
        self._url = _with_params(url, options.get("params"))
        self._content, self._headers = _payload(options)
        self._secret = {name.lower() for name in options.get("secret_headers", ())}
        self._checked: CheckedUrl | None = None
        self.deadline = Deadline(self._limits.deadline)
        self.redirects: list[str] = []

    def check(self) -> CheckedUrl:
        """Where the next hop goes. What may not go there with it is gone afterwards."""
        left = self.deadline.left()
        try:
            checked = check_url(
                self._url,
                resolve=self._gate.resolve,
                allow_hosts=self._gate.allow_hosts,
                allow_networks=self._gate.allow_networks,
                lookup_seconds=min(LOOKUP_SECONDS, left),
            )
        except UrlRefused:
            self.deadline.left()  # a lookup cut short by the deadline is the deadline's doing
            raise
        if self._checked is not None and checked.origin != self._checked.origin:
            self._leave(self._checked, checked)
        self._checked = checked
        return checked

    def _leave(self, old: CheckedUrl, new: CheckedUrl) -> None:
        if new.host != old.host and not self._gate.cross_host:
            raise UrlRefused("redirect_host")
        if self._content:
            raise UrlRefused("redirect_body")
        kept = HARMLESS - self._secret
        self._headers = {name: value for name, value in self._headers.items() if name in kept}

    def request(self, checked: CheckedUrl) -> httpx.Request:
        own = {"accept-encoding": ACCEPTED, "connection": "close"}
        return httpx.Request(self._method, checked.url, headers={**self._headers, **own}, content=self._content)

    def take_head(self, response: httpx.Response, checked: CheckedUrl) -> Body | None:
        """The body to be read, or None if there is another hop."""
        fields = response.headers.raw
        size = sum(len(name) + len(value) for name, value in fields)
        if len(fields) > self._limits.max_headers or size > self._limits.max_header_bytes:
            raise FetchFailed("headers")
        location = response.headers.get("location")
        if response.status_code in REDIRECTS and location is not None:
            self._follow(response.status_code, location, checked)
            return None
        if self._method != "HEAD" and response.status_code not in NO_BODY:
            self._refuse_length(response.headers.get("content-length", ""))
        return Body(response.headers.get("content-encoding", ""), self._limits, self.deadline)

    def _follow(self, status: int, location: str, checked: CheckedUrl) -> None:
        if len(self.redirects) == self._limits.max_redirects:
            raise FetchFailed("redirects")
        self.redirects.append(checked.url)
        refuse_characters(location)  # before joining, which would strip some of them
        try:
            self._url = urljoin(checked.url, location)
        except ValueError:
            raise UrlRefused("malformed") from None
        if status == SEE_OTHER or (status not in KEEPS_METHOD and self._method == "POST"):
            self._method = "HEAD" if self._method == "HEAD" else "GET"
            self._content = b""
            self._headers.pop("content-type", None)

    def _refuse_length(self, declared: str) -> None:
        if LENGTH.fullmatch(declared) and float(declared) > self._limits.max_bytes:
            raise FetchFailed("too_large")


def _with_params(url: str, params: Mapping[str, str | int | Sequence[str | int]] | None) -> str:
    if not params:
        return url
    base = url.partition("#")[0]
    return f"{base}{'&' if '?' in base else '?'}{urlencode(params, doseq=True)}"


def _payload(options: Options) -> tuple[bytes, dict[str, str]]:
    headers = {"user-agent": "lqops", "accept": "*/*"}
    content = options.get("content", b"")
    if "json" in options:
        content = json.dumps(options["json"], ensure_ascii=False)
        headers["content-type"] = "application/json"
    given = {name.lower(): value for name, value in options.get("headers", {}).items()}
    headers |= {name: value for name, value in given.items() if name not in OWN}
    return content.encode() if isinstance(content, str) else content, headers


@contextmanager
def failures() -> Iterator[None]:
    """Errors of the connection, in our words: theirs may quote the request."""
    try:
        yield
    except (TimeoutError, httpcore.TimeoutException, httpx.TimeoutException):
        raise FetchFailed("deadline") from None
    except (httpcore.ConnectError, httpx.ConnectError) as error:
        secure = any(isinstance(cause, SSLError) for cause in error.args)
        raise FetchFailed("tls" if secure else "connect") from None
    except (httpcore.RemoteProtocolError, httpx.RemoteProtocolError):
        raise FetchFailed("protocol") from None
    except (httpcore.ProtocolError, httpx.ProtocolError, UnicodeError):
        raise FetchFailed("request") from None
    except (httpcore.NetworkError, httpx.HTTPError, OSError):
        raise FetchFailed("connection") from None


# --- What a fetch hands back: the answer as plain data. It holds no connection ---


CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE | re.ASCII)
# Encodings of text on the web. Python knows others that take quadratic time, or run escapes.
TEXT_CODECS = ("ascii", "utf-8", "utf-16", "iso8859", "cp125", "cp932", "shift_jis", "euc_", "gb", "big5", "koi8")


@dataclass(frozen=True)
class SafeResponse:
    status: int
    headers: Headers
    content: bytes
    url: str
    redirects: tuple[str, ...] = ()  # the addresses before `url`, in order

    def text(self) -> str:
        return self.content.decode(_codec(self.headers.get("content-type", "")), errors="replace")

    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise FetchFailed("json") from None


def _codec(content_type: str) -> str:
    found = CHARSET.search(content_type)
    try:
        name = codecs.lookup(found[1]).name if found else "utf-8"
    except LookupError:
        return "utf-8"
    return name if name.startswith(TEXT_CODECS) else "utf-8"


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


# --- Fetches from addresses that somebody else chose, inside an event loop. The rules are those of `client` ---


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
