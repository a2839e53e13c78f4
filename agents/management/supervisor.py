"""The processes that `up` runs: started in sessions of their own, watched, started again when they end, stopped.

A child that ends is a fault, whatever its exit code: the queue's main process leaves with 0 when its guard was killed.
What is watched of the workers is progress, not that they are alive: a wedged cluster looks well and does nothing.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from django.conf import settings

START_SECONDS = 60
STOP_SECONDS = 20
SOUND_AFTER_SECONDS = 10
LONGEST_PAUSE = 30.0
LOOK_SECONDS = 0.5

Say = Callable[[str], None]


class ChildError(RuntimeError):
    """A child ended, or never did what it was started for."""


class Child:
    """One process and everything that it starts."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._arguments = [sys.executable, "-m", "agents.management.child", *arguments]
        path = os.pathsep.join([str(settings.BASE_DIR), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._environment = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        self._pass_fds = pass_fds
        self._process: subprocess.Popen[bytes] | None = None
        self._pause = 1.0
        self.started_at = 0.0
        self.start_again_at = 0.0

    def start(self) -> None:
        self.started_at = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 our own interpreter and module
            self._arguments,
            stdin=subprocess.PIPE,
            pass_fds=self._pass_fds,
            env=self._environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ended(self) -> int | None:
        """Its exit code; None while it runs, and before it was started."""
        return self._process.poll() if self._process else None

    def restart(self) -> None:
        """Ends it at once with everything that it started, and starts it anew."""
        self._kill_group()
        self.start()

    def give_up(self) -> None:
        """Ends what is left of it, and says when it may be started again: later each time that it ends early."""
        self._kill_group()
        lived = time.monotonic() - self.started_at
        self._pause = 1.0 if lived > SOUND_AFTER_SECONDS else min(self._pause * 2, LONGEST_PAUSE)
        self.start_again_at = time.monotonic() + self._pause

    def ask_to_stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Asks, waits, and then ends the whole group: workers that outlived their main process too."""
        if self._process is None:
            return
        self.ask_to_stop()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._kill_group()

    def _kill_group(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):  # nothing of it is left
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # whose exit closes the pipe and waits
            pass


class Children:
    """`with Children(…) as children:` runs them inside the block; `watch` keeps them going."""

    def __init__(self, children: Sequence[Child], *, say: Say, stalled: Callable[[], str] = lambda: "") -> None:
        self._children = list(children)
        self._say = say
        self._stalled = stalled

    def __enter__(self) -> "Children":
        for child in self._children:
            child.start()
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):
            child.ask_to_stop()  # all at once, so that they end side by side
        for child in reversed(self._children):
            child.stop()

    def watch(self) -> None:
        """Never returns: starts again what ends, and the workers when they make no progress."""
        while True:
            self.look()
            time.sleep(LOOK_SECONDS)

    def look(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.pid is None and now >= child.start_again_at:
                child.start()
                self._say(f"{child.name}: started again")
            elif (code := child.ended()) is not None:
                child.give_up()
                self._say(
                    f"{child.name}: ended with code {code}; starting it again in {child.start_again_at - now:.0f} s"
                )
        if why := self._stalled():
            for child in self._children:
                if child.name == "workers" and child.pid is not None:
                    self._say(f"workers: {why}; started again")
                    child.restart()
