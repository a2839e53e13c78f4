"""What strict model servers take: checks of request bodies, and a server on loopback that records them.

`check_request` is the shape of OpenAI's chat completions. `check_mistral` and `check_gemma` are the rules of the chat
templates that come with these models, written anew: what they refuse is refused here.
"""

import itertools
import json
import queue
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal
from unittest import mock

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from agents.policy.conversation import in_form
from agents.providers import anthropic
from agents.providers.http import Endpoint
from agents.providers.openai_compat import OpenAICompatible, payload_of
from agents.providers.scripted import ScriptedProvider
from agents.types import WireForm
from tests.agents.providers.hostile_servers import SSE_HEAD, Server, delta, events
from tests.anthropic_wire import check_anthropic

PLAIN = WireForm(system="first_user", tools="text")  # for templates without a system role and without tools


# --- The shape of a request ---


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Function(Strict):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = {}


class Tool(Strict):
    type: Literal["function"]
    function: Function


class Called(Strict):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    arguments: str

    @model_validator(mode="after")
    def _is_object(self):
        assert isinstance(json.loads(self.arguments), dict)
        return self


class Call(Strict):
    id: Annotated[str, Field(min_length=1, max_length=40)]
    type: Literal["function"]
    function: Called


class Said(Strict):
    role: Literal["system", "user"]
    content: Annotated[str, Field(min_length=1)]


class Assistant(Strict):
    role: Literal["assistant"]
    content: str
    tool_calls: Annotated[list[Call], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _says_something(self):
        assert self.content or self.tool_calls
        return self


class Result(Strict):
    role: Literal["tool"]
    tool_call_id: str
    content: Annotated[str, Field(min_length=1)]


class Schema(Strict):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class Format(Strict):
    type: Literal["json_schema"]
    json_schema: Schema


class StreamOptions(Strict):
    include_usage: bool


class Body(Strict):
    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[Annotated[Said | Assistant | Result, Field(discriminator="role")]], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: Literal[True]
    stream_options: StreamOptions
    tools: Annotated[list[Tool], Field(min_length=1, max_length=128)] | None = None
    response_format: Format | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: int | None = None
    stop: Annotated[list[str], Field(min_length=1, max_length=4)] | None = None

    @model_validator(mode="after")
    def _has_one_limit(self):
        assert (self.max_tokens is None) != (self.max_completion_tokens is None)
        return self


def check_request(body):
    """Refuse what OpenAI's own endpoint refuses: unknown fields, wrong types, calls without their results."""
    Body.model_validate(body)
    open_calls = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, "a result without its call"
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls, "calls without their results"
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
    assert not open_calls, "calls without their results"


# --- The rules of chat templates ---


def check_mistral(messages):
    """System first; then user and assistant in turn, not counting calls and results; ids of nine letters and digits."""
    talk = messages[1:] if messages[0]["role"] == "system" else messages
    assert {message["role"] for message in talk} <= {"user", "assistant", "tool"}
    counted = [one for one in talk if one["role"] != "tool" and "tool_calls" not in one]
    for place, message in enumerate(counted):
        assert (message["role"] == "user") == (place % 2 == 0), "roles must alternate"
    ids = [call["id"] for message in talk for call in message.get("tool_calls", ())]
    ids += [message["tool_call_id"] for message in talk if message["role"] == "tool"]
    assert all(re.fullmatch("[A-Za-z0-9]{9}", one) for one in ids), "an id is nine letters and digits"
    for before, message in itertools.pairwise(talk):
        assert (before["role"], message["role"]) != ("tool", "user"), "the model answers after results"
    assert talk[-1]["role"] in {"user", "tool"}


def check_gemma(messages):
    """No system role and no tools; user and assistant in turn."""
    for place, message in enumerate(messages):
        assert message["role"] == ("user" if place % 2 == 0 else "assistant"), "roles must alternate"
    assert messages[-1]["role"] == "user"


def check_bodies(request):
    """Check all bodies of a request: for servers that take everything, those that take the least, and Anthropic's."""
    endpoint = Endpoint("http://127.0.0.1/v1", "m")
    full = payload_of(replace(request, form=WireForm()), endpoint)
    check_request(full)
    check_mistral(full["messages"])
    plain = payload_of(in_form(replace(request, form=PLAIN)), endpoint)
    check_request(plain)
    check_mistral(plain["messages"])
    check_gemma(plain["messages"])
    for form in (WireForm(), WireForm(tools="text")):
        sent = in_form(replace(request, form=form))
        for reasoning in (None, True, 2_048):
            check_anthropic(anthropic.payload_of(sent, replace(endpoint, reasoning=reasoning)))


# --- A server that records ---


BOTH_FORMS = pytest.mark.parametrize("form", [WireForm(), PLAIN], ids=["usual", "plain"])


@contextmanager
def recording(form):
    """Send what scripted models are asked to a real server, which gives their replies. Yields the bodies it got.

    `form` is that of all requests. At the end every body is checked.
    """
    steps = queue.SimpleQueue()
    server = Server(lambda connection, _: _play(connection, steps.get_nowait()))
    provider = OpenAICompatible("recorded", Endpoint(server.url, "model-x", connections=1))

    def stream(self, request, on_chunk):
        steps.put(self._next(request))
        return provider.stream(request, on_chunk)

    forms = mock.patch("agents.guard.metering.form_of", return_value=form)
    with server, mock.patch.object(ScriptedProvider, "stream", stream), forms:
        yield server.requests
        provider.close()
    for body in server.requests:
        check_request(body)
        check_mistral(body["messages"])
        if form == PLAIN:
            check_gemma(body["messages"])
            assert "tools" not in body


def _play(connection, step):
    calls = [
        {
            "index": place,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for place, call in enumerate(step.calls)
    ]
    finish = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}.get(
        step.stop_reason, "stop"
    )
    usage = {"prompt_tokens": step.usage.input_tokens, "completion_tokens": step.usage.output_tokens}
    data = events(delta(step.text, finish, **({"tool_calls": calls} if calls else {})), {"choices": [], "usage": usage})
    connection.sendall(SSE_HEAD + data)
    connection.close()
