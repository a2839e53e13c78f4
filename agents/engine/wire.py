"""A transcript in the form that model servers read. What tools said stands in marked blocks: it is data. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from agents.policy.context_window import MARK, Mark
from agents.policy.guardrails import Reason
from agents.text.blocks import render_block

SYNTAX: Final = "skill_syntax"  # the reason of what is said of a reply whose calls cannot be read
_ASIDES: Final = frozenset({SYNTAX, *Reason})


class Said(Protocol):
    """An entry of a transcript."""

    role: str
    content: str
    calls: list[dict[str, Any]]
    call_id: str
    reason: str


def as_sent(transcript: Iterable[Said], *, nonce: str) -> list[dict[str, Any]]:
    """Results of calls that came as tags go back as the user's words, for there is no call id to answer to.

    They, and what the loop itself says on the way, are marked: neither is what the user asked for.
    """
    sent: list[dict[str, Any]] = []
    native: dict[str, str] = {}
    for entry in transcript:
        if entry.role == "assistant":
            native = {call["id"]: call["name"] for call in entry.calls if call["native"]}
            sent.append({"role": "assistant", "content": entry.content, **_asked(entry.calls)})
        elif entry.role == "tool":
            block = render_block("tool_output", entry.content, nonce=nonce)
            if entry.call_id in native:
                sent.append({"role": "tool", "tool_call_id": entry.call_id, "content": block})
            else:
                told = f"Result of call {entry.call_id}:\n{block}"
                sent.append({"role": "user", "content": told, MARK: Mark.RESULT})
        else:
            aside = {MARK: Mark.ASIDE} if entry.reason in _ASIDES else {}
            sent.append({"role": entry.role, "content": entry.content, **aside})
    return sent


def _asked(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    asked = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": _object(call)}}
        for call in calls
        if call["native"]
    ]
    return {"tool_calls": asked} if asked else {}


def _object(call: Mapping[str, Any]) -> str:
    """The arguments of a call, or of one that could not be read none: servers refuse what is no JSON object."""
    try:
        return call["arguments"] if isinstance(json.loads(call["arguments"]), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"
