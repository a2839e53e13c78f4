"""Asks a model server over HTTP, whatever protocol it speaks: sends, reads the stream, explains what went wrong.

It asks once per call; the caller decides about retries. The key is read when it is needed and stands in no row, log
line or error. What a protocol has of its own, its requests and its events, is in a module of its own.
"""

import codecs
import email.utils
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import httpcore
import httpx

from agents.conf import clock
from agents.net.urls import UrlRefused
from agents.providers.base import Chunk, Fault, ProviderError, ended_once, fault_of_status
from agents.providers.proxies import Proxy
from agents.providers.transport import BoundedTransport, Timeouts, interrupted_by, token_came
from agents.types import ModelReply, ModelRequest, Usage
from audit.kinds import LABEL
from audit.redaction import redact, redact_exception

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 20 * 1024 * 1024
MAX_ERROR_BYTES = 8 * 1024
MAX_LINE_CHARS = 2 * 1024 * 1024
DONE: Final = "[DONE]"
UNREADABLE: Final = "{"  # the arguments of a call that was cut off before they began
_OK = 200
_NOT_REACHED = (httpcore.ConnectError, httpcore.ConnectTimeout, httpx.ConnectError, httpx.ConnectTimeout)
_BROKEN = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpx.HTTPError,
    OSError,
)
_SERVER_ERRORS: Final = 500
_NOT_READY: Final = frozenset({408, 425, 429})  # a server, or a proxy in front of it, that asks to come later
_REQUEST_IDS: Final = ("x-request-id", "request-id")

_ADVICE = {
    Fault.AUTH: "the server refused {key}",
    Fault.NOT_SERVED: "check the address and the model's name",
    Fault.RATE_LIMITED: "the server asks to slow down",
    Fault.INVALID_REQUEST: "the server does not accept this request",
    Fault.SERVER: "the server failed; it may work again later",
    Fault.TIMEOUT: "the server gave up waiting",
}


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served. `key` reads the secret when it is needed; `key_name` is the variable that holds it."""

    url: str
    model: str
    key: Callable[[], str] = lambda: ""
    key_name: str = ""
    key_header: str = "Authorization"
    extra: Mapping[str, Any] = field(default_factory=dict)  # further fields of every request
    reasoning: bool | int | str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    connections: int = 8
    proxy: Proxy | None = None
    gated: bool = False  # whether the URL gate applies: the address is not the deployment's

    def address(self, path: str) -> str:
        """Where requests go: a path below the URL, before its query."""
        base, mark, query = self.url.partition("?")
        return f"{base.rstrip('/')}/{path}{mark}{query}"

    @property
    def place(self) -> str:
        """The server as errors name it: its host, since a path or a query may hold a secret, and its proxy."""
        parts = urlsplit(self.url)
        by = f" (by the proxy of {self.proxy.variable})" if self.proxy else ""
        return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{by}"


def headers_of(endpoint: Endpoint) -> dict[str, str]:
    """Return the headers of every request, with the key."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "lqops"}
    if key := endpoint.key():
        headers[endpoint.key_header] = f"Bearer {key}" if endpoint.key_header == "Authorization" else key
    return headers


class Assembly(Protocol):
    """The parts of a reply so far. A reply in one piece is a stream of one event."""

    usage: Usage | None
    is_done: bool
    received_bytes: int

    def add(self, event: dict[str, Any]) -> Chunk:
        """Take in one event of a stream."""

    def add_whole(self, answer: dict[str, Any]) -> Chunk:
        """Take in a reply in one piece."""

    def close(self) -> Chunk:
        """Take note that no more comes; return what was held back."""

    def reply(self) -> ModelReply: ...


