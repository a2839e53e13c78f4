"""Reads a model's reply: its text, why it ended, and the calls that it asks for. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.guardrails import Stop, read_stop
from agents.skills.parsing import SkillCall, SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.types import RequestedCall


@dataclass(frozen=True)
class Reply:
    """`unreadable` says why none of its calls may run; `stored` are its calls as the transcript keeps them."""

    text: str
    stop: Stop
    calls: tuple[SkillCall, ...] = ()
    stored: tuple[dict[str, Any], ...] = ()
    unreadable: str = ""


def read_reply(told: Mapping[str, Any], *, step: int) -> Reply:
    """Native calls win over tags in the text. One that cannot be read makes all of them unreadable.

    Calls get ids of ours: those that models make up may be missing, or the same twice.
    """
    text, stop_reason = str(told.get("text") or ""), str(told.get("stop_reason") or "")
    native = [
        RequestedCall(_id(step, place), str(call["name"]), str(call["arguments"]))
        for place, call in enumerate(told.get("calls", ()), 1)
    ]
    unreadable, calls = "", []
    try:
        calls = calls_from_native(native) if native else parse_skill_calls(text)
    except SkillSyntaxError as error:
        unreadable = str(error)
    cut = bool(unreadable) and stop_reason == Stop.MAX_TOKENS
    stop = read_stop(stop_reason, has_calls=bool(calls) or bool(unreadable), truncated_call=cut)
    if native:
        stored = [{"id": call.id, "name": call.name, "arguments": call.arguments, "native": True} for call in native]
    else:
        stored = [_kept(_id(step, place), call) for place, call in enumerate(calls, 1)]
    return Reply(text, stop, tuple(calls), tuple(stored), unreadable)


def stored_calls(stored: list[dict[str, Any]]) -> list[SkillCall]:
    """The calls of an entry, read again."""
    return [SkillCall(call["name"], json.loads(call["arguments"]), call.get("group"), id=call["id"]) for call in stored]


def _id(step: int, place: int) -> str:
    return f"call_{step}_{place}"


def _kept(call_id: str, call: SkillCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    kept = {"id": call_id, "name": call.name, "arguments": arguments, "native": False}
    return kept if call.parallel_group is None else {**kept, "group": call.parallel_group}
