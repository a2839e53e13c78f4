"""Which calls need approval, and what exactly an approval covers. Pure.

A digest covers the session, the call's place in it, the capability and its version, the phase and the canonical
arguments; change any of them and it is another call.
"""

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from agents.enums import ApprovalMode, Level, Risk, RuleEffect
from agents.types import Capability
from audit.rows import canonical

SKILL, ARGUMENTS = "skill", "arguments"  # the parameters of a skill call: its name and its arguments
_ASKS_FROM: Final = {ApprovalMode.SEMI: Level.RESTRICTED, ApprovalMode.MANUAL: Level.CONTROLLED}
_KINDS: Final = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
# Anything that can name a destination: a scheme or share, a host name in any script, an e-mail or IP address, also one
# written as a single number; and the handle of a secret.
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
_UNSEEN: Final = frozenset({"Cf", "Mn", "Me"})  # categories of characters that separate others and hardly show


def needs_person(
    capability: Capability,
    *,
    mode: str,
    risk: Risk | None = None,
    allow_high_risk: bool = False,
    waived_skills: Collection[str] = (),
    rule: RuleEffect | None = None,
) -> bool:
    """Decide by declaration, level and mode; PRIVILEGED and high risk always ask, unless a superuser waived them.

    PRIVILEGED is waived for one skill of one agent, and in mode auto alone. A rule decides otherwise, but it cannot
    allow what always asks.
    """
    is_waived = mode == ApprovalMode.AUTO and capability.name in waived_skills
    is_privileged = capability.level == Level.PRIVILEGED and not is_waived
    if capability.requires_approval or (risk == Risk.HIGH and not allow_high_risk) or is_privileged:
        return True
    if rule is not None:
        return rule == RuleEffect.ASK
    asks_from = _ASKS_FROM.get(ApprovalMode(mode), Level.PRIVILEGED)
    return capability.level.rank >= asks_from.rank and not is_waived


def call_digest(
    *,
    session_id: str,
    key: str,
    intent: str,
    name: str,
    version: str,
    phase: str,
    arguments: Mapping[str, Any],
    arguments_json: str = "",
) -> str:
    """Return the digest of a call. With an empty key: its signature, the same anywhere in the run.

    `arguments_json` is the canonical JSON of the arguments, if the caller has it.
    """
    parts = {
        "intent": str(intent),
        "key": key,
        "name": name,
        "phase": phase,
        "session": session_id,
        "version": version,
    }
    text = f'{{"arguments":{arguments_json or canonical(arguments)},{canonical(parts)[1:]}'  # the first by name
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def reshaped(asked: Mapping[str, Any], changed: Mapping[str, Any], within: str = "") -> str:
    """Return how two sets of arguments differ besides their values; "" if they do not.

    The name of a skill is not a value: another skill is another call, with a level and version of its own.
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
    """Return the arguments that a person can leave free or hold fixed; of a skill call, the skill's."""
    inside = arguments.get(ARGUMENTS)
    return inside if SKILL in arguments and isinstance(inside, Mapping) else arguments


def held_arguments(arguments: Mapping[str, Any], free: Iterable[str]) -> dict[str, Any]:
    """Return the call without its free arguments; a skill's name is always held."""
    left = frozenset(free)
    held = {name: value for name, value in named_arguments(arguments).items() if name not in left}
    return {SKILL: arguments[SKILL], ARGUMENTS: held} if named_arguments(arguments) is not arguments else held


def free_values_are_harmless(arguments: Mapping[str, Any], free: Iterable[str]) -> bool:
    """Return whether no free argument looks like an address or the handle of a secret."""
    given = named_arguments(arguments)
    return not any(_ADDRESS.search(text) for name in free for text in texts_in(given.get(name)))


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text inside a value, keys included, normalised and without invisible separators."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_in(key)
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
    else:
        yield plain_text(str(value))


def plain_text(text: str) -> str:
    """Return a text normalised, without invisible separators."""
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", text)
    return "".join(character for character in folded if unicodedata.category(character) not in _UNSEEN)
