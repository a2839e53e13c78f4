"""Reads a model's reply: its text, its stop reason and the calls it requests.

Pure: it runs nothing and stores nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from agents.policy import guardrails
from agents.policy.guardrails import Stop, read_stop
from agents.skills.parsing import SkillCall, SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.types import RequestedCall
from audit.redaction import redact, redact_data

MAX_CALLS: Final = 32  # in one reply; each of them may need a person's approval


@dataclass(frozen=True)
class Reply:
    """A reply as it was read.

    `unreadable` says why none of its calls may run. `stored` holds its calls in the transcript's form.
    """

    text: str
    stop: Stop
    calls: tuple[SkillCall, ...] = ()
    stored: tuple[dict[str, Any], ...] = ()
    unreadable: str = ""


class TranscriptEntry(guardrails.Said, Protocol):
    """A transcript entry with its stop reason."""

    stop: str


@dataclass(frozen=True)
class Words:
    """The final text of a run. `cut`: the model reached its token limit."""

    text: str = ""
    cut: bool = False


def final_words(transcript: Sequence[TranscriptEntry]) -> Words:
    """Return the text of an ended run, with earlier parts that were cut off and continued."""
    if not transcript:
        return Words()
    return Words(guardrails.joined(transcript), cut=transcript[-1].stop == Stop.MAX_TOKENS)


def read_reply(data: Mapping[str, Any], *, step: int, turn: int = 0) -> Reply:
    """Read a provider's reply.

    Native calls take precedence over tags in the text. One unreadable call makes all of them unreadable. Tags inside
    an answer that is one JSON object are quotation.

    Calls get ids of our own, because those of models can be missing or repeated. Arguments are redacted again after
    parsing, because a secret in parts or behind escapes only becomes visible then.
    """
    step_id = f"{turn}_{step}" if turn else str(step)
    text = str(data.get("text") or "")
    stop_reason = str(data.get("stop_reason") or "")
    is_cut = stop_reason == Stop.MAX_TOKENS or bool(data.get("full"))
    no_arguments = "" if is_cut else "{}"  # a reply that was cut may have lost the arguments
    native = [
        RequestedCall(_call_id(step_id, number), str(call["name"]), str(call["arguments"]).strip() or no_arguments)
        for number, call in enumerate(data.get("calls", ()), 1)
    ]
    calls: list[SkillCall] = []
    unreadable = ""
    try:
        calls = [replace(call, arguments=redact_data(call.arguments)) for call in _parse(text, native)]
    except SkillSyntaxError as error:
        unreadable = redact(str(error))
    if len(calls) > MAX_CALLS:
        unreadable = f"It requests {len(calls)} calls; a reply may request at most {MAX_CALLS}."
        calls = []
    stop = read_stop(stop_reason, has_calls=bool(calls) or bool(unreadable), truncated_call=bool(unreadable) and is_cut)
    if unreadable:
        stored = [{"id": call.id, "name": call.name, "arguments": call.arguments, "native": True} for call in native]
    else:
        stored = [_stored(_call_id(step_id, number), call, native=bool(native)) for number, call in enumerate(calls, 1)]
    return Reply(text, stop, tuple(calls), tuple(stored), unreadable)


def stored_calls(stored: Iterable[Mapping[str, Any]]) -> list[SkillCall]:
    """Return the calls of a stored transcript entry."""
    return [SkillCall(call["name"], json.loads(call["arguments"]), call.get("group"), id=call["id"]) for call in stored]


def _parse(text: str, native: Sequence[RequestedCall]) -> list[SkillCall]:
    if native:
        return calls_from_native(native)
    return [] if _is_json_object(text) else parse_skill_calls(text)


def _is_json_object(text: str) -> bool:
    try:
        return text.lstrip().startswith("{") and isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _call_id(step_id: str, number: int) -> str:
    return f"call_{step_id}_{number}"


def _stored(call_id: str, call: SkillCall, *, native: bool) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    stored = {"id": call_id, "name": call.name, "arguments": arguments, "native": native}
    return stored if call.parallel_group is None else {**stored, "group": call.parallel_group}
