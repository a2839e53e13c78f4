"""HTTP clients for addresses that somebody else chose.

`AsyncSafeClient` serves event loops; `SafeClient` drives the same code from a thread that may block. Both check every
hop with `check_url`, connect to the checked address only, and keep to the limits on time, size and redirects.
"""

import asyncio
import codecs
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from ssl import SSLContext, SSLError, TLSVersion
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import urljoin, urlsplit

import httpcore
import httpx
from httpx import Headers

from agents.conf import ca_file
from agents.net.transport import MEBIBYTE, Deadline, Limits, Reroute, connect, send
from agents.net.urls import LOOKUP_SECONDS, CheckedUrl, FetchFailed, Resolve, UrlRefused, check_url, refuse_characters
from agents.tls import with_private_authorities

# --- Decompressing a body ---

ACCEPTED_ENCODINGS = "gzip, deflate"
PIECE_BYTES = 64 * 1024
MAX_LAYERS = 2
MAX_MEMBERS = 1000  # parts of one gzip stream; each costs work even when it is empty
GZIP = 16 + zlib.MAX_WBITS
ZLIB = zlib.MAX_WBITS
RAW_DEFLATE = -zlib.MAX_WBITS
GZIP_START = b"\x1f"
ZLIB_METHOD = 8  # the low half of the first byte; a raw deflate stream never starts with it


class Decompressor:
    """One layer of gzip or deflate. It never holds more than one small piece beyond the limit."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._is_gzip = coding != "deflate"
        self._max_bytes = max_bytes
        self._engine = zlib.decompressobj(GZIP) if self._is_gzip else None
        self._size = 0
        self._members = 1

    @property
    def is_complete(self) -> bool:
        return self._engine is not None and self._engine.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._engine is None:  # servers send "deflate" with and without the header that the standard requires
            self._engine = zlib.decompressobj(ZLIB if data[0] & 15 == ZLIB_METHOD else RAW_DEFLATE)
        more = False
        while data or more:
            if self._engine.eof:
                if not self._is_gzip or not data.startswith(GZIP_START):
                    return  # padding after the end
                self._members += 1
                if self._members > MAX_MEMBERS:
                    raise FetchFailed("encoding")
                self._engine = zlib.decompressobj(GZIP)
            try:
                piece = self._engine.decompress(data, PIECE_BYTES)
            except zlib.error:
                raise FetchFailed("encoding") from None
            self._size += len(piece)
            if self._size > self._max_bytes:
                raise FetchFailed("too_large")
            if piece:
                yield piece
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            more = len(piece) == PIECE_BYTES  # the engine may hold output back although it took all input


class Body:
    """The body of one response: decompresses it and stops at the limits."""

    def __init__(self, content_encoding: str, limits: Limits, deadline: Deadline) -> None:
        self._content_encoding = content_encoding
        self._layers: list[Decompressor] | None = None
        self._limits = limits
        self._deadline = deadline
        self._sent = 0
        self._decompressed = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._deadline.left()
        if not data:
            return
        self._sent += len(data)
        if self._sent > self._limits.max_bytes:
            raise FetchFailed("too_large")
        if self._layers is None:  # not earlier: the response to HEAD names an encoding and has no body
            self._layers = self._named_layers()
        for piece in _decompress(self._layers, data):
            self._decompressed += len(piece)
            if self._decompressed > max(MEBIBYTE, self._sent * self._limits.max_ratio):
                raise FetchFailed("ratio")
            yield piece

    def finish(self) -> None:
        if not all(layer.is_complete for layer in self._layers or []):
            raise FetchFailed("encoding")

    def _named_layers(self) -> list[Decompressor]:
        named = [coding.strip().lower() for coding in self._content_encoding.split(",")]
        codings = [coding for coding in named if coding not in {"", "identity"}]
        if len(codings) > MAX_LAYERS or not set(codings) <= {"gzip", "x-gzip", "deflate"}:
            raise FetchFailed("encoding")
        return [Decompressor(coding, self._limits.max_bytes) for coding in reversed(codings)]


def _decompress(layers: list[Decompressor], data: bytes) -> Iterator[bytes]:
    if not layers:
        yield data
        return
    for piece in layers[0].feed(data):
        yield from _decompress(layers[1:], piece)


# --- Responses ---

CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE | re.ASCII)
# Text encodings of the web. Python knows others that take quadratic time or run escapes.
TEXT_CODECS = ("ascii", "utf-8", "utf-16", "iso8859", "cp125", "cp932", "shift_jis", "euc_", "gb", "big5", "koi8")


@dataclass(frozen=True)
class SafeResponse:
    """A response that was read in full. Holds no connection."""

    status: int
    headers: Headers
    content: bytes
    url: str

    def text(self, declared: str = "") -> str:
        """Return the body as text. `declared` is the encoding that it names itself, if the header names none."""
        header = self.headers.get("content-type", "")
        given = header if CHARSET.search(header) or not declared else f"charset={declared}"
        return self.content.decode(_codec(given), errors="replace")

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


class AsyncSafeStream:
    """A response whose body is still to be read. It is closed by the `async with` block that opened it."""

    def __init__(self, response: httpcore.Response, body: Body, url: str, deadline: Deadline) -> None:
        self._response = response
        self._body = body
        self._deadline = deadline
        self.status = response.status
        self.headers = Headers(response.headers)
        self.url = url

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the decompressed body as it arrives."""
        chunks = self._response.aiter_stream()
        while True:
            with translated_errors():
                async with asyncio.timeout(self._deadline.left()):
                    chunk = await anext(chunks, None)
            if chunk is None:
                break
            for piece in self._body.feed(chunk):
                yield piece
        self._body.finish()

    async def read(self) -> SafeResponse:
        content = b"".join([piece async for piece in self.iter_bytes()])
        return SafeResponse(self.status, self.headers, content, self.url)


