"""Any server that speaks the OpenAI chat-completions protocol: hosted ones, Ollama, vLLM, llama.cpp.

It asks once per call; the caller decides about retries. Missing or odd values in an answer have a defined reading;
nothing is guessed. The key is read when it is needed and stands in no row, log line or error.
"""

import codecs
import email.utils
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpcore
import httpx

from agents.conf import clock
from agents.providers.base import Chunk, Fault, ProviderError, ended_once, fault_of_status
from agents.providers.proxies import Proxy
from agents.providers.transport import BoundedTransport, Timeouts, interrupted_by, token_came
from agents.types import WIRE_FORMS, ModelReply, ModelRequest, RequestedCall, Usage
from audit.kinds import LABEL
from audit.redaction import redact

logger = logging.getLogger(__name__)

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


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served. `key` reads the secret when it is needed; `key_name` is what an error may say of it."""

    url: str
    model: str
    key: Callable[[], str] = lambda: ""
    key_name: str = "no key is configured"
    key_header: str = "Authorization"
    extra: Mapping[str, Any] = field(default_factory=dict)  # further fields of every request
    timeouts: Timeouts = field(default_factory=Timeouts)
    connections: int = 8
    proxy: Proxy | None = None

    @property
    def address(self) -> str:
        """Where requests go: the path of chat completions below the URL, before its query."""
        base, mark, query = self.url.partition("?")
        return f"{base.rstrip('/')}/chat/completions{mark}{query}"

    @property
    def place(self) -> str:
        """The URL as errors say it: without its query, which may hold a secret, and with its proxy."""
        by = f" (by the proxy of {self.proxy.variable})" if self.proxy else ""
        return self.url.partition("?")[0] + by


class OpenAICompatible:
    def __init__(self, name: str, endpoint: Endpoint, *, transport: httpx.BaseTransport | None = None) -> None:
        self.name = name
        self._endpoint = endpoint
        self._client = httpx.Client(
            transport=transport
            or BoundedTransport(endpoint.timeouts, connections=endpoint.connections, proxy=endpoint.proxy),
            trust_env=False,
            follow_redirects=False,
        )

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        assembly = Assembly()
        with interrupted_by(lambda: on_chunk(Chunk())) as has_sent:
            try:
                with ended_once(on_chunk) as on_text, self._answer(request) as answer:
                    is_whole = answer.headers.get("content-type", "").startswith("application/json")
                    if is_whole:
                        _take_whole(_json(_read(answer, MAX_REPLY_BYTES)), assembly, on_text)
                    else:
                        _consume(_lines(answer), assembly, on_text)
                    reply = assembly.reply(request_id=_request_id(answer))
                    return replace(reply, form=request.form, streamed=not is_whole)
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
        endpoint = self._endpoint
        headers = {"Accept-Encoding": "identity", "User-Agent": "lqops"}
        if key := endpoint.key():
            headers[endpoint.key_header] = f"Bearer {key}" if endpoint.key_header == "Authorization" else key
        body = payload_of(request, endpoint)
        try:
            with self._client.stream("POST", endpoint.address, headers=headers, json=body) as answer:
                if answer.status_code != _OK:
                    raise _in_another_form(_refusal(answer, endpoint), request, body)
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise ProviderError("The model server compressed its answer unasked.", fault=Fault.MALFORMED)
                yield answer
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


# --- The request ---


_FORMATS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "json_schema": lambda schema: {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    "json_object": lambda schema: {"type": "json_object", "schema": schema},
}


def payload_of(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    form = request.form
    payload: dict[str, Any] = {
        **endpoint.extra,
        "model": endpoint.model,
        "messages": list(request.messages),
        form.token_limit: request.max_tokens,
        "stream": True,
    }
    if form.stream_usage == "ask":
        payload["stream_options"] = {"include_usage": True}
    if request.tools:
        payload["tools"] = list(request.tools)
    if request.response_schema is not None and form.schema_style != "off":
        payload["response_format"] = _FORMATS[form.schema_style](request.response_schema)
    optional = {"temperature": request.temperature, "seed": request.seed, "stop": list(request.stop) or None}
    return payload | {name: value for name, value in optional.items() if value is not None}


# --- Servers differ in what they take: one that objects to a part of a request is asked at once in another form ---


# What a server says when it does not take that part.
_OBJECTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    "schema_style": re.compile(r"response_format"),
    "stream_usage": re.compile(r"stream_options"),
    "token_limit": re.compile(r"max_completion_tokens"),
    # A template that knows no tools may say so as one that knows no system message does: that is tried next.
    "tools": re.compile(
        r"not support (?:tools|tool|function)|support tool use|function calling is not|tool choice requires"
        r"|\btools?\b.{0,60}(?:not support|not enabled|requires? -)|single tool.calls"
        r"|roles? must alternate|\bonly\b.{0,30}\broles are supported",
        re.IGNORECASE,
    ),
    "system": re.compile(
        r"(?:system|developer)\W{0,3} ?(?:role|message|prompt|instruction)s?\b.{0,40}\bnot\b.{0,20}"
        r"(?:support|allow|enabled)|roles? must alternate|\bonly\b.{0,30}\broles are supported",
        re.IGNORECASE,
    ),
}


def _in_another_form(error: ProviderError, request: ModelRequest, asked: Mapping[str, Any]) -> ProviderError:
    """Return an error that says in which form to ask again, if the server objects to something that was sent."""
    sent = {
        "schema_style": "response_format" in asked,
        "stream_usage": "stream_options" in asked,
        "token_limit": "max_tokens" in asked,
        "system": request.messages[0]["role"] == "system",
        "tools": "tools" in asked or any(message["role"] == "tool" for message in request.messages),
    }
    for part, objection in _OBJECTIONS.items():
        others = WIRE_FORMS[part][WIRE_FORMS[part].index(getattr(request.form, part)) + 1 :]
        if sent[part] and others and objection.search(str(error)):
            form = replace(request.form, **{part: others[0]})
            return ProviderError(str(error), fault=Fault.FORM, usage=Usage(0, 0), form=form)
    return error


# --- The reply ---


DONE = "[DONE]"
UNREADABLE = "{"
_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


@dataclass
class Assembly:
    """The parts of a reply so far. A reply in one piece is a stream of one event."""

    text: list[str] = field(default_factory=list)
    refusal: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage | None = None
    finish_reason: str | None = None
    is_done: bool = False
    received_bytes: int = 0

    def add(self, event: dict[str, Any]) -> str:
        """Take in one event and return its text."""
        self.usage = usage_of(event.get("usage")) or self.usage
        choice = _choice(event) or {}
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        message = choice.get("delta") or choice.get("message") or {}
        if any(value for name, value in message.items() if name != "role"):  # text, calls, reasoning, a refusal
            token_came()
        for number, part in enumerate(message.get("tool_calls") or []):
            if isinstance(part, dict):
                self._add_call(part, number)
        refusal = str(message.get("refusal") or "")
        self.refusal += refusal
        text = message.get("content")
        text = text if isinstance(text, str) else ""
        self.text.append(text)
        self.received_bytes += len((text + refusal).encode("utf-8", "replace"))
        return text

    def _add_call(self, part: dict[str, Any], number: int) -> None:
        index = part.get("index")
        place = index if isinstance(index, int) else number
        call = self.calls.setdefault(place, {"id": "", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] = str(part.get("id") or call["id"])
        name = str(function.get("name") or "")
        arguments = str(function.get("arguments") or "")
        call["name"] += name
        call["arguments"] += arguments
        self.received_bytes += len((name + arguments).encode("utf-8", "replace"))

    @property
    def has_ended(self) -> bool:
        """Whether the server marked the end, in either way; otherwise the stream just stopped."""
        return self.is_done or self.finish_reason is not None

    def reply(self, *, request_id: str = "") -> ModelReply:
        """The whole reply. An unknown stop reason is a normal end; with calls it is a wish to use them."""
        calls = tuple(self._call(self.calls[index]) for index in sorted(self.calls))
        stop_reason = _STOP_REASONS.get(str(self.finish_reason), "tool_use" if calls else "end_turn")
        return ModelReply(
            text="".join(self.text) or self.refusal,
            usage=self.usage,
            stop_reason="refusal" if self.refusal else stop_reason,
            calls=calls,
            request_id=request_id,
        )

    def _call(self, call: dict[str, str]) -> RequestedCall:
        """A call whose arguments had not begun when the stream just stopped gets arguments that nobody can read."""
        is_cut = not self.has_ended and not call["arguments"].strip()
        return RequestedCall(**{**call, "arguments": UNREADABLE} if is_cut else call)


def _choice(event: dict[str, Any]) -> dict[str, Any] | None:
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def usage_of(reported: object) -> Usage | None:
    """None unless both counts are whole numbers, 0 or more: a report that cannot be read is no report."""
    if not isinstance(reported, dict):
        return None
    counts = [reported.get("prompt_tokens"), reported.get("completion_tokens", 0)]
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
        return None
    return Usage(*counts)


def _take_whole(answer: object, assembly: Assembly, on_text: Callable[[str], None]) -> None:
    """Read a reply in one piece, from a server that does not stream."""
    if not isinstance(answer, dict):
        raise ProviderError("The model server's answer is not an object.", fault=Fault.MALFORMED)
    text = assembly.add(answer)
    if _choice(answer) is None:
        raise ProviderError("The model server's answer holds no choice.", fault=Fault.MALFORMED)
    assembly.is_done = True
    if text:
        on_text(text)


def _consume(lines: Iterable[str], assembly: Assembly, on_text: Callable[[str], None]) -> None:
    """Read a stream, passing text on as it comes. One that just stops is taken for what it brought."""
    for event in _events(lines):
        if isinstance(event, str):
            assembly.is_done = True
            break
        if error := event.get("error"):
            message = error.get("message") if isinstance(error, dict) else error
            raise ProviderError(f"The model server broke off: {redact(str(message))}", fault=Fault.SERVER)
        if text := assembly.add(event):
            on_text(text)
    if not assembly.has_ended:
        logger.warning("a stream was closed without an end mark; what came in is taken as the reply")


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any] | str]:
    """The data of each server-sent event: an object, or the end mark. Comments, names and ids are skipped."""
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == DONE:
            yield DONE
            return
        if not data:
            continue
        try:
            event = json.loads(data)
        except ValueError:
            raise ProviderError("The model server sent an incomplete event.", fault=Fault.MALFORMED) from None
        if not isinstance(event, dict):
            raise ProviderError("The model server sent an event that is not an object.", fault=Fault.MALFORMED)
        yield event


# --- Reading an answer ---


def _refusal(answer: httpx.Response, endpoint: Endpoint) -> ProviderError:
    """The server's own words, explained, shortened and without secrets."""
    status = answer.status_code
    fault = fault_of_status(status)
    message = redact(_read(answer, MAX_ERROR_BYTES, cut=True).decode("utf-8", "replace"))[:300].strip()
    advice = _ADVICE[fault].format(key=endpoint.key_name)
    return ProviderError(
        f"{status} from {endpoint.place}: {advice}. The server said: {message or 'nothing'}",
        fault=fault,
        usage=Usage(0, 0),  # nothing was generated
        retry_after=_retry_after(answer.headers.get("retry-after", "")),
    )


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


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ProviderError("The model server's answer is not valid JSON.", fault=Fault.MALFORMED) from None


def _request_id(answer: httpx.Response) -> str:
    """The server's id of the request; anything but a plain label is dropped."""
    named = str(answer.headers.get("x-request-id", ""))
    return named if LABEL.fullmatch(named) else ""
