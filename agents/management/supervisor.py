"""The processes that `up` runs: started in sessions of their own, watched, started again when they end, stopped.

A child that ends is a fault, whatever its exit code: the queue's main process leaves with 0 when its guard was killed.
What is watched of the workers is progress, not that they are alive: a wedged cluster looks well and does nothing.
"""

import http.client
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from django.conf import settings
from django.db import DatabaseError, connection

from agents.conf import clock
from agents.enums import Mode, Status
from agents.management.commands.sample_metrics import place, url
from agents.management.commands.sense import WORKERS
from agents.models import AgentSession, Sensor
from agents.queue import waiting
from agents.sensors.rows import sensors_unheld, sensors_wanted, slices_alive

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


# Children that run while there is something for them to do: started when they are wanted, stopped when no longer.
#
# A part that nobody needs costs nobody anything. Otherwise they are as all children: started again when they end, and
# when they make no progress.


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


# --- Do the queue's workers get on? Judged by what waits and what runs, never by whether processes are alive ---


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


# The web process as a child of `up`: started on a socket that is already open, and asked until it answers.
#
# The socket is opened by the parent and kept, so a taken port is known before anything else happens, nobody can take
# it in between, and a web process that is started again finds it.


def open_socket(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class Web(Child):
    def __init__(self, listening: socket.socket, application: str = "") -> None:
        handle = listening.fileno()
        module, _, name = str(settings.ASGI_APPLICATION).rpartition(".")
        super().__init__("web", ["web", str(handle), application or f"{module}:{name}"], pass_fds=[handle])
        self._listening = listening
        host, self.port = listening.getsockname()[:2]
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 recognised, not opened

    @property
    def address(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if (code := self.ended()) is not None:
                raise ChildError(f"The web process ended with code {code}.")
            try:
                self.get("/healthz", timeout=0.5)  # the parent keeps the socket, so nobody refuses: ask again
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise ChildError(f"The web process did not answer within {START_SECONDS} seconds.")

    def get(
        self, path: str, *, headers: dict[str, str] | None = None, timeout: float = START_SECONDS
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()


# The parts of an installation on one machine, as processes: web, workers, ticker; and sensors, while there are any.


LINGERS = 60.0  # seconds that the workers of sensors stay when there is nothing to mind


def everything(web: Web, *, say: Say) -> Children:
    demanded = [_sensors(_reaching_sample_source()), _sample_source()]
    return Parts([web, *_workers_and_ticker()], say=say, demanded=demanded, stalled=Progress().look)


def without_web(*, say: Say, ticker: bool = True) -> Children:
    children = _workers_and_ticker()
    return Parts(children if ticker else children[:1], say=say, demanded=[_sensors({})], stalled=Progress().look)


def _workers_and_ticker() -> list[Child]:
    workers = Child("workers", ["qcluster", "--skip-checks"], environment=_kept())
    return [workers, Child("ticker", ["tick"], environment=_kept())]


def _sensors(environment: dict[str, str]) -> Demanded:
    child = Child("sensors", ["sense"], environment=_kept() | environment)
    return Demanded(child, wanted=sensors_wanted, stalled=SensorProgress(WORKERS).look, lingers=LINGERS)


def _sample_source() -> Demanded:
    """What the sample agent for figures listens to, while it listens."""
    listening = Sensor.objects.filter(wanted=True, agent__enabled=True, config__source__url=url())
    return Demanded(Child("sample figures", ["sample_metrics"]), wanted=listening.exists, lingers=LINGERS)


def _reaching_sample_source() -> dict[str, str]:
    """This one place on this machine, for the sensors alone: what listens there is a part of ours."""
    return {"LQOPS_NET_ALLOW_HOSTS": ",".join([*settings.LQOPS_NET_ALLOW_HOSTS, place()])}


def _kept() -> dict[str, str]:
    """A connection is kept by those who use it all the time; the web process opens one for each request."""
    return {"LQOPS_CONN_MAX_AGE": "600" if connection.vendor == "sqlite" else "60"}
