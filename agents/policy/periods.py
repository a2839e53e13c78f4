"""Periods that people name, such as `yesterday` and `last week`, as spans of time. In UTC; weeks begin on Monday."""

from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

Span = tuple[datetime, datetime]
Period = Literal["today", "yesterday", "last night", "this week", "last week", "this month", "last month"]
PERIODS: Final[tuple[str, ...]] = get_args(Period)
NIGHT: Final = timedelta(hours=6)  # before midnight, and after


def spans(now: datetime) -> dict[str, Span]:
    """Return from when to when each period reaches."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    monday = today - today.weekday() * day
    first = today.replace(day=1)
    return {
        "today": (today, today + day),
        "yesterday": (today - day, today),
        **dict.fromkeys(("overnight", "last night"), (today - NIGHT, today + NIGHT)),
        "last 7 days": (today - 6 * day, today + day),
        "this week": (monday, today + day),
        "last week": (monday - 7 * day, monday),
        "this month": (first, today + day),
        "last month": ((first - day).replace(day=1), first),
    }
