"""What is due: triggers, wakes, expiries, leases, the watchdog, checkpoints. One process at a time does it.

Every duty reads what is due from the rows and decides by conditional writes, so two tickers at once, or none for a
week, do no harm. A duty that fails is logged and tried again; it keeps no other from being done.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import close_old_connections, connection

from agents.conf import clock
from agents.queue import TaskName, enqueue
from agents.services.approvals import approvals_expire
from agents.services.duty import duty_done, duty_leave, duty_take
from agents.services.firing import schedules_fire, watches_fire_unfired
from agents.services.notifications import copies_due
from agents.services.reminders import approvals_remind
from agents.services.sweeps import lost_again, queued_again, sleepers_wake
from agents.services.watchdog import idle_sweep
from audit.checkpoints import checkpoint_due, write_checkpoint

logger = logging.getLogger(__name__)

NAME = "ticker"
LEASE = timedelta(seconds=10)


@dataclass(frozen=True)
class Duty:
    """Something to look after: how often, and by what. It returns how much there was to do."""

    name: str
    every: timedelta
    do: Callable[[datetime], int]


def _checkpoint(now: datetime) -> int:
    if not checkpoint_due(now):
        return 0
    write_checkpoint(now=now)
    return 1


def _send_copies(now: datetime) -> int:
    due = copies_due(now=now, limit=100)
    for pk in due:
        enqueue(TaskName.SEND_COPY, pk)
    return len(due)


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


DUTIES = (
    Duty("wake sleepers", _seconds(0), sleepers_wake),
    Duty("fire schedules", _seconds(0), lambda now: schedules_fire(now=now)),
    Duty("fire watches", _seconds(1), lambda now: watches_fire_unfired(now=now)),
    Duty("take over lost sessions", _seconds(1), lost_again),
    Duty("queue again", _seconds(1), queued_again),
    Duty("expire approvals", _seconds(2), approvals_expire),
    Duty("remind approvers", _seconds(30), lambda now: approvals_remind(now=now)),
    Duty("watch for idle sessions", _seconds(60), lambda now: idle_sweep(now=now)),
    Duty("send copies again", _seconds(10), _send_copies),
    Duty("write a checkpoint", _seconds(10), _checkpoint),
)


class Ticker:
    """Offers itself for the duty, and does what is due while it holds it."""

    def __init__(self, duties: tuple[Duty, ...] = DUTIES) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"[-96:]
        self._duties = duties
        self._next: dict[str, datetime] = {}

    def tick(self, now: datetime) -> dict[str, int] | None:
        """What was done, by duty; -1 for one that failed. None when another process holds the duty."""
        if not duty_take(NAME, owner=self.owner, lifetime=LEASE, now=now):
            return None
        done = {duty.name: self._do(duty, now) for duty in self._duties if self._next.get(duty.name, now) <= now}
        duty_done(NAME, owner=self.owner, now=now)
        return {name: count for name, count in done.items() if count}

    def run(self, over: threading.Event, *, every: float) -> None:
        """Ticks until told to stop. A database that is away is waited for."""
        try:
            while not over.is_set():
                close_old_connections()
                try:
                    self.tick(clock())
                except Exception:
                    logger.exception("a tick failed; the next one follows")
                    connection.close()
                over.wait(every)
        finally:
            self.leave()

    def leave(self) -> None:
        """Lets another process take the duty at once."""
        duty_leave(NAME, owner=self.owner)

    def _do(self, duty: Duty, now: datetime) -> int:
        self._next[duty.name] = now + duty.every
        try:
            return duty.do(now)
        except Exception:
            logger.exception("could not %s; it is tried again", duty.name)
            return -1
