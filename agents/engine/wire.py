"""A transcript in the form that model servers read. What tools said stands in marked blocks: it is data. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from agents.blocks import render_block


class Said(Protocol):
    """An entry of a transcript."""

    role: str
    content: str
    calls: list[dict[str, Any]]
    call_id: str


def as_sent(transcript: Iterable[Said], *, nonce: str) -> list[dict[str, Any]]:
    """Results of calls that came as tags go back as the user's words, for there is no call id to answer to."""
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
                sent.append({"role": "user", "content": f"Result of call {entry.call_id}:\n{block}"})
        else:
            sent.append({"role": entry.role, "content": entry.content})
    return sent


def _asked(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    asked = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in calls
        if call["native"]
    ]
    return {"tool_calls": asked} if asked else {}
