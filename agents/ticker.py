"""What is due: triggers, wakes, expiries, leases, the watchdog, checkpoints. One process at a time does it.

Every duty reads what is due from the rows and decides by conditional writes, so two tickers at once, or none for a
week, do no harm. A duty that fails is logged and tried again; it keeps no other from being done. How often a duty is
done is measured by a clock that nobody can set; a wall clock that was set back is noticed by the lease.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import close_old_connections, connection
from django.db.models import Q

from agents.conf import clock
from agents.loop.state import hot_forget
from agents.loop.turns import turns_forget
from agents.models import Lease
from agents.people.activity import events_trim
from agents.people.notifications import copies_due, copy_send
from agents.process_end import Asked
from agents.roster.loops import loops_renew
from agents.sensors.rows import sensors_hand_over
from agents.sessions.approvals import approvals_expire
from agents.sessions.leases import idle_sweep, lost_again, queued_again, sleepers_wake
from agents.sessions.questions import approvals_remind, questions_expire, questions_remind
from agents.sessions.transcripts import parts_forget
from agents.triggers.schedules import schedules_fire, schedules_replan
from agents.triggers.watches import watches_fire_unfired
from audit.checkpoints import checkpoint_due, write_checkpoint

logger = logging.getLogger(__name__)


# --- Whose turn it is to do a duty of which there is one in the installation, such as the ticker's ---
#
# Several processes may offer themselves; the row says who holds it, and until when. A duty done twice does no harm
# (what it does is decided by rows of its own); the lease only keeps it from being done by everybody all the time.


def duty_take(name: str, *, owner: str, lifetime: timedelta, now: datetime) -> bool:
    """True while this process holds the duty. It is taken over when its holder was not heard of for a lifetime."""
    Lease.objects.get_or_create(name=name)
    mine_or_free = Q(owner=owner) | Q(until__isnull=True) | Q(until__lte=now) | _beyond(lifetime, now)
    return Lease.objects.filter(mine_or_free, name=name).update(owner=owner, until=now + lifetime) == 1


def duty_is_ahead(name: str, *, lifetime: timedelta, now: datetime) -> bool:
    """True when the duty was taken, or done, at a time that is still to come: the clock was set back since."""
    return Lease.objects.filter(_beyond(lifetime, now) | Q(done_at__gt=now), name=name).exists()


def _beyond(lifetime: timedelta, now: datetime) -> Q:
    """Nobody can have taken the duty for that long, unless the clock was later then than it is now."""
    return Q(until__gt=now + lifetime)


def duty_done(name: str, *, owner: str, now: datetime) -> None:
    Lease.objects.filter(name=name, owner=owner).update(done_at=now)


def duty_leave(name: str, *, owner: str) -> None:
    """Lets the next one take over at once."""
    Lease.objects.filter(name=name, owner=owner).update(owner="", until=None)


NAME = "ticker"
LEASE = timedelta(seconds=10)
STREAMS_KEPT = timedelta(minutes=10)
COPIES_AT_ONCE = 100
MAIL_SECONDS = 10.0  # how long a ticker that ends waits for copies that are being sent


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


class Post:
    """Sends copies by e-mail in a thread of its own: a mail server that hangs holds up neither ticks nor workers."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def go(self, now: datetime) -> int:
        """Begins to send what is due, unless it is at it; returns how many copies it has begun with."""
        if self._thread is not None and self._thread.is_alive():
            return 0
        due = copies_due(now=now, limit=COPIES_AT_ONCE)
        if due:
            self._thread = threading.Thread(target=self._send, args=(due,), daemon=True)
            self._thread.start()
        return len(due)

    def hurry(self) -> None:
        """Begins with no further copy."""
        self._over.set()

    def wait(self) -> None:
        """For what is being sent. A copy that hangs is left behind: its row says when it is tried again."""
        if self._thread is not None:
            self._thread.join(MAIL_SECONDS)
            self.hurry()

    def _send(self, pks: list[int]) -> None:
        try:
            for pk in pks:
                if self._over.is_set():
                    return
                copy_send(pk, now=clock())
        except Exception:
            logger.exception("copies could not be sent; they are tried again")
        finally:
            connection.close()


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


DUTIES = (
    Duty("wake sleepers", _seconds(0), sleepers_wake),
    Duty("fire schedules", _seconds(0), lambda now: schedules_fire(now=now)),
    Duty("fire watches", _seconds(1), lambda now: watches_fire_unfired(now=now)),
    Duty("take over lost sessions", _seconds(1), lost_again),
    Duty("queue again", _seconds(1), queued_again),
    Duty("hand out sensors", _seconds(1), sensors_hand_over),
    Duty("begin loops anew", _seconds(10), loops_renew),
    Duty("expire approvals", _seconds(2), approvals_expire),
    Duty("expire questions", _seconds(2), questions_expire),
    Duty("forget streams", _seconds(60), lambda now: parts_forget(now - STREAMS_KEPT)),
    Duty("trim events", _seconds(60), lambda _now: events_trim()),
    Duty("forget hot state", _seconds(60), lambda _now: hot_forget()),
    Duty("forget old turns", _seconds(3600), turns_forget),
    Duty("remind approvers", _seconds(30), lambda now: approvals_remind(now=now)),
    Duty("remind of questions", _seconds(30), lambda now: questions_remind(now=now)),
    Duty("watch for idle sessions", _seconds(60), lambda now: idle_sweep(now=now)),
    Duty("write a checkpoint", _seconds(10), _checkpoint),
)


class Ticker:
    """Offers itself for the duty, and does what is due while it holds it."""

    def __init__(self, duties: tuple[Duty, ...] = DUTIES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"[-96:]
        self._post = Post()
        self._duties = (*duties, Duty("send copies", _seconds(1), self._post.go))
        self._monotonic = monotonic
        self._next: dict[str, float] = {}

    def tick(self, now: datetime) -> dict[str, int] | None:
        """What was done, by duty; -1 for one that failed. None when another process holds the duty."""
        if duty_is_ahead(NAME, lifetime=LEASE, now=now):
            logger.warning("the clock was set back; schedules are planned anew")
            schedules_replan(now=now)
        if not duty_take(NAME, owner=self.owner, lifetime=LEASE, now=now):
            return None
        passed = self._monotonic()
        done = {duty.name: self._do(duty, now) for duty in self._duties if self._next.get(duty.name, passed) <= passed}
        duty_done(NAME, owner=self.owner, now=now)
        return {name: count for name, count in done.items() if count}

    def run(self, over: Asked, *, every: float) -> None:
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
            self._post.hurry()
            self.leave()

    def leave(self) -> None:
        """Lets another process take the duty at once."""
        self._post.wait()
        duty_leave(NAME, owner=self.owner)

    def _do(self, duty: Duty, now: datetime) -> int:
        self._next[duty.name] = self._monotonic() + duty.every.total_seconds()
        try:
            return duty.do(now)
        except Exception:
            logger.exception("could not %s; it is tried again", duty.name)
            return -1
