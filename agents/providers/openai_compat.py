"""Any server that speaks the OpenAI chat-completions protocol: hosted ones, Ollama, vLLM, llama.cpp.

It asks once per call; whether to ask again is decided elsewhere, on the facts of the error. The key is read by its
handle when it is needed and stands in no row, log line or error.
"""

import codecs
import email.utils
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpcore
import httpx

from agents.conf import clock
from agents.providers.base import Chunk, Fault, ProviderError, fault_of_status, usage_of_status
from agents.providers.transport import Assembly, Patience, Wire, consume, ended_once, reply_of
from agents.types import SCHEMA_STYLES, ModelReply, ModelRequest, Usage
from audit.kinds import LABEL
from audit.redaction import redact

MAX_REPLY_BYTES = 20 * 1024 * 1024
MAX_ERROR_BYTES = 8 * 1024
MAX_LINE_CHARS = 2 * 1024 * 1024
_OK = 200
_NOT_REACHED = (httpcore.ConnectError, httpcore.ConnectTimeout, httpx.ConnectError, httpx.ConnectTimeout)

_ADVICE = {
    Fault.AUTH: "check the key of this model ({key})",
    Fault.NOT_SERVED: "check the address and the model's name",
    Fault.RATE_LIMITED: "the server asks to slow down",
    Fault.INVALID_REQUEST: "the server does not accept this request",
    Fault.SERVER: "the server failed; it may work again later",
    Fault.TIMEOUT: "the server gave up waiting",
}

# How a server is asked for JSON of a given shape.
_FORMATS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "json_schema": lambda schema: {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    "json_object": lambda schema: {"type": "json_object", "schema": schema},
}


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served. `key` reads the secret when it is needed; `key_name` is what an error may say of it."""

    url: str
    model: str
    key: Callable[[], str] = lambda: ""
    key_name: str = "no key is configured"
    schema_style: str = "json_schema"
    token_limit_name: str = "max_tokens"  # noqa: S105 the name of a field
    patience: Patience = field(default_factory=Patience)
    connections: int = 8


class OpenAICompatible:
    def __init__(self, name: str, endpoint: Endpoint, *, transport: httpx.BaseTransport | None = None) -> None:
        self.name = name
        self._endpoint = endpoint
        self._style = endpoint.schema_style
        self._client = httpx.Client(
            transport=transport or Wire(endpoint.patience, connections=endpoint.connections),
            trust_env=False,
            follow_redirects=False,
        )

    def complete(self, request: ModelRequest) -> ModelReply:
        started = time.monotonic()
        with self._answer(request, stream=False) as answer:
            reply = reply_of(_json(_read(answer, MAX_REPLY_BYTES)), provider=self.name, request_id=_request_id(answer))
        return _timed(reply, started)

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        """As complete, handing text on as it comes; `on_chunk` may raise to cancel, which closes the connection."""
        started, assembly, request_id = time.monotonic(), Assembly(), ""
        try:
            with ended_once(on_chunk) as on_text, self._answer(request, stream=True) as answer:
                request_id = _request_id(answer)
                consume(_lines(answer), assembly, on_text)
        except ProviderError as error:
            error.began, error.usage = bool(assembly.text), error.usage or assembly.usage
            raise
        return _timed(assembly.reply(provider=self.name, request_id=request_id), started)

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _answer(self, request: ModelRequest, *, stream: bool) -> Iterator[httpx.Response]:
        """The server's answer when it is a 200; an explained ProviderError for everything else."""
        endpoint = self._endpoint
        headers = {"Accept-Encoding": "identity", "User-Agent": "lqops"}
        if key := endpoint.key():
            headers["Authorization"] = f"Bearer {key}"
        url = endpoint.url.rstrip("/") + "/chat/completions"
        body = payload_of(request, endpoint, stream=stream, style=self._style)
        try:
            with self._client.stream("POST", url, headers=headers, json=body) as answer:
                if answer.status_code != _OK:
                    raise self._other_style(_refused(answer, endpoint), asked=body)
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise ProviderError("The model server packed its answer unasked.", fault=Fault.MALFORMED)
                yield answer
        except _NOT_REACHED as error:
            message = f"{endpoint.url} cannot be reached ({type(error).__name__}): is the model server running there?"
            raise ProviderError(message, fault=Fault.CONNECTION, contacted=False) from None
        except (httpcore.TimeoutException, httpx.TimeoutException):
            raise ProviderError(f"{endpoint.url} took too long to answer.", fault=Fault.TIMEOUT) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpx.TransportError) as error:
            message = f"The connection to {endpoint.url} broke ({type(error).__name__})."
            raise ProviderError(message, fault=Fault.CONNECTION) from None

    def _other_style(self, error: ProviderError, *, asked: dict[str, Any]) -> ProviderError:
        """Servers differ in how they take a schema. One that objects to a form is asked in the next one, at once."""
        if "response_format" not in asked or "response_format" not in str(error):
            return error
        self._style = SCHEMA_STYLES[SCHEMA_STYLES.index(self._style) + 1]
        return ProviderError(str(error), fault=Fault.SERVER, usage=Usage(0, 0), retry_after=0.0)


