"""The ticker: periodic duties such as triggers, wakes, expiries, lost leases and checkpoints.

One process at a time runs them, under a lease. Every duty finds its work in the rows and decides by conditional writes,
so two tickers at once, or none for a week, do no harm. A duty that fails is logged, retried, and stops no other duty.
Intervals use the monotonic clock; the lease shows when the wall clock was set back. While nobody writes anything, only
what comes due by the clock is looked for, and not before its time where that is known (docs/decisions/0043). What comes
due at a known time between two ticks is done at that time.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, close_old_connections, connection
from django.db.models import Q, QuerySet

from agents.conf import clock
from agents.database_clock import shared, time_to_claim
from agents.engine.indexing import indexing_due
from agents.enums import QuestionStatus
from agents.knowledge.findings import findings_expire
from agents.knowledge.projects import precedents_expire
from agents.ledger.budgets import budgets_tell
from agents.ledger.outages import ping_note, pings_due
from agents.loop.state import hot_delete_old
from agents.loop.turns import turns_delete_old
from agents.models import Approval, Lease, Question
from agents.people.activity import events_trim
from agents.people.outbox import copies_due, copy_put_off, copy_send
from agents.process_end import SignalEvent, stop_requested
from agents.providers.ping import has_server, is_there
from agents.roster.loops import loops_revive
from agents.sensors.rows import has_wanted_sensors, sensor_slices_enqueue
from agents.sessions.alarms import alarms_update
from agents.sessions.approvals import LIVE, approvals_expire
from agents.sessions.control_room import TICKER_LATE, ticker_is_late
from agents.sessions.fairness import has_work, tasks_send
from agents.sessions.faults import host_report, host_report_if_old, hosts_forget
from agents.sessions.halts import halted_work_end
from agents.sessions.leases import (
    idle_sweep,
    model_waiters_wake,
    next_model_waiter,
    next_runs_waiter,
    next_sleeper,
    runs_waiters_wake,
    sleepers_wake,
)
from agents.sessions.pauses import pauses_apply
from agents.sessions.questions import approvals_escalate, approvals_remind, questions_expire, questions_remind
from agents.sessions.restarts import owners_tell_not_running
from agents.sessions.transcripts import parts_delete_old
from agents.triggers.handing_on import children_attend
from agents.triggers.inputs import inputs_fire
from agents.triggers.schedules import next_schedule, schedules_fire, schedules_replan
from agents.triggers.watches import watches_fire_unfired
from audit.checkpoints import checkpoint_due, write_checkpoint
from audit.recorder import append_pending

logger = logging.getLogger(__name__)


NAME = "ticker"
LEASE = timedelta(seconds=10)
STREAMS_KEPT = timedelta(minutes=10)
COPIES_AT_ONCE = 100
AUDIT_PATIENCE = timedelta(seconds=1)  # how long the ticker waits for other writers of a chain
STAND_IN_SECONDS = 5.0
MAIL_SECONDS = 10.0  # how long a stopping ticker waits for the mailer
SHORTEST_SECONDS = 0.05  # between two looks for what is due at a known time, however many times are known


# --- Lease for work that only one process may do ---
#
# A duty done twice does no harm. The lease only keeps every process from doing it all the time.


def acquire(name: str, *, owner: str, lifetime: timedelta, now: datetime) -> bool:
    """Take or renew the lease. False while another process holds it and has renewed it within a lifetime."""
    available = Q(owner=owner) | Q(until__isnull=True) | Q(until__lte=now) | _too_late(lifetime, now)
    free = Lease.objects.filter(available, name=name)
    taken = {"owner": owner, "until": now + lifetime}
    if free.update(**taken):
        return True
    return Lease.objects.get_or_create(name=name)[1] and free.update(**taken) == 1


def renew(name: str, *, owner: str, lifetime: timedelta, now: datetime) -> bool:
    """Go on holding the lease. False if another process holds it, or if the clock was set back."""
    held = Lease.objects.filter(~_too_late(lifetime, now), name=name, owner=owner, done_at__lte=now)
    return held.update(until=now + lifetime) == 1


def release(name: str, *, owner: str) -> None:
    """Let the next process acquire the lease at once."""
    Lease.objects.filter(name=name, owner=owner).update(owner="", until=None)


def record_done(name: str, *, owner: str, now: datetime) -> bool:
    """Note that the work was done. False if another process has acquired the lease meanwhile."""
    return Lease.objects.filter(name=name, owner=owner).update(done_at=now) == 1


def clock_moved_back(name: str, *, lifetime: timedelta, now: datetime) -> bool:
    """True if the lease was acquired, or its work done, at a time that is still to come."""
    return Lease.objects.filter(_too_late(lifetime, now) | Q(done_at__gt=now), name=name).exists()


def _too_late(lifetime: timedelta, now: datetime) -> Q:
    """An end that no lease acquired by now can have."""
    return Q(until__gt=now + lifetime)


# --- Has anybody written anything? ---
#
# An installation where nothing happens is looked at by one statement, and not by thirty.

QUIET_SECONDS = 5.0
EVERYTHING_SECONDS = 60.0  # everything is looked for after that time, whatever the marks say
Mark = tuple[object, int | str]
_MARK = {
    "sqlite": "PRAGMA data_version",  # changes with every commit of another connection
    # The next number of a transaction that writes, and those that have not ended: both change with everybody's writing.
    "postgresql": "SELECT pg_current_snapshot()::text",
}


def mark() -> Mark | None:
    """Return what stays the same until somebody writes to the database; None inside of a transaction."""
    if connection.in_atomic_block:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_MARK[connection.vendor])
        found = cursor.fetchone()[0]
    # SQLite's number says something to the connection alone that has read it.
    return (connection.connection if connection.vendor == "sqlite" else None), found


def only_own_writes_between(before: Mark | None, after: Mark | None, number: int = 1) -> bool:
    """Return whether so many writes of this connection, and no others, lie between two marks."""
    if before is None or after is None:
        return False
    if isinstance(before[1], int):
        return before == after  # its own writes change nothing
    (_, last, unended), (_, then_last, then_unended) = (str(one[1]).split(":") for one in (before, after))
    return int(then_last) == int(last) + number and then_unended == unended


# --- Duties ---


@dataclass(frozen=True)
class Duty:
    """Periodic work: its name, its interval in seconds and its function, which returns how much was done.

    `next_due` if it comes due on time although nobody writes anything: the earliest time, None if only a write can make
    it due. `by_writes` if only a write can ever make it due: one that is looked for finds nothing while nobody writes.
    Others may be late by QUIET_SECONDS then, and, once they were looked for since the last write, by `rest` more.
    `writes` if it writes each time, once, what makes nothing due.
    """

    name: str
    every: float
    do: Callable[[datetime], int]
    next_due: Callable[[datetime], datetime | None] | None = None
    by_writes: bool = False
    rest: float = 0
    writes: bool = False


def _checkpoint(now: datetime) -> int:
    if not checkpoint_due(now):
        return 0
    write_checkpoint(now=now)
    return 1


def _report_host(now: datetime) -> int:
    host_report(now, writes_checkpoints=True)
    return 0


_LIVE_APPROVALS = Approval.objects.filter(status__in=LIVE, consumed_at__isnull=True)
_PENDING_QUESTIONS = Question.objects.filter(status=QuestionStatus.PENDING)


def _first_expiry(rows: QuerySet[Any]) -> datetime | None:
    return rows.order_by("expires_at").values_list("expires_at", flat=True).first()


DUTIES = (
    Duty("append pending audit events", 0, lambda _now: append_pending(patience=AUDIT_PATIENCE), by_writes=True),
    Duty("halt active sessions", 0, halted_work_end, by_writes=True),
    Duty("pause and resume sessions", 0, pauses_apply, by_writes=True),
    Duty("wake sleepers", 0, sleepers_wake, next_due=next_sleeper),
    Duty("try models that are away", 1, model_waiters_wake, next_due=next_model_waiter),
    Duty("fire schedules", 0, lambda now: schedules_fire(now=now), next_due=next_schedule),
    Duty("fire watches", 1, lambda now: watches_fire_unfired(now=now)),
    Duty("read again what was not read", 1, lambda now: inputs_fire(now=now)),
    Duty("send tasks", 0, tasks_send, next_due=lambda now: now if has_work() else None),
    Duty("hand out sensors", 1, sensor_slices_enqueue, next_due=lambda now: now if has_wanted_sensors() else None),
    Duty("start loops again", 10, loops_revive, rest=20),
    Duty("tell owners of agents that do not run", 10, owners_tell_not_running, rest=50),
    Duty("end waits for started runs", 1, runs_waiters_wake, next_due=next_runs_waiter),
    Duty("attend to started runs", 1, children_attend, by_writes=True),
    Duty("index documents", 10, indexing_due),
    Duty("expire approvals", 2, approvals_expire, next_due=lambda _now: _first_expiry(_LIVE_APPROVALS)),
    Duty("expire questions", 2, questions_expire, next_due=lambda _now: _first_expiry(_PENDING_QUESTIONS)),
    Duty("delete old streams", 60, lambda now: parts_delete_old(now - STREAMS_KEPT)),
    Duty("trim events", 60, lambda _now: events_trim()),
    Duty("delete old hot state", 60, lambda _now: hot_delete_old()),
    Duty("delete old turns", 3600, turns_delete_old),
    Duty("expire precedents", 3600, precedents_expire),
    Duty("expire findings", 60, findings_expire),
    Duty("remind approvers", 30, lambda now: approvals_remind(now=now)),
    Duty("escalate approvals", 30, approvals_escalate),
    Duty("remind of questions", 30, lambda now: questions_remind(now=now)),
    Duty("watch for idle sessions", 60, lambda now: idle_sweep(now=now)),
    Duty("write a checkpoint", 10, _checkpoint, rest=20),
    Duty("report this host", 10, _report_host, writes=True),
    Duty("forget hosts", 3600, hosts_forget),
    Duty("tell of budgets", 10, budgets_tell, rest=50),
    Duty("tell of faults", 10, lambda now: alarms_update(now, by_ticker=True), rest=20),
)


class Mailer:
    """Sends copies of notifications in a thread: a hanging server delays neither ticks nor workers."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def start(self, now: datetime) -> int:
        """Start sending due copies, unless it is still sending. Returns their number."""
        if self._thread is not None and self._thread.is_alive():
            return 0
        due = copies_due(now=now, limit=COPIES_AT_ONCE)
        if due:
            self._thread = threading.Thread(target=self._send, args=(due,), daemon=True)
            self._thread.start()
        return len(due)

    def stop(self) -> None:
        """Send no further copy."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the copies being sent. A hanging one is abandoned; its row says when to retry."""
        if self._thread is not None:
            self._thread.join(MAIL_SECONDS)
            self.stop()

    def _send(self, pks: list[int]) -> None:
        try:
            for pk in pks:
                if self._stopped.is_set():
                    return
                try:
                    copy_send(pk, now=clock())
                except Exception:
                    logger.exception("copy %s of a notification could not be sent; it is retried", pk)
                    copy_put_off(pk, now=clock())
        except Exception:
            logger.exception("copies of notifications could not be sent; they are retried")
        finally:
            connection.close()


