"""The days that people name, in UTC. Pure."""

from datetime import UTC, datetime, timedelta

Span = tuple[datetime, datetime]


def days_of(now: datetime) -> dict[str, Span]:
    """From when to when each of these words reaches; a week is the last seven days."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    spans = {
        "today": (today, today + day),
        "yesterday": (today - day, today),
        "week": (today - 6 * day, today + day),
        "month": (today.replace(day=1), today + day),
    }
    return {**spans, "today's": spans["today"], "yesterday's": spans["yesterday"]}
