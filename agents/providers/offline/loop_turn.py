"""The offline provider in a turn of a loop: it passes alerts on to the owner, and sleeps. By rule, and it says so.

It understands neither the alerts nor the hot state. What it does follows from how the request is built: whether there
are alerts, whether `tell_owner` is offered, and how long the agent's own instructions say to sleep ("sleep 60
seconds", "wake for `spike`"). Text in marked blocks picks no call: it is passed on as text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agents.policy.guardrails import YIELD
from agents.providers.offline.replies import DESCRIPTION, count_tokens
from agents.text.blocks import parse_blocks
from agents.types import ModelRequest, RequestedCall

_TELL: Final = "tell_owner"
_SLEEP_SECONDS: Final = 300
_MAX_SLEEP_SECONDS: Final = 86_400
_TEXT_CHARS: Final = 3_000
_MAX_WAKE_NAMES: Final = 10
_SLEEP: Final = re.compile(r"\bsleep (?:for )?([0-9]{1,6}) seconds\b", re.IGNORECASE)
_WAKE: Final = re.compile(r"\bwake (?:early )?for ((?:`[\w.-]{1,64}`(?:, | and )?)+)", re.IGNORECASE)
_NAME: Final = re.compile(r"`([\w.-]{1,64})`")


def is_loop_turn(request: ModelRequest) -> bool:
    """Only in a turn of a loop is yield offered."""
    return YIELD in _offered(request)


def answer_turn(request: ModelRequest) -> tuple[str, tuple[RequestedCall, ...]]:
    """Return the text and the calls of a reply within `max_tokens`; the last call ends the turn."""
    rules = "\n".join(_text(message) for message in request.messages if message.get("role") == "system")
    alerts = [] if _has_acted(request.messages) else _alerts(request.messages)
    count = f"{len(alerts)} alerts" if len(alerts) != 1 else "1 alert"
    sleep = (
        min(int(found[1]), _MAX_SLEEP_SECONDS) if (found := _SLEEP.search(rules)) and int(found[1]) else _SLEEP_SECONDS
    )
    wakes = [name for part in _WAKE.findall(rules) for name in _NAME.findall(part)][:_MAX_WAKE_NAMES]
    reason = f"{count}; by rule, without understanding them"
    ending = _call(YIELD, mode="sleep", sleep=sleep, wake_early_if=wakes, reason=reason)
    text = f"{count.capitalize()}. The rules say: sleep {sleep} seconds. ({DESCRIPTION})"
    if not alerts or _TELL not in _offered(request):
        return text, (ending,)
    shown = "\n".join(alerts)[:_TEXT_CHARS]
    while True:
        telling = _call(_TELL, title=f"{count} for the agent", text=f"{shown}\n\nPassed on by rule ({DESCRIPTION}).")
        if not shown or turn_tokens(text, (telling, ending)) <= request.max_tokens:
            return text, (telling, ending)
        shown = shown[: len(shown) // 2]


def turn_tokens(text: str, calls: Sequence[RequestedCall]) -> int:
    return count_tokens(text) + sum(count_tokens(call.name) + count_tokens(call.arguments) for call in calls)


def _call(name: str, **arguments: Any) -> RequestedCall:
    return RequestedCall(f"offline_{name}", name, json.dumps(arguments, ensure_ascii=False))


def _offered(request: ModelRequest) -> set[str]:
    return {str((tool.get("function") or {}).get("name")) for tool in request.tools}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _alerts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of the alerts that this turn is shown."""
    blocks = [block for message in messages if message.get("role") == "user" for block in parse_blocks(_text(message))]
    return [line for block in blocks if block.kind == "alerts" for line in block.text.splitlines() if line.strip()]


def _has_acted(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether this turn has made calls already, so that it only ends."""
    shown = [place for place, message in enumerate(messages) if _alerts([message])]
    return bool(shown) and any(message.get("role") == "tool" for message in messages[shown[-1] :])
