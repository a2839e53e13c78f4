"""run_skill and run_playbook: one question to a model, asked through the metered callable of the context."""

from collections.abc import Mapping
from typing import Any

from agents.enums import Purpose
from agents.tools.context import CallContext
from agents.tools.params import BadParams, text
from agents.types import ModelRequest


def request_of(params: Mapping[str, Any]) -> ModelRequest:
    """The request that the parameters describe: `messages`, or one `prompt`. Anonymised unless told otherwise."""
    messages = params.get("messages") or [{"role": "user", "content": text(params, "prompt")}]
    wanted = params.get("max_tokens", 1_024)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise BadParams(f"'max_tokens' must be a whole number above 0, not {wanted!r}.")
    return ModelRequest(
        model=text(params, "model"),
        messages=tuple(messages),
        max_tokens=wanted,
        purpose=Purpose(params.get("purpose", Purpose.AUTONOMOUS_EXECUTOR)),
        anonymize=params.get("anonymize", True) is not False,
        tools=tuple(params.get("tools") or ()),
        response_schema=params.get("response_schema"),
    )


def ask(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    reply = context.infer()
    return {"text": reply.text, "stop_reason": reply.stop_reason}
