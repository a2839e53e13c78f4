"""The time that all hosts share: that of the database. Leases, and all times that one
host writes and another compares, go by it. SQLite serves one host, whose clock it has.

A host whose own clock differs by a quarter of a lease claims nothing until its clock is right: what it plans by its own
clock, such as wake times, would be wrong for all others.
"""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import connection

from agents.conf import clock, lease_lifetime

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 5.0  # seconds
SAY_EVERY: Final = 60.0  # seconds between two log lines about the same clock
AGREES: Final = timedelta(seconds=2)  # a difference of so much is a fault


@dataclass(frozen=True)
class BothClocks:
    """How far this host's clock is ahead of the database's; negative: behind."""

    ahead: timedelta

    @property
    def may_claim(self) -> bool:
        return abs(self.ahead) < claim_limit()


def claim_limit() -> timedelta:
    """From this difference on a host claims nothing."""
    return lease_lifetime() / 4


def both_clocks() -> BothClocks:
    """Compare the clocks by one question. The time that the answer takes counts as no difference."""
    before = clock()
    now = _ask()
    after = clock()
    return BothClocks(max(before - now, timedelta(0)) or min(after - now, timedelta(0)))


def shared(now: datetime) -> datetime:
    """Return, for a time by this host's clock, the same moment by the database's."""
    return now - both_clocks().ahead


def time_to_claim(now: datetime) -> datetime | None:
    """Return the same moment by the database's clock; None, with a log line, while this host's is too far off."""
    clocks = both_clocks()
    if clocks.may_claim:
        return now - clocks.ahead
    _say(clocks.ahead)
    return None


def may_claim_lately() -> bool:
    """Return whether this host may claim; looks anew after some seconds."""
    if time.monotonic() - _Lately.looked_at >= LOOK_EVERY:
        _Lately.may_claim = time_to_claim(clock()) is not None
        _Lately.looked_at = time.monotonic()
    return _Lately.may_claim


def difference_text(ahead: timedelta) -> str:
    """Say how far a host's clock is off, such as `90.0 s ahead of`."""
    return f"{abs(ahead.total_seconds()):.1f} s {'ahead of' if ahead > timedelta(0) else 'behind'}"


def _ask() -> datetime:
    if connection.vendor != "postgresql":
        return clock()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found


class _Lately:
    """What this process has found out and said lately."""

    may_claim = True
    looked_at = float("-inf")
    said_at = float("-inf")


def _say(ahead: timedelta) -> None:
    if time.monotonic() - _Lately.said_at < SAY_EVERY:
        return
    _Lately.said_at = time.monotonic()
    logger.error(
        "This host claims no work: its clock is %s the database's; the limit is %.1f s. Set the clock (NTP), and it "
        "claims again.",
        difference_text(ahead),
        claim_limit().total_seconds(),
    )
