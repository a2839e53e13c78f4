"""Times that come back, as people say them, and the cron fields that mean the same. Pure.

Cron knows no seconds, and only such intervals as divide the next larger unit; what it cannot keep is said, not bent.
"""

import re
from dataclasses import dataclass
from typing import Final

_NUMBERS: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "sixty": 60, "other": 2,
}  # fmt: skip
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_DAY: Final = r"(?:sun|mon|tues|wednes|thurs|fri|satur)day"
_NUMBER: Final = rf"(?:\d{{1,4}}|{'|'.join(_NUMBERS)})"
_UNIT: Final = r"(?:minute|min|hour|hr|day|week|month|morning|evening|night|weekday|workday|weekend)"
EVERY: Final = re.compile(rf"\b(?:every|each)\s+(?:({_NUMBER})\s+)?({_UNIT})s?\b", re.IGNORECASE)
EVERY_DAY: Final = re.compile(
    rf"\b(?:(?:every|each)\s+|on\s+(?={_DAY}s))({_DAY}s?(?:\s*(?:,|and|&)\s*(?:every\s+|on\s+)?{_DAY}s?){{0,6}})\b",
    re.IGNORECASE,
)
NAMED: Final = re.compile(r"\b(hourly|daily|nightly|weekly|monthly)\b", re.IGNORECASE)
TIMES_A: Final = re.compile(rf"\b(once|twice)\s+(?:a|an|every|each|per)\s+({_UNIT})\b", re.IGNORECASE)
ON_PART: Final = re.compile(r"\bon\s+(weekday|workday|weekend)s\b", re.IGNORECASE)
AT: Final = re.compile(
    r"\bat\s+(?:(\d{1,2})(?:[:.](\d{2}))?\s*(am|pm|o'clock)?\b(?!\s*(?:%|percent))|(noon|midnight)\b)", re.IGNORECASE
)
_ALIASES: Final = {"min": "minute", "hr": "hour", "workday": "weekday"}
_PARTS: Final = {"morning": 6, "evening": 18, "night": 0, "nightly": 0}
_DEFAULT_HOUR: Final = 6
_DIVIDED: Final = {"minute": 60, "hour": 24}


@dataclass(frozen=True)
class When:
    """A schedule, the words that said it, and where these stand; `fault` says why there is no cron for it."""

    cron: str
    said: str
    spans: tuple[tuple[int, int], ...]
    fault: str = ""


def when_of(text: str) -> When | None:
    """The first time in the text that comes back, with the hour that is named; None if nothing comes back."""
    found = next((match for form in _FORMS if (match := form.search(text))), None)
    if found is None:
        return None
    at = AT.search(text)
    spans = (found.span(), at.span()) if at and not _overlap(found.span(), at.span()) else (found.span(),)
    said = " ".join(" ".join(text[start:end].split()) for start, end in sorted(spans))
    clock = _clock(at) if at else None
    if at and clock is None:
        return When("", said, spans, fault=f"{at[0]!r} is no time of day")
    cron, fault = _FORMS[found.re](found, clock)
    return When(cron, said, spans, fault)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _clock(at: re.Match[str]) -> tuple[int, int] | None:
    hour, minute, half, word = at.groups()
    if word:
        return (12, 0) if word.lower() == "noon" else (0, 0)
    hours, minutes, half = int(hour), int(minute or 0), (half or "").lower()
    if half in {"am", "pm"}:
        if not 1 <= hours <= 12:  # noqa: PLR2004 hours of half a day
            return None
        hours = hours % 12 + (12 if half == "pm" else 0)
    return (hours, minutes) if hours < 24 and minutes < 60 else None  # noqa: PLR2004 hours and minutes


Clock = tuple[int, int] | None


def _every(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    number = 1 if found[1] is None else _NUMBERS.get(found[1].lower()) or int(found[1])
    unit = _ALIASES.get(found[2].lower(), found[2].lower())
    if unit in _DIVIDED:
        return _interval(number, unit, clock)
    return _calendar(unit, clock) if number == 1 else ("", f"every {number} {unit}s cannot be kept: say every {unit}")


def _interval(number: int, unit: str, clock: Clock) -> tuple[str, str]:
    whole = _DIVIDED[unit]
    if clock is not None:
        return "", f"a time of day does not go with every {number} {unit}s"
    if number == whole:
        number, unit, whole = 1, "hour" if unit == "minute" else "day", 24
    if number < 1 or whole % number:
        fits = ", ".join(str(count) for count in range(1, whole) if whole % count == 0)
        return "", f"every {number} {unit}s cannot be kept: choose one of {fits}"
    if unit == "day":
        return _calendar("day", None)
    step = "*" if number == 1 else f"*/{number}"
    return (f"{step} * * * *" if unit == "minute" else f"0 {step} * * *"), ""


def _calendar(unit: str, clock: Clock) -> tuple[str, str]:
    hour, minute = clock or (_PARTS.get(unit, _DEFAULT_HOUR), 0)
    days = {"week": "* * 1", "weekly": "* * 1", "month": "1 * *", "monthly": "1 * *", "weekday": "* * 1-5"}
    return f"{minute} {hour} {days.get(unit, '* * 0,6' if unit == 'weekend' else '* * *')}", ""


def _days(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    hour, minute = clock or (_DEFAULT_HOUR, 0)
    said = found[1].lower()
    return f"{minute} {hour} * * {','.join(str(number) for number, day in enumerate(_DAYS) if day in said)}", ""


def _named(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    word = found[1].lower()
    return _interval(1, "hour", clock) if word == "hourly" else _calendar(word, clock)


def _times(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    unit = _ALIASES.get(found[2].lower(), found[2].lower())
    if found[1].lower() == "once":
        return _interval(1, unit, clock) if unit in _DIVIDED else _calendar(unit, clock)
    return ("0 6,18 * * *", "") if unit == "day" and clock is None else ("", "only a day is divided in two")


def _on_part(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    return _calendar(_ALIASES.get(found[1].lower(), found[1].lower()), clock)


_FORMS: Final = {EVERY: _every, EVERY_DAY: _days, TIMES_A: _times, ON_PART: _on_part, NAMED: _named}
