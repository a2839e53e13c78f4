"""How values look to people: money, times, bars, and text whose invisible characters are made visible. Pure."""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import ndiff
from typing import Any, Final

_PLAIN: Final = frozenset("\n\t ")
# Characters that show nothing, or move what is shown, although Unicode calls them letters, marks or symbols.
_BLANK: Final = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
_SELECTORS: Final = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x180B, 0x180F))
_UNITS: Final = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))
WARN_PERCENT: Final = 80
FULL_PERCENT: Final = 100


def visible(text: str) -> str:
    """The text with every character that cannot be seen, or that turns the reading direction, spelled out."""
    return "".join(f"⟨U+{ord(char):04X}⟩" if _is_unseen(char) else char for char in text)


def _is_unseen(char: str) -> bool:
    if char in _PLAIN:
        return False
    return (
        char in _BLANK
        or unicodedata.category(char) in _UNSEEN
        or any(low <= ord(char) <= high for low, high in _SELECTORS)
    )


def pretty(value: Any) -> str:
    """JSON for reading: one key a line, sorted, with nothing hidden in it."""
    return visible(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str))


def usd(amount: Decimal | None, *, empty: str = "—") -> str:
    """Two places at least, up to six where they say something."""
    if amount is None:
        return empty
    text = f"{amount:.6f}".rstrip("0")
    whole, _, places = text.partition(".")
    return f"${whole}.{places.ljust(2, '0')}"


def moment(at: datetime | None, *, empty: str = "—") -> str:
    return empty if at is None else f"{at:%d %b %Y %H:%M:%S}"


def span(length: timedelta) -> str:
    """A length of time in its largest unit."""
    length = abs(length)
    for unit, word in _UNITS:
        if length >= unit:
            number = length // unit
            return f"{number} {word}{'' if number == 1 else 's'}"
    seconds = int(length.total_seconds())
    return f"{seconds} second{'' if seconds == 1 else 's'}"


def ago(at: datetime | None, now: datetime, *, empty: str = "never") -> str:
    if at is None:
        return empty
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


@dataclass(frozen=True)
class Bar:
    """How much of a cap is used: whole percent, at most 100, and how grave that is."""

    percent: int
    grave: str

    @classmethod
    def of(cls, spent: Decimal, cap: Decimal | None) -> "Bar | None":
        if cap is None:
            return None
        share = FULL_PERCENT if cap == 0 else int(spent * 100 / cap)
        grave = "full" if share >= FULL_PERCENT else "warn" if share >= WARN_PERCENT else "fine"
        return cls(min(share, FULL_PERCENT), grave)


@dataclass(frozen=True)
class Line:
    """One line of a difference: `kind` is same, old or new."""

    kind: str
    text: str


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Line]:
    """What changed between two sets of arguments, line by line."""
    kinds = {" ": "same", "-": "old", "+": "new"}
    lines = ndiff(pretty(before).splitlines(), pretty(after).splitlines())
    return [Line(kinds[line[0]], line[2:]) for line in lines if line[0] in kinds]
