"""The offline provider in the turns of a loop: it passes alerts on to the owner, and sleeps. By rules, and it says so.

It understands neither the alerts nor the hot state. What it does follows from how the request is built: are there
alerts, is the skill for telling offered, and how long does the agent's own instruction say to sleep ("sleep 60
seconds", "wake for `spike`"). What stands in marked blocks picks no call: it is passed on as text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agents.policy.guardrails import YIELD
from agents.providers.offline.offline_reply import WHAT_IT_IS, tokens
from agents.text.blocks import parse_blocks
from agents.types import ModelRequest, RequestedCall

TELL: Final = "tell_owner"
SLEEP: Final = 300
MOST_SECONDS: Final = 86_400
TEXT_CHARS: Final = 3_000
MOST_NAMES: Final = 10
_SLEEP: Final = re.compile(r"\bsleep (?:for )?([0-9]{1,6}) seconds\b", re.IGNORECASE)
_WAKE: Final = re.compile(r"\bwake (?:early )?for ((?:`[\w.-]{1,64}`(?:, | and )?)+)", re.IGNORECASE)
_NAME: Final = re.compile(r"`([\w.-]{1,64})`")


def takes_turn(request: ModelRequest) -> bool:
    """True in a turn of a loop: only there is yield offered."""
    return YIELD in _offered(request)


def turn(request: ModelRequest) -> tuple[str, tuple[RequestedCall, ...]]:
    """What it says, and the calls that it asks for: the last one ends the turn. It keeps to the tokens it was given."""
    rules = "\n".join(_text(message) for message in request.messages if message.get("role") == "system")
    alerts = [] if _has_acted(request.messages) else _alerts(request.messages)
    told = f"{len(alerts)} alerts" if len(alerts) != 1 else "1 alert"
    sleep = min(int(found[1]), MOST_SECONDS) if (found := _SLEEP.search(rules)) and int(found[1]) else SLEEP
    wakes = [name for part in _WAKE.findall(rules) for name in _NAME.findall(part)][:MOST_NAMES]
    reason = f"{told}; by rule, without understanding them"
    ending = _call(YIELD, mode="sleep", sleep=sleep, wake_early_if=wakes, reason=reason)
    said = f"{told.capitalize()}. The rules say: sleep {sleep} seconds. ({WHAT_IT_IS})"
    if not alerts or TELL not in _offered(request):
        return said, (ending,)
    shown = "\n".join(alerts)[:TEXT_CHARS]
    while True:
        telling = _call(TELL, title=f"{told} for the agent", text=f"{shown}\n\nPassed on by rule ({WHAT_IT_IS}).")
        if not shown or spent(said, (telling, ending)) <= request.max_tokens:
            return said, (telling, ending)
        shown = shown[: len(shown) // 2]


def spent(said: str, calls: Sequence[RequestedCall]) -> int:
    """The tokens of an answer."""
    return tokens(said) + sum(tokens(call.name) + tokens(call.arguments) for call in calls)


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
    """True when this turn has made calls already, and something went wrong: then it only ends."""
    shown = [place for place, message in enumerate(messages) if _alerts([message])]
    return bool(shown) and any(message.get("role") == "tool" for message in messages[shown[-1] :])
