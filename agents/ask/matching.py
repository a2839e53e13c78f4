"""A request that matches the phrases of a fast path, with the rows that it names and how often."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import User

from agents.ask.language import Pattern, Request
from agents.ask.naming import Names, names_in
from agents.ask.phrases import PATTERNS
from agents.ask.times import When, when_of

_NO_NAMES: Final = Names()


@dataclass(frozen=True)
class Match:
    """`action` is the one that was asked for where a path has several."""

    request: Request
    action: str = ""
    names: Names = _NO_NAMES
    when: When | None = None


def _by_path() -> Mapping[str, dict[str, Pattern]]:
    found: dict[str, dict[str, Pattern]] = {}
    for key, pattern in PATTERNS.items():
        path, _, action = key.partition(":")
        found.setdefault(path, {})[action] = pattern
    return found


_PATTERNS: Final = _by_path()


def match_path(path: str, request: Request, user: User | None, kinds: tuple[str, ...], *, timed: bool) -> Match | None:
    """Match a request with the phrases of a path. Names are those of the user's rows of these kinds."""
    when = when_of(request.text) if timed else None
    if when is not None:
        request = request.without(when.places(request))
    elif timed:
        return None
    for action, pattern in _PATTERNS[path].items():
        if pattern.matches(request):
            return Match(request, action, when=when)
        if kinds and user is not None and pattern.may_match(request):
            names = names_in(request, user, kinds)
            if pattern.matches(names.as_slots(request)):
                return Match(request, action, names, when)
    return None
