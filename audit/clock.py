"""The time for commands of the record. Everything below them is given `now` and never asks."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)
