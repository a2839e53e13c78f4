"""Events for those who watch, in the order of their ids, none left out.

On PostgreSQL an id is taken before its row can be seen: a transaction that took a smaller one may commit later, and who
remembers only the largest id that he has seen would never hear of it. So events are handed out up to a horizon, behind
which no row can appear any more. Whoever inserts an event holds a lock on the table from before the id is taken until
its row can be seen, and the database tells who does: when all who held it after the newest id was read have let go of
it, everything up to that id is there, or never will be. SQLite writes one transaction after the other.
"""

import logging
import threading
import time
from collections.abc import Collection
from typing import Final

from django.db import connection
from django.db.models import Max, QuerySet

from agents.models import AgentEvent

logger = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 0.5
LOOK_AGAIN_SECONDS: Final = 0.01
_WRITERS: Final = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = %s::regclass AND mode = 'RowExclusiveLock' AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
"""


class Horizon:
    """How far events can be handed out. One for each process; looks may come from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached = 0
        self._ahead = 0  # the newest id when the present wait began
        self._open: frozenset[str] = frozenset()  # who could still write an id up to it
        self._since = 0.0
        self._given_up: frozenset[str] = frozenset()

    def look(self) -> int:
        """The id up to which everything is there."""
        with self._lock:
            newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
            if connection.vendor != "postgresql" or newest < self._reached:  # the second: another, older database
                self._reached = newest
            if newest > self._reached:
                self._move(newest)
            return self._reached

    def wait(self) -> int:
        """The same, for who asks once: what is being written at this moment is waited for, but not for long."""
        over_at = time.monotonic() + WAIT_SECONDS
        newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
        while (reached := self.look()) < newest and time.monotonic() < over_at:
            time.sleep(LOOK_AGAIN_SECONDS)
        return reached

    def _move(self, newest: int) -> None:
        writing = _writers()
        self._given_up &= writing
        self._open &= writing
        if self._open and time.monotonic() - self._since > PATIENCE_SECONDS:
            logger.warning("events up to %s are handed out, although %s may write more", self._ahead, set(self._open))
            self._given_up |= self._open
            self._open = frozenset()
        if not self._open:
            self._reached = max(self._reached, self._ahead)
            self._ahead, self._since = newest, time.monotonic()
            self._open = _writers() - self._given_up  # asked after the newest id was read
            if not self._open:
                self._reached = newest


def _writers() -> frozenset[str]:
    """The transactions of others that have written events, or begin to."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS, [AgentEvent._meta.db_table])
        return frozenset(row[0] for row in cursor.fetchall())


horizon: Final = Horizon()


def events_between(after: int, until: int, *, owner_ids: Collection[int]) -> QuerySet[AgentEvent]:
    """Events of some people behind one id and up to another, in order."""
    rows = AgentEvent.objects.filter(owner_id__in=owner_ids, id__gt=after, id__lte=until)
    return rows.select_related("agent", "session").order_by("id")
