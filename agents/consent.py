"""Which calls need a person, and what exactly a person consents to. Pure.

A digest covers the session, the call's place in it, the capability and its version, the phase and the canonical
arguments; change any of them and it is another call.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from agents.enums import ApprovalMode, Level, Risk
from agents.types import Capability
from audit.hashing import canonical

_ASKS_FROM: Final = {ApprovalMode.SEMI: Level.RESTRICTED, ApprovalMode.MANUAL: Level.CONTROLLED}
_KINDS: Final = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
# Anything that can carry data to a place: a scheme or share, a host name in any script, an e-mail or IP address.
_ADDRESS: Final = re.compile(
    r"""
    // | \\\\ | @ | \blocalhost\b
    | [\w-] [.\u3002] [^\W\d_]{2,}
    | \d{1,3} (?:\.\d{1,3}){3}
    | :: | (?:[0-9a-f]{1,4}:){7} [0-9a-f]{1,4}
    """,
    re.IGNORECASE | re.VERBOSE,
)


def needs_person(capability: Capability, *, mode: str, risk: Risk | None = None, allow_high_risk: bool = False) -> bool:
    """By declaration, by level and mode, and always when the risk is high, unless a superuser waived that."""
    if capability.requires_approval or (risk == Risk.HIGH and not allow_high_risk):
        return True
    asks_from = _ASKS_FROM.get(ApprovalMode(mode))
    return asks_from is not None and capability.level.rank >= asks_from.rank


def call_digest(
    *,
    session_id: str,
    key: str,
    intent: str,
    name: str,
    version: str,
    phase: str,
    arguments: Mapping[str, Any],
) -> str:
    """Evidence for one call. With an empty key: the call's signature, equal wherever in the run it is made."""
    parts = {
        "arguments": arguments,
        "intent": str(intent),
        "key": key,
        "name": name,
        "phase": phase,
        "session": session_id,
        "version": version,
    }
    return hashlib.sha256(canonical(parts).encode("ascii")).hexdigest()


def reshaped(asked: Mapping[str, Any], changed: Mapping[str, Any], within: str = "") -> str:
    """What is not the same about two sets of arguments besides their values; empty when nothing is."""
    if odd := sorted(set(asked) ^ set(changed)):
        return f"{', '.join(within + name for name in odd)} was added, renamed or left out"
    for name, value in changed.items():
        before = asked[name]
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inside := reshaped(before, value, f"{within}{name}."):
                return inside
        elif before is not None and type(value) is not type(before):
            return f"{within}{name} must stay {_KINDS[type(before)]}"
    return ""


def free_values_are_harmless(arguments: Mapping[str, Any], free: Iterable[str]) -> bool:
    """True when no argument that is left free holds something that looks like an address."""
    return not any(_ADDRESS.search(text) for name in free for text in _texts(arguments.get(name)))


def _texts(value: Any) -> Iterator[str]:
    """Every text inside a value, keys included, with look-alikes of ASCII characters folded into them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    else:
        yield unicodedata.normalize("NFKC", str(value))
