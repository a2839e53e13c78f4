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
from audit.rows import canonical

SKILL, ARGUMENTS = "skill", "arguments"  # how a call of a skill is put: its name, and what it is given
_ASKS_FROM: Final = {ApprovalMode.SEMI: Level.RESTRICTED, ApprovalMode.MANUAL: Level.CONTROLLED}
_KINDS: Final = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
# Anything that can carry data to a place: a scheme or share, a host name in any script, an e-mail or IP address, also
# one that is written as a single number; and the handle of a secret, which is worth carrying.
_ADDRESS: Final = re.compile(
    r"""
    // | \\\\ | @ | \blocalhost\b | \$secret
    | (?<![\w+.-]) [a-z][a-z0-9+.-]+ : (?=\S)
    | [\w-] [.\u3002] [^\W\d_]{2,}
    | \d{1,3} (?:\.\d{1,3}){3} | \A\s* \d{8,12} (?=\s*\Z|[:/]) | \b0x [0-9a-f.]{7,}
    | :: | (?:[0-9a-f]{1,4}:){7} [0-9a-f]{1,4}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UNSEEN: Final = frozenset({"Cf", "Mn", "Me"})  # kinds of characters that part others and hardly show


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
    """What is not the same about two sets of arguments besides their values; empty when nothing is.

    The name of a skill is no value: another skill is another call, with a level and a version of its own.
    """
    if odd := sorted(set(asked) ^ set(changed)):
        return f"{', '.join(within + name for name in odd)} was added, renamed or left out"
    if not within and asked.get(SKILL) != changed.get(SKILL):
        return f"{SKILL} must stay {asked[SKILL]}"
    for name, value in changed.items():
        before = asked[name]
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inside := reshaped(before, value, f"{within}{name}."):
                return inside
        elif before is not None and type(value) is not type(before):
            return f"{within}{name} must stay {_KINDS[type(before)]}"
    return ""


def named_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments that a person can leave free or hold fast, by name: of a skill those that the skill is given."""
    inside = arguments.get(ARGUMENTS)
    return inside if SKILL in arguments and isinstance(inside, Mapping) else arguments


def held_arguments(arguments: Mapping[str, Any], free: Iterable[str]) -> dict[str, Any]:
    """The call without the arguments that are left free; a skill's name is always held."""
    left = frozenset(free)
    held = {name: value for name, value in named_arguments(arguments).items() if name not in left}
    return {SKILL: arguments[SKILL], ARGUMENTS: held} if named_arguments(arguments) is not arguments else held


def free_values_are_harmless(arguments: Mapping[str, Any], free: Iterable[str]) -> bool:
    """True when no argument that is left free holds something that looks like an address, or a secret's handle."""
    given = named_arguments(arguments)
    return not any(_ADDRESS.search(text) for name in free for text in _texts(given.get(name)))


def _texts(value: Any) -> Iterator[str]:
    """Every text inside a value, keys included, with look-alikes of ASCII characters folded into them, and without what
    cannot be seen between them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    else:
        folded = unicodedata.normalize("NFKC", str(value))
        yield "".join(character for character in folded if unicodedata.category(character) not in _UNSEEN)
