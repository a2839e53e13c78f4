"""Server-sent events of a chat completion, put together again: text, tool calls, usage, and exactly one end.

Every stream ends with one chunk marked `finished`: at its normal end, when it breaks or never begins (before the error
goes on), and when it just stops. Whoever waits for the end never waits in vain.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from ssl import SSLContext
from typing import Any, Final

import httpcore
import httpx

from agents.providers.base import Chunk, Fault, ProviderError
from agents.types import ModelReply, RequestedCall, Usage
from audit.redaction import redact

logger = logging.getLogger(__name__)


# Reads what an OpenAI-compatible server answers. What is missing or odd has a defined reading; nothing is guessed.


_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def stop_reason_of(finish_reason: object, *, has_calls: bool) -> str:
    """An unknown or missing reason is a normal end; with calls it is a wish to use them."""
    fallback = "tool_use" if has_calls else "end_turn"
    return _STOP_REASONS.get(finish_reason, fallback) if isinstance(finish_reason, str) else fallback


def usage_of(reported: object) -> Usage | None:
    """None unless both counts are whole numbers, 0 or more: a report that cannot be read is no report."""
    if not isinstance(reported, dict):
        return None
    counts = [reported.get("prompt_tokens"), reported.get("completion_tokens", 0)]
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
        return None
    return Usage(*counts)


def reply_of(answer: object, *, provider: str, request_id: str = "") -> ModelReply:
    if not isinstance(answer, dict):
        raise ProviderError("The model server answered with something that is not an object.", fault=Fault.MALFORMED)
    usage = usage_of(answer.get("usage"))
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ProviderError("The model server's answer holds no choice.", fault=Fault.MALFORMED, usage=usage)
    message = choices[0].get("message") or {}
    calls = tuple(_call(call) for call in message.get("tool_calls") or [] if isinstance(call, dict))
    text = message.get("content")
    refused = bool(message.get("refusal"))
    return ModelReply(
        text=text if isinstance(text, str) else (message.get("refusal") or "" if refused else ""),
        usage=usage,
        stop_reason="refusal" if refused else stop_reason_of(choices[0].get("finish_reason"), has_calls=bool(calls)),
        provider=provider,
        calls=calls,
        request_id=request_id,
    )


def _call(call: dict[str, Any]) -> RequestedCall:
    function = call.get("function") or {}
    return RequestedCall(
        id=str(call.get("id") or ""),
        name=str(function.get("name") or ""),
        arguments=str(function.get("arguments") or ""),
    )


DONE = "[DONE]"
UNREADABLE = "{"


@dataclass
class Assembly:
    """What has come in so far."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage | None = None
    finish_reason: str | None = None
    done: bool = False
    refused: bool = False

    def add(self, event: dict[str, Any]) -> str:
        """Takes one event in and gives back its text."""
        self.usage = usage_of(event.get("usage")) or self.usage
        choices = event.get("choices") or [{}]
        choice = choices[0] if isinstance(choices, list) and isinstance(choices[0], dict) else {}
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        delta = choice.get("delta") or {}
        for part in delta.get("tool_calls") or []:
            self._add_call(part)
        if delta.get("refusal"):
            self.refused = True
        text = delta.get("content")
        if not isinstance(text, str):
            return ""
        self.text.append(text)
        return text

    def _add_call(self, part: dict[str, Any]) -> None:
        call = self.calls.setdefault(int(part.get("index") or 0), {"id": "", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""

    @property
    def has_ended(self) -> bool:
        """Whether the server said so, in either way; else it just stopped."""
        return self.done or self.finish_reason is not None

    def _call(self, call: dict[str, str]) -> RequestedCall:
        """What was to come behind the name of a call when the stream just stopped, nobody knows: it cannot be read."""
        is_cut = not self.has_ended and not call["arguments"].strip()
        return RequestedCall(**{**call, "arguments": UNREADABLE} if is_cut else call)

    def reply(self, *, provider: str, request_id: str = "") -> ModelReply:
        calls = tuple(self._call(self.calls[index]) for index in sorted(self.calls))
        return ModelReply(
            text="".join(self.text),
            usage=self.usage,
            stop_reason="refusal" if self.refused else stop_reason_of(self.finish_reason, has_calls=bool(calls)),
            provider=provider,
            calls=calls,
            request_id=request_id,
        )


def events_of(lines: Iterable[str]) -> Iterator[dict[str, Any] | str]:
    """The data of each event: an object, or the closing mark. Comments, names and ids are passed over."""
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
            raise ProviderError("The model server sent half an event.", fault=Fault.MALFORMED) from None
        if not isinstance(event, dict):
            raise ProviderError("The model server sent an event that is not an object.", fault=Fault.MALFORMED)
        yield event


def consume(lines: Iterable[str], assembly: Assembly, on_text: Callable[[str], None]) -> None:
    """Takes a stream in, handing text on as it comes. One that just stops is taken for what it brought."""
    for event in events_of(lines):
        if isinstance(event, str):
            assembly.done = True
            break
        if error := event.get("error"):
            message = error.get("message") if isinstance(error, dict) else error
            raise ProviderError(f"The model server broke off: {redact(str(message))}", fault=Fault.SERVER)
        if text := assembly.add(event):
            on_text(text)
    if not assembly.has_ended:
        logger.warning("a stream was closed without an end mark; what came in is taken as the reply")


@contextmanager
def ended_once(on_chunk: Callable[[Chunk], None]) -> Iterator[Callable[[str], None]]:
    """Gives a way to hand text on, and marks the end exactly once, before any error goes on."""
    try:
        yield lambda text: on_chunk(Chunk(text))
    finally:
        on_chunk(Chunk(finished=True))


# --- The connection to a model server: kept open between calls, and patient only so long ---
#
# Four waits are bounded: to connect, for the first byte, between bytes, and for everything together. A model server
# is configured by the operator, so its address is not gated; it is never taken from a document or a model.


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
