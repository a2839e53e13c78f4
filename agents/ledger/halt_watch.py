"""Tells calls in flight that their session was stopped. One thread per process reads for all of them.

It starts with the first call that waits, reads a few times a second, and ends soon after the last. It only speeds a
halt up: the brakes read the rows themselves before every call.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from django.db import connection

from agents.enums import Status, TerminalReason
from agents.ledger.boundary import GOING_ON
from agents.models import AgentSession, Installation

logger = logging.getLogger(__name__)

READ_SECONDS: Final = 0.25
IDLE_READS: Final = 8  # rounds without a call before the thread ends
Held = tuple[int, int]  # a session's primary key, and the fencing number under which it is held


class HaltWatch:
    """The sessions of this process that have a call in flight, and those among them that were stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[Held] = Counter()
        self._stopped: frozenset[Held] = frozenset()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, session: AgentSession) -> Iterator[Callable[[], bool]]:
        """Give a function that returns whether the session was stopped, as last read. It makes no query."""
        held = (session.pk, session.fencing)
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="halt-watch", daemon=True)
                thread.start()
                self._thread = thread  # the next call tries again if there is no room for a thread now
            self._calls[held] += 1
        try:
            yield lambda: held in self._stopped
        finally:
            with self._lock:
                self._calls[held] -= 1
                if not self._calls[held]:
                    del self._calls[held]

    def _run(self) -> None:
        pause = threading.Event()
        idle = 0
        try:
            while True:
                pause.wait(READ_SECONDS)
                with self._lock:
                    held = list(self._calls)
                    idle = 0 if held else idle + 1
                    if idle >= IDLE_READS:
                        self._thread = None
                        return
                if held:
                    self._read(held)
                else:
                    connection.close()
        finally:
            connection.close()

    def _read(self, held: list[Held]) -> None:
        try:
            self._stopped = frozenset(_stopped(held))
        except Exception:
            logger.warning("halts could not be read; the next read follows", exc_info=True)
            connection.close()


def _stopped(held: list[Held]) -> Iterator[Held]:
    """A session that cannot be seen is not taken for stopped: the brakes decide about it at its next call.

    Nor is one that ended itself at its cap: what is in flight then was paid for before.
    """
    pks = {pk for pk, _ in held}
    all_work = Installation.objects.filter(pk=1, halt__isnull=False).exists()
    rows = AgentSession.objects.filter(pk__in=pks).values_list(
        "pk", "fencing", "status", "halt_state", "terminal_reason"
    )
    now = {pk: row for pk, *row in rows}
    for pk, fencing in held:
        if pk in now:
            current, status, state, reason = now[pk]
            halted = state not in GOING_ON and reason != TerminalReason.COST_CAP_REACHED
            if all_work or current != fencing or status != Status.RUNNING or halted:
                yield (pk, fencing)


_watch = HaltWatch()


def _after_fork() -> None:
    """Threads do not survive a fork."""
    global _watch  # noqa: PLW0603 one process, one watch
    _watch = HaltWatch()


os.register_at_fork(after_in_child=_after_fork)


def watching(session: AgentSession) -> AbstractContextManager[Callable[[], bool]]:
    return _watch.watching(session)
