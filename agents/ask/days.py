"""The days that people name, in UTC. Pure."""

from collections.abc import Set
from datetime import UTC, datetime, timedelta
from typing import Final

Span = tuple[datetime, datetime]

# What is said, as grammars know it, and the days that are meant; the first that is said counts.
_SAID: Final = {
    "today": "today",
    "today's": "today",
    "yesterday": "yesterday",
    "yesterday's": "yesterday",
    "last-week": "last week",
    "last-month": "last month",
    "week": "this week",
    "month": "this month",
}


def days_of(now: datetime) -> dict[str, Span]:
    """From when to when each of these reaches. Weeks begin on Monday, but for the last seven days."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    monday, first = today - today.weekday() * day, today.replace(day=1)
    return {
        "today": (today, today + day),
        "yesterday": (today - day, today),
        "last 7 days": (today - 6 * day, today + day),
        "this week": (monday, today + day),
        "last week": (monday - 7 * day, monday),
        "this month": (first, today + day),
        "last month": ((first - day).replace(day=1), first),
    }


def named_days(said: Set[str]) -> str:
    """Which of them a request names; empty if none."""
    return next((name for word, name in _SAID.items() if word in said), "")


def dated(name: str, span: Span) -> str:
    """A name for days, and which ones these are: last week (2 to 8 March)."""
    first, last = span[0], span[1] - timedelta(days=1)
    one = "%-d" if first.month == last.month else "%-d %B"
    return name if first == last else f"{name} ({first:{one}} to {last:%-d %B})"
