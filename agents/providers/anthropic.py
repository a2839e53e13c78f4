"""Servers that speak Anthropic's Messages protocol.

A reply that has to follow a schema is asked for as the input of a tool that the model has to call; the provider gives
that input as the text of the reply. What the model thinks is counted and dropped: it is not sent back either, so a
model does not think between the calls of one turn.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agents.policy.conversation import in_form
from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.http import UNREADABLE, Assembly, Endpoint, HttpProvider, count_of
from agents.providers.transport import token_came
from agents.types import ModelReply, ModelRequest, RequestedCall, Usage

Message = Mapping[str, Any]

VERSION: Final = "2023-06-01"
KEY_HEADER: Final = "x-api-key"
LEAST_THINKING: Final = 1_024  # tokens; the protocol takes no smaller budget
ANSWER: Final = "answer"  # the tool that takes a reply to a schema
EMPTY: Final = "(Empty.)"  # the protocol takes no blank text


class Anthropic(HttpProvider):
    path = "messages"
    headers: Mapping[str, str] = {"anthropic-version": VERSION}

    def payload(self, request: ModelRequest) -> dict[str, Any]:
        return payload_of(request, self.endpoint)

    def assembly(self, request: ModelRequest) -> Assembly:
        return Parts(is_forced=_is_forced(request, self.endpoint))

    def explained(self, error: ProviderError, request: ModelRequest, sent: Mapping[str, Any]) -> ProviderError:
        """A model that may not be made to call a tool is asked without the schema; the prompt describes it, too."""
        if error.fault == Fault.INVALID_REQUEST and "tool_choice" in sent and "tool_choice" in str(error):
            form = replace(request.form, schema_style="off")
            return ProviderError(str(error), fault=Fault.FORM, usage=Usage(0, 0), form=form)
        return error


# --- The request ---


def payload_of(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any]:
    if not request.tools and any(message["role"] == "tool" for message in request.messages):
        request = in_form(replace(request, form=replace(request.form, tools="text")))  # calls need their tools
    system = "\n\n".join(message["content"] for message in request.messages if message["role"] == "system")
    payload: dict[str, Any] = {
        **endpoint.extra,
        "model": endpoint.model,
        "messages": _turns([message for message in request.messages if message["role"] != "system"]),
        "max_tokens": request.max_tokens,
        "stream": True,
    }
    if _is_forced(request, endpoint):
        payload["tools"] = [
            {"name": ANSWER, "description": "Takes the answer.", "input_schema": request.response_schema}
        ]
        payload["tool_choice"] = {"type": "tool", "name": ANSWER, "disable_parallel_tool_use": True}
    optional = {
        "system": system,
        "tools": [_tool(tool) for tool in request.tools],
        "thinking": _thinking(request, endpoint),
        "temperature": request.temperature,
        "stop_sequences": list(request.stop),
    }
    return payload | {name: value for name, value in optional.items() if value not in (None, "", [])}


def _is_forced(request: ModelRequest, endpoint: Endpoint) -> bool:
    """A schema binds the reply, unless the model thinks or has other tools: it cannot be made to call one then."""
    schema = request.response_schema
    wants = schema is not None and schema.get("type") == "object" and request.form.schema_style != "off"
    return wants and not request.tools and _thinking(request, endpoint) is None


def _thinking(request: ModelRequest, endpoint: Endpoint) -> dict[str, Any] | None:
    """The model decides how much it thinks (true), or has a budget of tokens, which leaves as many for its answer."""
    if not endpoint.reasoning or request.messages[-1]["role"] == "tool":
        return None
    if endpoint.reasoning is True:
        return {"type": "adaptive"}
    budget = min(int(endpoint.reasoning), request.max_tokens - LEAST_THINKING)
    return {"type": "enabled", "budget_tokens": budget} if budget >= LEAST_THINKING else None


def _tool(tool: Message) -> dict[str, Any]:
    function = tool["function"]
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": {"type": "object", **function.get("parameters", {})},
    }


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as turns of blocks. Results of calls are what the user says."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += _blocks(message)
        else:
            turns.append({"role": role, "content": _blocks(message)})
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    text = message.get("content") or ""
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
    calls = [_call_block(call) for call in message.get("tool_calls") or ()]
    if calls and not text.strip():
        return calls
    return [{"type": "text", "text": text if text.strip() else EMPTY}, *calls]


def _call_block(call: Message) -> dict[str, Any]:
    function = call["function"]
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}


# --- The reply ---


_STOP_REASONS: Final = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "pause_turn": "max_tokens",  # it has more to say
    "tool_use": "tool_use",
    "refusal": "refusal",
}
_INPUTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@dataclass
class _Block:
    """A block of the reply that is text or a call; its text or its arguments come in pieces."""

    type: str
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    is_whole: bool = False


@dataclass
class Parts:
    """The blocks of a reply so far. `is_forced`: the answer is the input of the tool ANSWER."""

    is_forced: bool = False
    blocks: dict[int, _Block] = field(default_factory=dict)
    stop_reason: str = ""
    usage: Usage | None = None  # known when the reply has ended; what the beginning reports is less
    is_done: bool = False
    received_bytes: int = 0
    _begun: Mapping[str, Any] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> Chunk:
        match event.get("type"):
            case "message_start":
                self._begun = _table(_table(event, "message"), "usage")
            case "content_block_start":
                return self._begin(_place(event), _table(event, "content_block"))
            case "content_block_delta":
                return self._continue(_place(event), _table(event, "delta"))
            case "content_block_stop":
                if (block := self.blocks.get(_place(event))) is not None:
                    block.is_whole = True
            case "message_delta":
                self._end(_table(event, "delta"), _table(event, "usage"))
            case "message_stop":
                self.is_done = True
        return Chunk()

    def add_whole(self, answer: dict[str, Any]) -> Chunk:
        if not isinstance(content := answer.get("content"), list):
            raise ProviderError("The model server's answer holds no content.", fault=Fault.MALFORMED)
        chunks = [self._begin(place, block) for place, block in enumerate(content) if isinstance(block, dict)]
        for block in self.blocks.values():
            block.is_whole = True
        self._end(answer, _table(answer, "usage"))
        return Chunk("".join(chunk.text for chunk in chunks), is_thought=any(chunk.is_thought for chunk in chunks))

    def close(self) -> Chunk:
        """A stream that stops before the reply has ended is broken: this protocol always marks the end."""
        if not self.stop_reason:
            raise ProviderError("The model server's stream stopped in the middle of a reply.", fault=Fault.CONNECTION)
        return Chunk()

    def reply(self) -> ModelReply:
        blocks = [self.blocks[place] for place in sorted(self.blocks)]
        calls = tuple(_called(block) for block in blocks if block.type == "tool_use" and not self._is_answer(block))
        stop_reason = _STOP_REASONS.get(self.stop_reason, "end_turn")
        if self.is_forced and stop_reason == "tool_use" and not calls:
            stop_reason = "end_turn"
        text = "".join("".join(block.parts) for block in blocks if block.type == "text" or self._is_answer(block))
        return ModelReply(text=text, usage=self.usage, stop_reason=stop_reason, calls=calls)

    def _is_answer(self, block: _Block) -> bool:
        return self.is_forced and block.type == "tool_use" and block.name == ANSWER

    def _begin(self, place: int, given: Mapping[str, Any]) -> Chunk:
        """Begin a block. In a reply in one piece it holds everything already."""
        token_came()
        kind = str(given.get("type") or "")
        self.blocks[place] = _Block(kind, _text(given, "id"), _text(given, "name"))
        self.received_bytes += len(_text(given, "name").encode("utf-8", "replace"))
        arguments = given.get("input")
        written = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) and arguments else ""
        return self._take(place, written or _text(given, "text") or _text(given, "thinking"))

    def _continue(self, place: int, delta: Mapping[str, Any]) -> Chunk:
        token_came()
        self.blocks.setdefault(place, _Block("text" if "text" in delta else "unknown"))
        return self._take(place, _text(delta, "text") or _text(delta, "partial_json") or _text(delta, "thinking"))

    def _take(self, place: int, piece: str) -> Chunk:
        block = self.blocks[place]
        block.parts.append(piece)
        self.received_bytes += len(piece.encode("utf-8", "replace"))
        shown = piece if block.type == "text" or self._is_answer(block) else ""
        return Chunk(shown, is_thought="thinking" in block.type)

    def _end(self, given: Mapping[str, Any], reported: Mapping[str, Any]) -> None:
        self.stop_reason = _text(given, "stop_reason") or self.stop_reason
        if self.stop_reason:
            self.usage = usage_of(self._begun, reported) or self.usage


def _called(block: _Block) -> RequestedCall:
    """A call that was cut off before its arguments began gets arguments that nobody can read."""
    arguments = "".join(block.parts) or ("{}" if block.is_whole else UNREADABLE)
    return RequestedCall(block.id, block.name, arguments)


def usage_of(begun: Mapping[str, Any], ended: Mapping[str, Any]) -> Usage | None:
    """Tokens as both ends of a stream report them: of two counts the larger one. None if one cannot be read.

    What was written to a cache, or read from one, is reported apart from the other input.
    """
    if count_of(ended.get("output_tokens")) is None:
        return None
    if count_of(begun.get("input_tokens")) is None and count_of(ended.get("input_tokens")) is None:
        return None
    fresh, written, read = (max(_count(begun, name), _count(ended, name)) for name in _INPUTS)
    return Usage(
        fresh + written + read,
        max(_count(begun, "output_tokens"), _count(ended, "output_tokens")),
        reasoning_tokens=_count(_table(ended, "output_tokens_details"), "thinking_tokens"),
        cache_write_tokens=written,
        cache_read_tokens=read,
    )


def _count(reported: Mapping[str, Any], name: str) -> int:
    return count_of(reported.get(name)) or 0


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) else ""


def _table(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = given.get(name)
    return value if isinstance(value, dict) else {}


def _place(event: Mapping[str, Any]) -> int:
    return _count(event, "index")