class Pinger:
    """Asks servers of models that are away whether they are back, in threads: one that hangs delays no tick."""

    def start(self, now: datetime) -> int:
        """Start asking those that are due. Returns their number."""
        due = pings_due(now, can_ask=has_server)
        for model in due:
            threading.Thread(target=self._ask, args=(model,), name="ping", daemon=True).start()
        return len(due)

    def _ask(self, model: str) -> None:
        try:
            if ping_note(model, is_there=is_there(model), now=shared(clock())):
                logger.info("the server of model %s answers again; a run tries it", model)
        except Exception:
            logger.exception("it could not be found out whether the server of model %s answers", model)
        finally:
            connection.close()


class Ticker:
    """Does the due duties while it holds the lease."""

    def __init__(self, duties: tuple[Duty, ...] = DUTIES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"[-96:]
        self._mailer = Mailer()
        ping = Duty("ask servers that are away", 1, Pinger().start, next_due=next_model_waiter)
        self._duties = (*duties, ping, Duty("send copies", 1, self._mailer.start))
        self._monotonic = monotonic
        self._next: dict[str, float] = {}
        self._quiet_since: Mark | None = None
        self._seen: Mark | None = None
        self._looked: set[str] = set()  # the duties that were looked for since somebody wrote
        self._look_at = 0.0
        self._everything_at = 0.0
        self._asleep_until: datetime | None = None
        self._next_at: datetime | None = None
        self._has_failed = False
        self._ahead = timedelta(0)  # of this host's clock, at the last look

    def tick(self, now: datetime) -> dict[str, int] | None:
        """Counts by duty, -1 for one that failed. None if another process holds the lease, or the clock is off."""
        is_quiet = self._is_quiet()
        if is_quiet and self._monotonic() < self._look_at:
            return self._tick_quietly(now - self._ahead)
        at = time_to_claim(now)
        if at is None:
            self._give_way(now)
            return None
        self._ahead, now = now - at, at
        if not renew(NAME, owner=self.owner, lifetime=LEASE, now=now):
            is_quiet = False
            if clock_moved_back(NAME, lifetime=LEASE, now=now):
                logger.warning("the clock was set back; schedules are planned again")
                schedules_replan(now=now)
            if not acquire(NAME, owner=self.owner, lifetime=LEASE, now=now):
                self._next_at = None
                return None
        before = mark()
        if not only_own_writes_between(self._seen, before):
            self._looked.clear()
            is_quiet = False
        return self._look(now, before, self._duties_by_clock(now) if is_quiet else self._duties)

    def _give_way(self, now: datetime) -> None:
        """Leave the duties to a host with a right clock. This one only reports itself."""
        release(NAME, owner=self.owner)
        self._quiet_since = self._next_at = None
        reports = [duty for duty in self._duties if duty.do is _report_host]
        self._do_all(shared(now), self._due(reports))

    def _look(self, now: datetime, before: Mark | None, duties: Sequence[Duty]) -> dict[str, int]:
        """Do these duties if they are due, and find out whether nobody writes anything."""
        done = self._due(duties)
        counts = self._do_all(now, done)
        is_leader = record_done(NAME, owner=self.owner, now=now)
        after = mark()
        own = 1 + sum(duty.writes for duty in done)
        is_quiet = is_leader and not counts and only_own_writes_between(before, after, own)
        if is_quiet:
            self._looked.update(duty.name for duty in done)
        else:
            self._looked.clear()
        if len(duties) == len(self._duties):
            # One whose interval is not over yet may have something to do.
            is_quiet = is_quiet and not any(duty.by_writes for duty in duties if duty not in done)
            self._everything_at = self._monotonic() + EVERYTHING_SECONDS
        if len(duties) == len(self._duties) or not self._is_asleep(now):
            self._note_times(now, is_quiet=is_quiet)
        self._seen = after
        self._quiet_since = after if is_quiet else None
        self._look_at = self._monotonic() + QUIET_SECONDS
        return counts

    def _duties_by_clock(self, now: datetime) -> list[Duty]:
        """Return the duties that may be due although nobody has written anything."""
        is_asleep = self._is_asleep(now)
        by_clock = [duty for duty in self._duties if not duty.by_writes and not (duty.next_due and is_asleep)]
        rested = self._monotonic()
        return [one for one in by_clock if one.name not in self._looked or self._next[one.name] + one.rest <= rested]

    def _is_asleep(self, now: datetime) -> bool:
        """Return whether no duty with a known time is due."""
        return self._asleep_until is None or now < self._asleep_until

    def _tick_quietly(self, now: datetime) -> dict[str, int]:
        return {} if self._is_asleep(now) else self.tick_on_time(now)

    def tick_on_time(self, now: datetime) -> dict[str, int]:
        """Do only what is due at a time that the rows say. Whoever holds the lease may do so between two ticks."""
        now -= self._ahead
        counts = self._do_all(now, self._due([duty for duty in self._duties if duty.next_due]))
        if counts:
            # What it wrote may make other duties due, and SQLite does not tell of own writes.
            self._quiet_since = self._seen = None
        self._note_times(now, is_quiet=self._quiet_since is not None)
        return counts

    def _note_times(self, now: datetime, *, is_quiet: bool) -> None:
        """Find out when duties are due by the clock. While others write, only those without an interval are asked."""
        asked = [duty.next_due for duty in self._duties if duty.next_due and (is_quiet or not duty.every)]
        times = [time for next_due in asked if (time := next_due(now)) is not None]
        self._asleep_until = min(times, default=None) if is_quiet else None
        self._next_at = min((time for time in times if time > now), default=None)

    def _is_quiet(self) -> bool:
        """Return whether all duties were done lately, with nothing to do, and nobody has written anything since."""
        is_late = self._monotonic() >= self._everything_at
        return self._quiet_since is not None and not is_late and mark() == self._quiet_since

    def _due(self, duties: Sequence[Duty]) -> list[Duty]:
        """Return those whose interval is over."""
        elapsed = self._monotonic()
        return [duty for duty in duties if self._next.get(duty.name, elapsed) <= elapsed]

    def _do_all(self, now: datetime, duties: Sequence[Duty]) -> dict[str, int]:
        counts = {duty.name: self._do(duty, now) for duty in duties}
        return {name: count for name, count in counts.items() if count}

    def run(self, over: SignalEvent, *, every: float) -> None:
        """Tick until asked to stop, also through database outages; between two ticks, at the times that rows say."""
        tick_at = self._monotonic()
        try:
            while not over.is_set():
                is_between = self._monotonic() < tick_at
                self._try(self.tick_on_time if is_between else self.tick)
                if not is_between:
                    tick_at = self._monotonic() + every
                over.wait(self._pause(tick_at - self._monotonic()))
        finally:
            self._mailer.stop()
            self.leave()

    def _try(self, tick: Callable[[datetime], object]) -> None:
        close_old_connections()
        try:
            tick(clock())
            self._has_failed = False
        except Exception as error:
            is_known = self._has_failed and isinstance(error, OperationalError | InterfaceError)
            # In an outage twice a second: the first one in full.
            logger.exception("a tick failed (%s); the next one follows", type(error).__name__, exc_info=not is_known)
            self._has_failed = True
            self._next_at = None
            connection.close()

    def _pause(self, seconds: float) -> float:
        """Return how long to wait: until the next tick, or until the next time that the rows say."""
        if self._next_at is not None:
            seconds = min(seconds, max((self._next_at - clock() + self._ahead).total_seconds(), SHORTEST_SECONDS))
        return max(seconds, 0)

    def leave(self) -> None:
        """Let another process acquire the lease at once."""
        self._mailer.join()
        release(NAME, owner=self.owner)

    def _do(self, duty: Duty, now: datetime) -> int:
        self._next[duty.name] = self._monotonic() + duty.every
        try:
            return duty.do(now)
        except Exception:
            logger.exception("could not %s; it is retried", duty.name)
            return -1


# --- While no ticker works ---


class StandIn:
    """Reports its host and, while no ticker works, tells people of faults and sends copies of notifications.

    Runs in a thread of every web process and of `work`: a dead ticker cannot tell of itself. Everything else waits for
    the ticker.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._mailer = Mailer()
        self._monotonic = monotonic
        self._began = monotonic()

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self.run, name="stand-in", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        while not stop_requested.wait(STAND_IN_SECONDS):
            try:
                self.check(clock())
            except Exception:
                logger.exception("the state of the installation could not be checked; it is tried again")
            finally:
                connection.close()  # a kept one would hang for minutes on a line that was cut

    def check(self, now: datetime) -> bool:
        """Do its work once. Return True if it stood in for the ticker."""
        now = shared(now)
        host_report_if_old(now)
        done_at = Lease.objects.filter(name=NAME).values_list("done_at", flat=True).first()
        has_waited = self._monotonic() - self._began > TICKER_LATE.total_seconds()  # everything starts together
        if not has_waited or not ticker_is_late(done_at, now):
            return False
        alarms_update(now)
        self._mailer.start(now)
        return True