class HttpProvider(ABC):
    """A model behind an HTTP server. A subclass speaks the protocol."""

    path = ""
    headers: Mapping[str, str] = {}

    def __init__(self, name: str, endpoint: Endpoint, *, transport: httpx.BaseTransport | None = None) -> None:
        self.name = name
        self.endpoint = endpoint
        self._client = httpx.Client(
            transport=transport
            or BoundedTransport(
                endpoint.timeouts, connections=endpoint.connections, proxy=endpoint.proxy, gated=endpoint.gated
            ),
            trust_env=False,
            follow_redirects=False,
        )

    @abstractmethod
    def payload(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request."""

    @abstractmethod
    def assembly(self, request: ModelRequest) -> Assembly:
        """Return what puts the reply together."""

    @abstractmethod
    def explained(self, error: ProviderError, request: ModelRequest, sent: Mapping[str, Any]) -> ProviderError:
        """Return the error of a refused request, or one that says in which form to ask again."""

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        assembly = self.assembly(request)
        with interrupted_by(lambda: on_chunk(Chunk())) as has_sent:
            try:
                with ended_once(on_chunk), self._answer(request) as answer:
                    is_whole = answer.headers.get("content-type", "").startswith("application/json")
                    if is_whole:
                        _hand_on(assembly.add_whole(_object(_read(answer, MAX_REPLY_BYTES))), on_chunk)
                    else:
                        _consume(_lines(answer), assembly, on_chunk)
                    _hand_on(assembly.close(), on_chunk)
                    reply = assembly.reply()
                    return replace(reply, form=request.form, streamed=not is_whole, request_id=_request_id(answer))
            except ProviderError as error:
                error.contacted = error.contacted and has_sent()
                error.received_bytes = assembly.received_bytes
                error.usage = error.usage or assembly.usage
                raise

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _answer(self, request: ModelRequest) -> Iterator[httpx.Response]:
        """The server's answer when it is a 200; an explained ProviderError for everything else."""
        endpoint = self.endpoint
        headers = {**headers_of(endpoint), **self.headers}
        body = self.payload(request)
        try:
            with self._client.stream("POST", endpoint.address(self.path), headers=headers, json=body) as answer:
                if answer.status_code != _OK:
                    raise self.explained(_refusal(answer, endpoint), request, body)
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise ProviderError("The model server compressed its answer unasked.", fault=Fault.MALFORMED)
                yield answer
        except UrlRefused as error:
            raise ProviderError(f"{endpoint.place}: {error}", fault=Fault.NOT_SERVED, contacted=False) from None
        except _NOT_REACHED as error:
            message = f"{endpoint.place} cannot be reached ({type(error).__name__}): is the model server running there?"
            raise ProviderError(message, fault=Fault.CONNECTION, contacted=False) from None
        except httpcore.ProxyError as error:
            message = f"The proxy did not connect to {endpoint.place}: {redact(str(error))[:100]}."
            raise ProviderError(message, fault=Fault.CONNECTION, contacted=False) from None
        except (httpcore.TimeoutException, httpx.TimeoutException):
            raise ProviderError(f"{endpoint.place} took too long to answer.", fault=Fault.TIMEOUT) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpx.TransportError) as error:
            message = f"The connection to {endpoint.place} broke ({type(error).__name__})."
            raise ProviderError(message, fault=Fault.CONNECTION) from None


# --- Asking for free ---


def answers(endpoint: Endpoint, path: str, timeouts: Timeouts) -> bool:
    """Return whether the server answers a GET for itself, be it with a refusal. Nothing is sent but the key."""
    transport = BoundedTransport(timeouts, connections=1, proxy=endpoint.proxy, gated=endpoint.gated)
    try:
        with (
            httpx.Client(transport=transport, trust_env=False, follow_redirects=False) as client,
            client.stream("GET", endpoint.address(path), headers=headers_of(endpoint)) as answer,
        ):
            return answer.status_code < _SERVER_ERRORS and answer.status_code not in _NOT_READY
    except (*_BROKEN, UrlRefused) as error:
        logger.info("%s does not answer: %s", endpoint.place, redact_exception(error))
        return False


# --- Reading an answer ---


