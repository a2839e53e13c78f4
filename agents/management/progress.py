"""Do the queue's workers get on? Judged by what waits and what runs, never by whether processes are alive."""

import platform
import time

from django.conf import settings
from django.db import DatabaseError, connection

from agents.conf import clock
from agents.enums import Mode, Status
from agents.models import AgentSession
from agents.queue import waiting
from agents.sensors.rows import sensors_unheld, slices_alive

LOOK_EVERY_SECONDS = 2.0
MOST_PATIENCE = 8


class Progress:
    """`look()` says what is wrong when tasks keep waiting although workers are free.

    After it has said so it is more patient each time, until something is taken: workers that are slow to start on a
    loaded machine must not be started again and again.
    """

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._stuck_since: float | None = None
        self._patience = 1
        self._oldest: int | None = None

    def look(self) -> str:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_SECONDS:
            return ""
        self._looked_at = now
        try:
            stuck = self._waits_in_vain()
        except DatabaseError:
            connection.close()  # the database is away; that is not the workers' fault
            stuck = False
        if not stuck:
            self._stuck_since, self._patience = None, 1
            return ""
        self._stuck_since = self._stuck_since or now
        limit = settings.LQOPS_STALL_SECONDS * self._patience
        if now - self._stuck_since < limit:
            return ""
        self._stuck_since, self._patience = now, min(self._patience * 2, MOST_PATIENCE)
        return f"tasks have waited for {limit:g} seconds and nobody takes them"

    def _waits_in_vain(self) -> bool:
        """Something waits for longer than between two looks, and not every worker has something to do.

        A task that a wedged cluster has taken in waits nowhere; the session that it is about still does.
        """
        now = clock()
        queued = AgentSession.objects.filter(status=Status.QUEUED, enqueued_at__isnull=False)
        oldest = queued.order_by("pk").values_list("pk", flat=True).first()
        same, self._oldest = oldest is not None and oldest == self._oldest, oldest
        found = waiting(now)
        young = found.oldest_at and (now - found.oldest_at).total_seconds() < LOOK_EVERY_SECONDS
        if not same and (not found.count or young):
            return False
        here = AgentSession.objects.filter(lease_owner__startswith=f"{platform.node()}:"[-96:])
        here = here.exclude(mode=Mode.SENSOR)  # those are held by slices, which have workers of their own
        busy = here.filter(status=Status.RUNNING, lease_until__gt=now).count()
        return busy < int(str(settings.Q_CLUSTER["workers"]))


class SensorProgress(Progress):
    """The same for the workers of the sensors: nobody holds sensors that may look, although workers are free."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers = workers

    def _waits_in_vain(self) -> bool:
        now = clock()
        return sensors_unheld(now) and slices_alive(host=platform.node(), now=now) < self._workers