def payload_of(request: ModelRequest, endpoint: Endpoint, *, stream: bool, style: str) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "model": endpoint.model,
        "messages": list(request.messages),
        endpoint.token_limit_name: request.max_tokens,
        "stream": stream,
    }
    if stream:
        payload["stream_options"] = {"include_usage": True}
    if request.tools:
        payload["tools"] = list(request.tools)
    if request.response_schema is not None and style != "off":
        payload["response_format"] = _FORMATS[style](request.response_schema)
    optional = {"temperature": request.temperature, "seed": request.seed, "stop": list(request.stop) or None}
    return payload | {name: value for name, value in optional.items() if value is not None}


def _refused(answer: httpx.Response, endpoint: Endpoint) -> ProviderError:
    """What the server said, explained, cut and without secrets."""
    status = answer.status_code
    fault = fault_of_status(status)
    said = redact(_read(answer, MAX_ERROR_BYTES, cut=True).decode("utf-8", "replace"))[:300].strip()
    advice = _ADVICE[fault].format(key=endpoint.key_name)
    return ProviderError(
        f"{status} from {endpoint.url}: {advice}. The server said: {said or 'nothing'}",
        fault=fault,
        usage=usage_of_status(status),
        retry_after=_retry_after(answer.headers.get("retry-after", "")),
    )


def _retry_after(value: str) -> float | None:
    """Seconds, or a date; what is neither is no advice."""
    try:
        return max(float(value), 0.0) if value.strip().replace(".", "", 1).isdigit() else _until(value)
    except (TypeError, ValueError):
        return None


def _until(value: str) -> float:
    return max((email.utils.parsedate_to_datetime(value) - clock()).total_seconds(), 0.0)


def _read(answer: httpx.Response, most: int, *, cut: bool = False) -> bytes:
    """The body, never more than `most` bytes of it in memory."""
    body = bytearray()
    for part in answer.iter_raw(65_536):
        body += part[: most - len(body)]
        if len(body) >= most:
            if cut:
                break
            raise ProviderError(f"The model server's answer is longer than {most} bytes.", fault=Fault.MALFORMED)
    return bytes(body)


def _lines(answer: httpx.Response) -> Iterator[str]:
    """Lines of the stream as they come; what is not UTF-8 is replaced, and a line without end is refused."""
    decoder, rest, total = codecs.getincrementaldecoder("utf-8")("replace"), "", 0
    for part in answer.iter_raw():
        total += len(part)
        rest += decoder.decode(part)
        *lines, rest = rest.split("\n")
        if len(rest) > MAX_LINE_CHARS or total > MAX_REPLY_BYTES:
            raise ProviderError("The model server's stream has no end.", fault=Fault.MALFORMED)
        yield from (line.rstrip("\r") for line in lines)
    if rest:
        yield rest


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ProviderError("The model server answered with half a JSON.", fault=Fault.MALFORMED) from None


def _request_id(answer: httpx.Response) -> str:
    """As the server calls it; anything but a plain label is not kept."""
    named = str(answer.headers.get("x-request-id", ""))
    return named if LABEL.fullmatch(named) else ""


def _timed(reply: ModelReply, started: float) -> ModelReply:
    return replace(reply, latency_ms=round((time.monotonic() - started) * 1_000))