class SafeStream:
    """The same for threads. It is closed by the `with` block that opened it."""

    def __init__(self, stream: AsyncSafeStream, runner: asyncio.Runner) -> None:
        self._stream = stream
        self._runner = runner
        self.status = stream.status
        self.headers = stream.headers
        self.url = stream.url

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the decompressed body as it arrives."""
        pieces = self._stream.iter_bytes()
        while (piece := self._runner.run(_next_piece(pieces))) is not None:
            yield piece

    def read(self) -> SafeResponse:
        return self._runner.run(self._stream.read())


async def _next_piece(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


# --- One fetch: rules for redirects, credentials and headers ---

REDIRECTS = {301, 302, 303, 307, 308}
SEE_OTHER = 303
KEEPS_METHOD = {307, 308}
NO_BODY = {204, 304}
SENDS_LENGTH = {"PATCH", "POST", "PUT"}  # also without a body
# The caller's headers that another origin may see. A list of secret names would miss the next one that is invented.
HARMLESS = {
    "accept", "accept-language", "cache-control", "content-language", "content-type", "if-modified-since",
    "if-none-match", "pragma", "range", "user-agent",
}  # fmt: skip
# Headers that the client sets itself: they say where the request goes and where it ends.
CLIENT_HEADERS = {
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
}  # fmt: skip
LENGTH = re.compile(r"[0-9]+", re.ASCII)


class RequestOptions(TypedDict, total=False):
    """Options of one request."""

    headers: Mapping[str, str]
    content: bytes | str
    json: Any
    limits: Limits
    secret: Collection[str]  # names of headers that hold secrets: no other origin gets them
    stays: bool  # the address holds a secret, which a redirect may repeat: another origin is refused


Check = Callable[[], CheckedUrl]


@dataclass(frozen=True, kw_only=True)
class _Client:
    """Settings of both clients. They keep no connection and no cookie between requests."""

    limits: Limits = Limits()  # noqa: RUF009 - frozen
    cross_host: bool = True  # a redirect may lead to another host
    resolve: Resolve | None = None
    allow_hosts: Sequence[str] | None = None
    allow_networks: Sequence[str] | None = None
    tls: SSLContext | None = None
    reroute: Reroute | None = None

    def check(self, url: str, deadline: Deadline, schemes: tuple[str, ...] = ("http", "https")) -> CheckedUrl:
        """Check a URL within the deadline. Blocks while the name is looked up."""
        try:
            seconds = min(LOOKUP_SECONDS, deadline.left())
            return check_url(
                url,
                schemes=schemes,
                resolve=self.resolve,
                allow_hosts=self.allow_hosts,
                allow_networks=self.allow_networks,
                lookup_seconds=seconds,
            )
        except UrlRefused:
            deadline.left()  # a lookup that the deadline cut short is reported as the deadline
            raise

    async def run_check(self, check: Check, deadline: Deadline) -> CheckedUrl:
        """Check in this thread: nothing else runs in the loop of one blocking request."""
        return check()

    def tls_context(self) -> SSLContext:
        return self.tls or public_tls()


def public_tls() -> SSLContext:
    """A context that checks certificates and names against the public authorities and those of LQOPS_CA_FILE.

    It ignores the variables of the environment that other programs use.
    """
    return _tls_for(ca_file())


@cache
def _tls_for(_: str) -> SSLContext:
    return without_old_versions(with_private_authorities(httpx.create_ssl_context(trust_env=False)))


def without_old_versions(tls: SSLContext) -> SSLContext:
    """Accept TLS 1.2 and newer, or only what is newer still if the system says so. Some Pythons leave all to it."""
    tls.minimum_version = max(tls.minimum_version, TLSVersion.TLSv1_2)
    return tls


class Exchange:
    """One fetch from the first request to the last redirect."""

    def __init__(self, client: _Client, method: str, url: str, options: RequestOptions) -> None:
        self._client = client
        self._limits = options.get("limits", client.limits)
        self._method = method.upper()
        self._url = url
        self._content, self._headers = _payload(options)
        self._goes_along = HARMLESS - {name.lower() for name in options.get("secret", ())}
        self._stays = options.get("stays", False)
        self._checked: CheckedUrl | None = None
        self._redirects = 0
        self.deadline = Deadline(self._limits.deadline)

    async def open(self, opened: AsyncExitStack) -> AsyncSafeStream:
        """Send the request and follow redirects. What is open at the end is closed by `opened`."""
        while True:
            checked = await self._client.run_check(self._check, self.deadline)
            with translated_errors():
                request = self._request(checked)
                tls = self._client.tls_context()
                async with asyncio.timeout(self.deadline.left()):
                    connected = await connect(checked, self.deadline, self._client.reroute)
                    response = await send(request, checked, connected, tls, opened)
            body = self._take_head(response, checked)
            if body is not None:
                return AsyncSafeStream(response, body, checked.url, self.deadline)
            await opened.aclose()

    def _check(self) -> CheckedUrl:
        """Check the next hop, and drop what must not be sent there."""
        checked = self._client.check(self._url, self.deadline)
        if self._checked is not None and checked.origin != self._checked.origin:
            if self._stays or (checked.host != self._checked.host and not self._client.cross_host):
                raise UrlRefused("redirect_host")
            if self._content:
                raise UrlRefused("redirect_body")
            self._headers = {name: value for name, value in self._headers.items() if name in self._goes_along}
        self._checked = checked
        return checked

    def _request(self, checked: CheckedUrl) -> httpcore.Request:
        own = {"host": urlsplit(checked.url).netloc, "accept-encoding": ACCEPTED_ENCODINGS, "connection": "close"}
        if self._content or self._method in SENDS_LENGTH:
            own["content-length"] = str(len(self._content))
        target = f"{checked.path}?{checked.query}" if checked.query else checked.path
        url = httpcore.URL(scheme=checked.scheme, host=checked.host, port=checked.port, target=target)
        return httpcore.Request(self._method, url, headers=Headers(self._headers | own).raw, content=self._content)

    def _take_head(self, response: httpcore.Response, checked: CheckedUrl) -> Body | None:
        """Return the body to read, or None when the response is a redirect to follow."""
        size = sum(len(name) + len(value) for name, value in response.headers)
        if len(response.headers) > self._limits.max_headers or size > self._limits.max_header_bytes:
            raise FetchFailed("headers")
        headers = Headers(response.headers)
        location = headers.get("location")
        if response.status in REDIRECTS and location is not None:
            self._follow(response.status, location, checked)
            return None
        if self._method != "HEAD" and response.status not in NO_BODY:
            self._refuse_length(headers.get("content-length", ""))
        return Body(headers.get("content-encoding", ""), self._limits, self.deadline)

    def _follow(self, status: int, location: str, checked: CheckedUrl) -> None:
        if self._redirects == self._limits.max_redirects:
            raise FetchFailed("redirects")
        self._redirects += 1
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


def _payload(options: RequestOptions) -> tuple[bytes, dict[str, str]]:
    headers = {"user-agent": "lqops", "accept": "*/*"}
    content = options.get("content", b"")
    if "json" in options:
        content = json.dumps(options["json"], ensure_ascii=False)
        headers["content-type"] = "application/json"
    given = {name.lower(): value for name, value in options.get("headers", {}).items()}
    headers |= {name: value for name, value in given.items() if name not in CLIENT_HEADERS}
    return content.encode() if isinstance(content, str) else content, headers


@contextmanager
def translated_errors(*protocol: type[Exception]) -> Iterator[None]:
    """Raise errors of a connection as FetchFailed: their own texts may quote the request or the response.

    `protocol` lists further errors that mean an invalid response.
    """
    invalid: tuple[type[Exception], ...] = (httpcore.RemoteProtocolError, *protocol)
    try:
        yield
    except TimeoutError:
        raise FetchFailed("deadline") from None
    except SSLError:
        raise FetchFailed("tls") from None
    except invalid:
        raise FetchFailed("protocol") from None
    except (httpcore.ProtocolError, UnicodeError):
        raise FetchFailed("request") from None
    except (httpcore.NetworkError, OSError, EOFError):
        raise FetchFailed("connection") from None


# --- Clients ---

MAX_CHECKS = 64  # at a time


class AsyncSafeClient(_Client):
    """Fetches inside an event loop. It belongs to one loop at a time."""

    @cached_property
    def _checks(self) -> ThreadPoolExecutor:
        """Threads of its own: a slow name server must not use up the few default threads of the loop."""
        return ThreadPoolExecutor(MAX_CHECKS, thread_name_prefix="url-check")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._checks.shutdown(wait=False)

    async def get(self, url: str, **options: Unpack[RequestOptions]) -> SafeResponse:
        return await self.request("GET", url, **options)

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> SafeResponse:
        async with self.stream(method, url, **options) as response:
            return await response.read()

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Unpack[RequestOptions]) -> AsyncIterator[AsyncSafeStream]:
        async with AsyncExitStack() as opened:
            yield await Exchange(self, method, url, options).open(opened)

    async def run_check(self, check: Check, deadline: Deadline) -> CheckedUrl:
        with translated_errors():
            async with asyncio.timeout(deadline.left()):
                return await asyncio.get_running_loop().run_in_executor(self._checks, check)


class SafeClient(_Client):
    """Fetches in a thread that may block. Threads may share it; each request closes what it opened.

    Each request runs the asynchronous code in an event loop of its own, in the calling thread. So it cannot be used
    inside a coroutine: that needs AsyncSafeClient.
    """

    def get(self, url: str, **options: Unpack[RequestOptions]) -> SafeResponse:
        return self.request("GET", url, **options)

    def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> SafeResponse:
        with self.stream(method, url, **options) as response:
            return response.read()

    @contextmanager
    def stream(self, method: str, url: str, **options: Unpack[RequestOptions]) -> Iterator[SafeStream]:
        exchange = Exchange(self, method, url, options)
        # With a factory, the runner leaves the thread's current event loop as it is.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            opened = AsyncExitStack()
            try:
                yield SafeStream(runner.run(exchange.open(opened)), runner)
            finally:
                runner.run(opened.aclose())
