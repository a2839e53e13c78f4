"""Reads what an OpenAI-compatible server answers. What is missing or odd has a defined reading; nothing is guessed."""

from typing import Any, Final

from agents.providers.errors import Fault, ProviderError
from agents.types import ModelReply, RequestedCall, Usage

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
