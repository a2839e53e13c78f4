"""Recurring times as people say them, and the cron fields that mean the same. Pure.

Cron has no seconds, and keeps only intervals that divide the next larger unit. What it cannot keep is an error.
"""

import re
from dataclasses import dataclass
from typing import Final

from agents.ask.language import Request

_NUMBERS: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "sixty": 60, "other": 2,
}  # fmt: skip
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_WEEKDAY: Final = rf"(?:{'|'.join(_WEEKDAYS)})"
_NUMBER: Final = rf"(?:\d{{1,4}}|{'|'.join(_NUMBERS)})"
_UNIT: Final = r"(?:minute|min|hour|hr|day|week|month|morning|evening|night|weekday|workday|weekend)"
_EVERY: Final = re.compile(rf"\b(?:every|each)\s+(?:({_NUMBER})\s+)?({_UNIT})s?\b", re.IGNORECASE)
_EVERY_WEEKDAY: Final = re.compile(
    rf"\b(?:(?:every|each)\s+|on\s+(?={_WEEKDAY}s))"
    rf"({_WEEKDAY}s?(?:\s*(?:,|and|&)\s*(?:every\s+|on\s+)?{_WEEKDAY}s?){{0,6}})\b",
    re.IGNORECASE,
)
_TIMES_A: Final = re.compile(rf"\b(once|twice)\s+(?:a|an|every|each|per)\s+({_UNIT})\b", re.IGNORECASE)
_ON_DAYS: Final = re.compile(r"\bon\s+(weekday|workday|weekend)s\b", re.IGNORECASE)
_ADVERB: Final = re.compile(r"\b(hourly|daily|nightly|weekly|monthly)\b", re.IGNORECASE)
CLOCK: Final = re.compile(
    r"\bat\s+(?:(\d{1,2})(?:[:.](\d{2}))?\s*(am|pm|o'clock)?\b(?!\s*(?:%|percent))|(noon|midnight)\b)", re.IGNORECASE
)
# Without the adverbs, which may also describe a thing: "the daily summary".
RECURRING: Final = (_EVERY, _EVERY_WEEKDAY, _TIMES_A, _ON_DAYS)
_SYNONYMS: Final = {
    "min": "minute", "hr": "hour", "workday": "weekday",
    "hourly": "hour", "daily": "day", "nightly": "night", "weekly": "week", "monthly": "month",
}  # fmt: skip
_DEFAULT_HOUR: Final = 6
_HOURS: Final = {"evening": 18, "night": 0}
_DAYS: Final = {"week": "* * 1", "month": "1 * *", "weekday": "* * 1-5", "weekend": "* * 0,6"}
_PER_UNIT: Final = {"minute": 60, "hour": 24}
_HALF_DAY: Final = 12

TimeOfDay = tuple[int, int] | None


@dataclass(frozen=True)
class When:
    """A recurring time: its cron, the words for it and where they are. `error` says why there is no cron."""

    cron: str
    words: str
    spans: tuple[tuple[int, int], ...]
    error: str = ""

    def places(self, request: Request) -> frozenset[int]:
        """The places of these words in a request."""
        return frozenset(
            place
            for place, word in enumerate(request.words)
            if any(start <= word.start and word.end <= end for start, end in self.spans)
        )


def when_of(text: str) -> When | None:
    """The first recurring time in a text, with its time of day; None if there is none."""
    found = next((match for pattern in (*RECURRING, _ADVERB) if (match := pattern.search(text))), None)
    if found is None:
        return None
    clock = CLOCK.search(text)
    apart = clock is not None and (clock.end() <= found.start() or found.end() <= clock.start())
    spans = (found.span(), clock.span()) if clock and apart else (found.span(),)
    words = " ".join(" ".join(text[start:end].split()) for start, end in sorted(spans))
    try:
        return When(_cron(found, _time_of_day(clock) if clock else None), words, spans)
    except ValueError as error:
        return When("", words, spans, str(error))


def _time_of_day(clock: re.Match[str]) -> TimeOfDay:
    hour, minute, half, word = (part and part.lower() for part in clock.groups())
    if word:
        return (12, 0) if word == "noon" else (0, 0)
    hours, minutes = int(hour), int(minute or 0)
    if half in {"am", "pm"}:
        valid = 1 <= hours <= _HALF_DAY
        hours = hours % _HALF_DAY + (_HALF_DAY if half == "pm" else 0)
    else:
        valid = hours < _PER_UNIT["hour"]
    if not valid or minutes >= _PER_UNIT["minute"]:
        raise ValueError(f"{clock[0]!r} is no time of day")
    return hours, minutes


def _cron(found: re.Match[str], time: TimeOfDay) -> str:
    """The five fields. Raises ValueError for what cron cannot keep."""
    *before, last = (part and part.lower() for part in found.groups())
    if found.re is _EVERY_WEEKDAY:
        return _on(f"* * {','.join(str(number) for number, day in enumerate(_WEEKDAYS) if day in last)}", time)
    unit = _SYNONYMS.get(last, last)
    if before == ["twice"]:
        if unit != "day" or time is not None:
            raise ValueError("only a day is divided in two")
        return "0 6,18 * * *"
    count = _count(before[0]) if found.re is _EVERY else 1
    if unit in _PER_UNIT:
        return _interval(count, unit, time)
    if count != 1:
        raise ValueError(f"every {count} {unit}s cannot be kept: say every {unit}")
    return _on(_DAYS.get(unit, "* * *"), time or (_HOURS.get(unit, _DEFAULT_HOUR), 0))


def _count(text: str | None) -> int:
    if text is None:
        return 1
    return _NUMBERS[text] if text in _NUMBERS else int(text)


def _interval(count: int, unit: str, time: TimeOfDay) -> str:
    whole = _PER_UNIT[unit]
    if time is not None:
        raise ValueError(f"a time of day does not go with every {count} {unit}s")
    if count == whole:
        return "0 * * * *" if unit == "minute" else _on("* * *", None)
    if count < 1 or whole % count:
        valid = ", ".join(str(number) for number in range(1, whole) if whole % number == 0)
        raise ValueError(f"every {count} {unit}s cannot be kept: choose one of {valid}")
    step = "*" if count == 1 else f"*/{count}"
    return f"{step} * * * *" if unit == "minute" else f"0 {step} * * *"


def _on(days: str, time: TimeOfDay) -> str:
    hour, minute = time or (_DEFAULT_HOUR, 0)
    return f"{minute} {hour} {days}"
