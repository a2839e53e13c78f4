"""Where a skill would go, by its arguments: a place that was named beforehand, or one that the model chose. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agents.enums import Level
from agents.skills.skill import Skill

# Only addresses that every reader reads alike; whatever else stands in one, it is a place that nobody has allowed.
_PLAIN: Final = re.compile(
    r"(?:https?://(?P<url>[a-z0-9.-]+)(?::\d{1,5})?(?:[/?#][\w/?#.:=&%+~,;!$'()*-]*)?|[\w.+-]+@(?P<mail>[a-z0-9.-]+))",
    re.ASCII | re.IGNORECASE,
)


def level_for(skill: Skill, level: Level, arguments: Mapping[str, Any], allowed: Iterable[str]) -> Level:
    """RESTRICTED at least, when an argument names a place that nobody has allowed: reading can carry data out."""
    if level.rank >= Level.RESTRICTED.rank:
        return level
    return Level.RESTRICTED if goes_elsewhere(skill, arguments, allowed) else level


def goes_elsewhere(skill: Skill, arguments: Mapping[str, Any], allowed: Iterable[str]) -> bool:
    """True when an argument names a place that nobody has allowed."""
    hosts = frozenset(host.lower() for host in allowed)
    return any(not _is_allowed(arguments.get(name), hosts) for name in skill.addresses)


def host_of(address: str) -> str:
    """The host of a plain URL or e-mail address; empty when there is none, or more than one way to read it."""
    found = _PLAIN.fullmatch(address)
    return ((found["url"] or found["mail"]).lower().rstrip(".")) if found else ""


def _is_allowed(address: object, hosts: frozenset[str]) -> bool:
    host = host_of(address) if isinstance(address, str) else ""
    return bool(host) and any(
        host == name or (name.startswith("*.") and host.endswith(name[1:]) and host != name[2:]) for name in hosts
    )
