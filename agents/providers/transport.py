"""Server-sent events of a chat completion, put together again: text, tool calls, usage, and exactly one end.

Every stream ends with one chunk marked `finished`: at its normal end, when it breaks or never begins (before the error
goes on), and when it just stops. Whoever waits for the end never waits in vain.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agents.providers.base import Chunk
from agents.providers.errors import Fault, ProviderError
from agents.providers.parsing import stop_reason_of, usage_of
from agents.types import ModelReply, RequestedCall, Usage
from audit.redaction import redact

logger = logging.getLogger(__name__)

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
