"""The time for commands of the record. Everything below them is given `now` and never asks."""

from contextvars import ContextVar
from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


# The id of the web request at hand, for log lines and for the record: so that a row can be found from either.


current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")
