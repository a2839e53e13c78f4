"""Children that run while there is something for them to do: started when they are wanted, stopped when no longer.

A part that nobody needs costs nobody anything. Otherwise they are as all children: started again when they end, and
when they make no progress.
"""

import time
from collections.abc import Callable, Sequence

from django.db import DatabaseError, connection

from agents.management.supervisor import Child, Children, Say

ASK_EVERY_SECONDS = 1.0


class Demanded:
    """A child, what it is wanted for, and how long it stays when it is not wanted any more."""

    def __init__(
        self,
        child: Child,
        *,
        wanted: Callable[[], bool],
        stalled: Callable[[], str] = lambda: "",
        lingers: float = 0.0,
    ) -> None:
        self.child = child
        self._wanted, self._stalled, self._lingers = wanted, stalled, lingers
        self._asked_at = self._wanted_at = float("-inf")
        self._leaves = False

    def look(self, say: Say) -> None:
        now = time.monotonic()
        if now - self._asked_at >= ASK_EVERY_SECONDS:
            self._asked_at = now
            self._wanted_at = now if self._is_wanted() else self._wanted_at
        needed = now - self._wanted_at <= self._lingers + ASK_EVERY_SECONDS
        if self.child.pid is None:
            if needed and now >= self.child.start_again_at:
                self.child.start()
                say(f"{self.child.name}: started")
        elif (code := self.child.ended()) is not None:
            self.child.give_up()
            said = "stopped" if self._leaves else f"ended with code {code}"
            say(f"{self.child.name}: {said}")
            self._leaves = False
        elif not needed and not self._leaves:
            self.child.ask_to_stop()
            self._leaves = True
        elif needed and (why := self._stalled()):
            say(f"{self.child.name}: {why}; started again")
            self.child.restart()

    def _is_wanted(self) -> bool:
        try:
            return self._wanted()
        except DatabaseError:
            connection.close()  # the database is away; what runs goes on
            return self.child.pid is not None


class Parts(Children):
    """The children that always run, and those that are wanted now and then."""

    def __init__(
        self,
        children: Sequence[Child],
        *,
        say: Say,
        demanded: Sequence[Demanded] = (),
        stalled: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(children, say=say, stalled=stalled)
        self._demanded = list(demanded)

    def look(self) -> None:
        super().look()
        for one in self._demanded:
            one.look(self._say)

    def __exit__(self, *_: object) -> None:
        for one in self._demanded:
            one.child.ask_to_stop()
        super().__exit__()
        for one in self._demanded:
            one.child.stop()
