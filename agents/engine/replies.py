"""Reads a model's reply: its text, why it ended, and the calls that it asks for. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from agents.policy import guardrails
from agents.policy.guardrails import Stop, read_stop
from agents.skills.parsing import SkillCall, SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.types import RequestedCall
from audit.redaction import redact, redact_data

MOST_CALLS: Final = 32  # of one reply: people can be asked about no more of them


@dataclass(frozen=True)
class Reply:
    """`unreadable` says why none of its calls may run; `stored` are its calls as the transcript keeps them."""

    text: str
    stop: Stop
    calls: tuple[SkillCall, ...] = ()
    stored: tuple[dict[str, Any], ...] = ()
    unreadable: str = ""


class Said(guardrails.Said, Protocol):
    """An entry of a transcript that says why it ended."""

    stop: str


@dataclass(frozen=True)
class Words:
    """What a run came to. `cut` says that the model ran out of room."""

    text: str = ""
    cut: bool = False


def final_words(transcript: Sequence[Said]) -> Words:
    """The last entry of a run that has ended, with the parts before it that were cut off and continued."""
    if not transcript:
        return Words()
    return Words(guardrails.joined(transcript), cut=transcript[-1].stop == Stop.MAX_TOKENS)


def read_reply(told: Mapping[str, Any], *, step: int, turn: int = 0) -> Reply:
    """Native calls win over tags in the text. One that cannot be read makes all of them unreadable. What stands in an
    answer that is one JSON object is quotation.

    Calls get ids of ours: those that models make up may be missing, or the same twice. Arguments are redacted once more
    when they have been read: a secret in parts, or behind escapes, is put together only then.
    """
    place_of = f"{turn}_{step}" if turn else str(step)
    text, stop_reason = str(told.get("text") or ""), str(told.get("stop_reason") or "")
    is_full = stop_reason == Stop.MAX_TOKENS or bool(told.get("full"))
    nothing = "" if is_full else "{}"  # cut off before its arguments, or without any
    native = [
        RequestedCall(_id(place_of, place), str(call["name"]), str(call["arguments"]).strip() or nothing)
        for place, call in enumerate(told.get("calls", ()), 1)
    ]
    unreadable, calls = "", []
    try:
        read = calls_from_native(native) if native else [] if _is_object(text) else parse_skill_calls(text)
        calls = [replace(call, arguments=redact_data(call.arguments)) for call in read]
    except SkillSyntaxError as error:
        unreadable = redact(str(error))
    if len(calls) > MOST_CALLS:
        unreadable, calls = f"It asks for {len(calls)} calls; a reply may ask for at most {MOST_CALLS}.", []
    stop = read_stop(
        stop_reason, has_calls=bool(calls) or bool(unreadable), truncated_call=bool(unreadable) and is_full
    )
    if unreadable:
        stored = [{"id": call.id, "name": call.name, "arguments": call.arguments, "native": True} for call in native]
    else:
        stored = [_kept(_id(place_of, place), call, native=bool(native)) for place, call in enumerate(calls, 1)]
    return Reply(text, stop, tuple(calls), tuple(stored), unreadable)


def stored_calls(stored: Iterable[Mapping[str, Any]]) -> list[SkillCall]:
    """The calls of an entry, read again. Of a reply that could be read."""
    return [SkillCall(call["name"], json.loads(call["arguments"]), call.get("group"), id=call["id"]) for call in stored]


def _is_object(text: str) -> bool:
    try:
        return text.lstrip().startswith("{") and isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _id(step: str, place: int) -> str:
    return f"call_{step}_{place}"


def _kept(call_id: str, call: SkillCall, *, native: bool) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    kept = {"id": call_id, "name": call.name, "arguments": arguments, "native": native}
    return kept if call.parallel_group is None else {**kept, "group": call.parallel_group}
