"""run_skill and run_playbook: one question to a model, asked through the metered callable of the context."""

from collections.abc import Mapping
from typing import Any

from agents.enums import Purpose
from agents.exceptions import NoAnswer
from agents.guard.context import CallContext, listener
from agents.guard.params import BadParams, label, text
from agents.types import ModelReply, ModelRequest

MOST_TOKENS = 1_000_000


def request_of(params: Mapping[str, Any]) -> ModelRequest:
    """The request that the parameters describe: `messages`, or one `prompt`. Anonymised unless told otherwise."""
    wanted = params.get("max_tokens", 1_024)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= MOST_TOKENS:
        raise BadParams(f"'max_tokens' must be a whole number from 1 to {MOST_TOKENS}, not {wanted!r}.")
    return ModelRequest(
        model=label(params, "model"),
        messages=_messages(params),
        max_tokens=wanted,
        purpose=_purpose(params.get("purpose", Purpose.AUTONOMOUS_EXECUTOR)),
        anonymize=params.get("anonymize", True) is not False,
        tools=tuple(params.get("tools") or ()),
        response_schema=params.get("response_schema"),
    )


def _messages(params: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    messages = params.get("messages") or [{"role": "user", "content": text(params, "prompt")}]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadParams("'messages' must be a list of objects with a role and a content.")
    return tuple(messages)


def _purpose(value: object) -> Purpose:
    if value not in Purpose.values:
        raise BadParams(f"'purpose' must be one of {', '.join(Purpose.values)}, not {value!r}.")
    return Purpose(value)


def ask(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    """What the model said. With `must_answer` a refusal, or not a word, is a failed call; else the caller judges it."""
    reply = context.infer(listener.get())
    if params.get("must_answer") is True:
        _demand_answer(reply)
    told: dict[str, Any] = {"text": reply.text, "stop_reason": reply.stop_reason}
    if reply.is_full:
        told["full"] = True
    if reply.calls:
        told["calls"] = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.calls]
    return told


def _demand_answer(reply: ModelReply) -> None:
    if reply.stop_reason == "refusal":
        raise NoAnswer("the model refused to answer")
    if not any(char.isprintable() and not char.isspace() for char in reply.text):
        raise NoAnswer("the model's answer was empty")
