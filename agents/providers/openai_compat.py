"""Any server that speaks the OpenAI chat-completions protocol: hosted ones, Ollama, vLLM, llama.cpp.

Missing or odd values in an answer have a defined reading; nothing is guessed. What a model thinks before it answers is
counted and dropped.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.http import DONE, UNREADABLE, Assembly, Endpoint, HttpProvider, count_of
from agents.providers.thinking import ThoughtFilter
from agents.providers.transport import token_came
from agents.types import WIRE_FORMS, ModelReply, ModelRequest, RequestedCall, Usage

logger = logging.getLogger(__name__)


class OpenAICompatible(HttpProvider):
    path = "chat/completions"

    def payload(self, request: ModelRequest) -> dict[str, Any]:
        return payload_of(request, self.endpoint)

    def assembly(self, request: ModelRequest) -> Assembly:
        return Parts(ThoughtFilter(self.endpoint.reasoning))

    def explained(self, error: ProviderError, request: ModelRequest, sent: Mapping[str, Any]) -> ProviderError:
        return _in_another_form(error, request, sent)


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
        r"(?:support|allow|enabled)|not support '(?:system|developer)'"
        r"|roles? must alternate|\bonly\b.{0,30}\broles are supported",
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


_THOUGHTS: Final = ("reasoning_content", "reasoning")
_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


@dataclass
class Parts:
    """The parts of a reply so far."""

    thoughts: ThoughtFilter
    text: list[str] = field(default_factory=list)
    refusal: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage | None = None
    finish_reason: str | None = None
    is_done: bool = False
    received_bytes: int = 0

    def add(self, event: dict[str, Any]) -> Chunk:
        if DONE in event:
            self.is_done = True
            return Chunk()
        self.usage = usage_of(event.get("usage")) or self.usage
        choice = _choice(event) or {}
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        message = choice.get("delta") or choice.get("message") or {}
        if any(value for name, value in message.items() if name != "role"):  # text, calls, reasoning, a refusal
            token_came()
        for number, part in enumerate(message.get("tool_calls") or []):
            if isinstance(part, dict):
                self._add_call(part, number)
        refusal = _text(message.get("refusal"))
        self.refusal += refusal
        content, thought = _said(message)
        self._count(content, refusal, thought)
        self.thoughts.note(thought)
        return self._take(content, is_thought=bool(thought))

    def add_whole(self, answer: dict[str, Any]) -> Chunk:
        chunk = self.add(answer)
        if _choice(answer) is None:
            raise ProviderError("The model server's answer holds no choice.", fault=Fault.MALFORMED)
        self.is_done = True
        return chunk

    def close(self) -> Chunk:
        """A stream that just stops is taken for what it brought."""
        if not self.has_ended:
            logger.warning("a stream was closed without an end mark; what came in is taken as the reply")
        rest = self.thoughts.close()
        self.text.append(rest)
        return Chunk(rest)

    def _take(self, content: str, *, is_thought: bool) -> Chunk:
        text = self.thoughts.feed(content)
        self.text.append(text)
        return Chunk(text, is_thought=is_thought or (bool(content) and self.thoughts.is_open))

    def _count(self, *texts: str) -> None:
        self.received_bytes += sum(len(text.encode("utf-8", "replace")) for text in texts)

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
        self._count(name, arguments)

    @property
    def has_ended(self) -> bool:
        """Whether the server marked the end, in either way; otherwise the stream just stopped."""
        return self.is_done or self.finish_reason is not None

    def reply(self) -> ModelReply:
        """The whole reply. An unknown stop reason is a normal end; with calls it is a wish to use them.

        A model that was still thinking when its reply ended has not answered: that reply was cut.
        """
        calls = tuple(self._call(self.calls[index]) for index in sorted(self.calls))
        stop_reason = _STOP_REASONS.get(str(self.finish_reason), "tool_use" if calls else "end_turn")
        text = "".join(self.text)
        if not text and not calls and self.thoughts.has_any and (self.thoughts.is_open or not self.has_ended):
            stop_reason = "max_tokens"
        return ModelReply(
            text=text or self.refusal,
            usage=self.usage,
            stop_reason="refusal" if self.refusal else stop_reason,
            calls=calls,
        )

    def _call(self, call: dict[str, str]) -> RequestedCall:
        """A call whose arguments had not begun when the stream just stopped gets arguments that nobody can read."""
        is_cut = not self.has_ended and not call["arguments"].strip()
        return RequestedCall(**{**call, "arguments": UNREADABLE} if is_cut else call)


def _choice(event: dict[str, Any]) -> dict[str, Any] | None:
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def _said(message: Mapping[str, Any]) -> tuple[str, str]:
    """The text of a message and what the model thought: in a field of its own, or as a part of the content."""
    content = message.get("content")
    thought = "".join(_text(message.get(name)) for name in _THOUGHTS)
    if not isinstance(content, list):
        return _text(content), thought
    parts = [part for part in content if isinstance(part, dict)]
    others = [part for part in parts if part.get("type") != "text"]
    text = "".join(_text(part.get("text")) for part in parts if part not in others)
    return text, thought + (json.dumps(others) if others else "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def usage_of(reported: object) -> Usage | None:
    """None unless both counts are whole numbers, 0 or more: a report that cannot be read is no report.

    Some servers count what the model thinks apart from what it answers. Of two readings the larger one counts.
    """
    if not isinstance(reported, dict):
        return None
    sent = count_of(reported.get("prompt_tokens"))
    written = count_of(reported.get("completion_tokens", 0))
    if sent is None or written is None:
        return None
    thought = _detail(reported, "completion_tokens_details", "reasoning_tokens")
    apart = written + thought if thought > written else 0
    total = count_of(reported.get("total_tokens")) or 0
    return Usage(
        sent,
        max(written, apart, total - sent),
        reasoning_tokens=thought,
        cache_read_tokens=min(_detail(reported, "prompt_tokens_details", "cached_tokens"), sent),
    )


def _detail(reported: Mapping[str, Any], table: str, name: str) -> int:
    details = reported.get(table)
    return (count_of(details.get(name)) or 0) if isinstance(details, dict) else 0
