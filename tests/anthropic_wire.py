"""What Anthropic's Messages endpoint takes, written from its public documentation, and the events that it streams."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tests.agents.providers.hostile_servers import SSE_HEAD, answer, raw

HEADERS = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
KEY = "the-key"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
Id = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")]
Written = Annotated[str, Field(pattern=r"\S")]  # blank text is refused


class Text(Strict):
    type: Literal["text"]
    text: Written


class ToolUse(Strict):
    type: Literal["tool_use"]
    id: Id
    name: Name
    input: dict[str, Any]


class ToolResult(Strict):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: str | list[Text] = ""
    is_error: bool = False


class Thinking(Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str


Block = Annotated[Text | ToolUse | ToolResult | Thinking, Field(discriminator="type")]


class Turn(Strict):
    role: Literal["user", "assistant"]
    content: Written | Annotated[list[Block], Field(min_length=1)]

    @property
    def blocks(self):
        return [] if isinstance(self.content, str) else self.content

    def of_type(self, kind):
        return [block for block in self.blocks if block.type == kind]


class Schema(BaseModel):
    type: Literal["object"]


class Tool(Strict):
    name: Name
    description: str = ""
    input_schema: Schema


class Choice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool = False


class Thinks(Strict):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Field(ge=1_024)] | None = None


class Body(Strict):
    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[Turn], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool = False
    system: Written | None = None
    tools: list[Tool] = []
    tool_choice: Choice | None = None
    thinking: Thinks | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    stop_sequences: list[Written] = []
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: dict[str, str] | None = None

    @model_validator(mode="after")
    def _turns_alternate(self):
        for place, turn in enumerate(self.messages):
            assert turn.role == ("user", "assistant")[place % 2], "roles must alternate"
            if turn.role == "user":
                assert not turn.of_type("tool_use"), "only the assistant uses tools"
            else:
                assert not turn.of_type("tool_result"), "only the user gives results"
        assert self.messages[-1].role == "user", "the conversation must end with a user message"
        return self

    @model_validator(mode="after")
    def _calls_have_results(self):
        used = []
        for turn in self.messages:
            results = [block.tool_use_id for block in turn.of_type("tool_result")]
            assert sorted(results) == sorted(used), "tool_use without tool_result, or tool_result without tool_use"
            assert all(block.type == "tool_result" for block in turn.blocks[: len(results)]), "results come first"
            used = [block.id for block in turn.of_type("tool_use")]
            assert len(set(used)) == len(used), "tool_use ids must be unique"
            assert not used or self.tools, "requests with tool blocks must define tools"
        return self

    @model_validator(mode="after")
    def _choice_and_thinking_agree(self):
        names = [tool.name for tool in self.tools]
        assert len(set(names)) == len(names), "tool names must be unique"
        if self.tool_choice is not None:
            assert self.tools, "tool_choice may only be given with tools"
            assert self.tool_choice.type != "tool" or self.tool_choice.name in names, "tool_choice names no tool"
        if self.thinking is not None and self.thinking.type != "disabled":
            self._check_thinking()
        return self

    def _check_thinking(self):
        forced = self.tool_choice is not None and self.tool_choice.type in {"any", "tool"}
        assert not forced, "thinking may not be enabled when tool_choice forces tool use"
        assert self.temperature in {None, 1}, "temperature may only be 1 with thinking"
        budget = self.thinking.budget_tokens
        assert (budget is None) == (self.thinking.type == "adaptive"), "a budget is for thinking that is enabled"
        assert budget is None or budget < self.max_tokens, "max_tokens must be greater than budget_tokens"
        if self.messages[-1].of_type("tool_result"):
            first = self.messages[-2].blocks[0]
            assert first.type == "thinking", "expected thinking, found tool_use"


def check_anthropic(body):
    """Refuse what the endpoint refuses."""
    Body.model_validate(body)


# --- A server ---


def strict(script):
    """Play the script to requests in order; refuse all others as the endpoint does."""

    def play(connection, body):
        try:
            check_anthropic(json.loads(body))
        except ValidationError as error:
            refused("invalid_request_error", str(error))(connection, body)
        else:
            script(connection, body)

    return play


def refused(kind, message, status=400, **headers):
    return answer(status, {"type": "error", "error": {"type": kind, "message": message}}, **headers)


def sse(*data):
    """Events as the endpoint sends them: each with its name."""
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in data).encode()


def streams(*data):
    return strict(raw(SSE_HEAD, sse(*data)))


def begins(**usage):
    counted = {"input_tokens": 20, "output_tokens": 1, **usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None}
    return {"type": "message_start", "message": {**message, "stop_sequence": None, "usage": counted}}


def block(index, opening, *deltas):
    start = {"type": "content_block_start", "index": index, "content_block": opening}
    middle = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [start, *middle, {"type": "content_block_stop", "index": index}]


def text(index, *pieces):
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def call(index, name, *pieces, call_id="toolu_01"):
    opening = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, opening, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def thought(index, *pieces):
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        *deltas,
        {"type": "signature_delta", "signature": "s"},
    )


def ends(reason="end_turn", output_tokens=9, **usage):
    delta = {"stop_reason": reason, "stop_sequence": None}
    counted = {"output_tokens": output_tokens, **usage}
    return [{"type": "message_delta", "delta": delta, "usage": counted}, {"type": "message_stop"}]


PING = {"type": "ping"}


def check_head(head):
    """Check the headers of a request: the version, the key, and the address."""
    lines = head.split("\r\n")
    assert re.fullmatch(r"POST /v1/messages HTTP/1\.1", lines[0])
    given = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    assert HEADERS.items() <= given.items()
    assert "authorization" not in given
    return given.get("x-api-key")
