"""The audit log: append-only hash chains, redaction, receipts. Bottom layer: imports nothing from agents.

Here: the current time for audit commands and pages, and the id of the current web request. Everything below commands
and pages takes `now` as an argument and never reads a clock.
"""

from contextvars import ContextVar
from datetime import UTC, datetime

# Written to log lines and audit events, so that one can be found from the other.
current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")


def utc_now() -> datetime:
    return datetime.now(UTC)