def count_of(value: object) -> int | None:
    """Return a count that a server reported; None for anything but a whole number, 0 or more."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _hand_on(chunk: Chunk, on_chunk: Callable[[Chunk], None]) -> None:
    if chunk.text or chunk.is_thought:
        on_chunk(chunk)


def _consume(lines: Iterable[str], assembly: Assembly, on_chunk: Callable[[Chunk], None]) -> None:
    """Read a stream, passing text on as it comes."""
    for event in _events(lines):
        if error := event.get("error"):
            message = error.get("message") if isinstance(error, dict) else error
            raise ProviderError(f"The model server broke off: {redact(str(message))}", fault=Fault.SERVER)
        _hand_on(assembly.add(event), on_chunk)
        if assembly.is_done:
            return


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The data of each server-sent event; the end mark is an event of its own. Comments, names and ids are skipped."""
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == DONE:
            yield {DONE: True}
        elif data:
            yield _event(data)


def _event(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise ProviderError("The model server sent an incomplete event.", fault=Fault.MALFORMED) from None
    if not isinstance(event, dict):
        raise ProviderError("The model server sent an event that is not an object.", fault=Fault.MALFORMED)
    return event


def _refusal(answer: httpx.Response, endpoint: Endpoint) -> ProviderError:
    """The server's own words, explained, shortened and without secrets."""
    status = answer.status_code
    fault = fault_of_status(status)
    message = redact(_read(answer, MAX_ERROR_BYTES, cut=True).decode("utf-8", "replace"))[:300].strip()
    advice = _ADVICE[fault].format(key=_key_advice(endpoint))
    return ProviderError(
        f"{status} from {endpoint.place}: {advice}. The server said: {message or 'nothing'}",
        fault=fault,
        usage=Usage(0, 0),  # nothing was generated
        retry_after=_retry_after(answer.headers.get("retry-after", "")),
    )


def _key_advice(endpoint: Endpoint) -> str:
    """What to do about a refused key: which variable holds it, or that there is none."""
    if not endpoint.key_name:
        return "a request without a key: name the variable that holds it in key_env"
    if not endpoint.key():
        return f"a request without a key: {endpoint.key_name} is empty; set it and start lqops again"
    return f"the key in {endpoint.key_name}: set the right one, with access to {endpoint.model}, and start lqops again"


def _retry_after(value: str) -> float | None:
    """Seconds, or a date; anything else is ignored."""
    try:
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max((email.utils.parsedate_to_datetime(value) - clock()).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None


def _read(answer: httpx.Response, most: int, *, cut: bool = False) -> bytes:
    """The body, never more than `most` bytes of it in memory."""
    body = bytearray()
    for part in answer.iter_raw(65_536):
        token_came()
        body += part[: most - len(body)]
        if len(body) >= most:
            if cut:
                break
            raise ProviderError(f"The model server's answer is longer than {most} bytes.", fault=Fault.MALFORMED)
    return bytes(body)


def _lines(answer: httpx.Response) -> Iterator[str]:
    """Lines of the stream as they come; invalid UTF-8 is replaced, and a line without end is refused."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    total = 0
    for part in answer.iter_raw():
        total += len(part)
        rest += decoder.decode(part)
        *lines, rest = rest.split("\n")
        if len(rest) > MAX_LINE_CHARS or total > MAX_REPLY_BYTES:
            raise ProviderError("The model server's stream has no end.", fault=Fault.MALFORMED)
        yield from (line.rstrip("\r") for line in lines)
    if rest:
        yield rest


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ProviderError("The model server's answer is not valid JSON.", fault=Fault.MALFORMED) from None
    if not isinstance(answer, dict):
        raise ProviderError("The model server's answer is not an object.", fault=Fault.MALFORMED)
    return answer


def _request_id(answer: httpx.Response) -> str:
    """The server's id of the request; anything but a plain label is dropped."""
    named = next((str(answer.headers[name]) for name in _REQUEST_IDS if name in answer.headers), "")
    return named if LABEL.fullmatch(named) else ""
