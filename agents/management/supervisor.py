"""Supervisor of the processes of one machine: web, workers, ticker and, while there are any, sensors.

Each child runs in a session of its own, is restarted when it ends, and is stopped with everything that it started. A
child that ends is a fault whatever its exit code. Workers are judged by progress: a stuck cluster is alive and idle.
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
from agents.models import AgentSession, Lease, Sensor
from agents.queue import queue_length
from agents.sensors.rows import count_live_slices, has_unheld_sensors, has_wanted_sensors
from agents.sessions.control_room import TICKER, ticker_is_late
from agents.sessions.fairness import next_run

START_SECONDS = 60
STOP_SECONDS = 20
HEALTHY_AFTER_SECONDS = 10
MAX_PAUSE_SECONDS = 30.0
WATCH_SECONDS = 0.5
DEMAND_SECONDS = 1.0
PROGRESS_SECONDS = 2.0
MAX_PATIENCE = 8
IDLE_SECONDS = 60.0  # how long an on-demand child stays when it is no longer needed

Say = Callable[[str], None]


class Stopped(BaseException):
    """Ctrl-C was pressed, or the process manager asked the supervisor to end."""


def stop_on_signals() -> None:
    """Raise `Stopped` at the first SIGINT or SIGTERM, and ignore further ones."""

    def stop(number: int, frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)  # stopping the children has time limits of its own
        raise Stopped

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


# --- One process ---


class ChildError(RuntimeError):
    """A child ended, or did not start properly."""


class Child:
    """One process and everything that it starts. With `needed`, it runs while that is true, and some time longer."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        needed: Callable[[], bool] | None = None,
        stalled: Callable[[], str] = lambda: "",
    ) -> None:
        self.name = name
        self._arguments = [sys.executable, "-m", "agents.management.child", *arguments]
        path = os.pathsep.join([str(settings.BASE_DIR), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._environment = {**os.environ, "PYTHONPATH": path, **(environment or {})}
        self._pass_fds = pass_fds
        self._needed = needed
        self._stalled = stalled
        self._process: subprocess.Popen[bytes] | None = None
        self._pause = 1.0
        self._started_at = 0.0
        self._restart_at = 0.0
        self._checked_at = float("-inf")
        self._needed_at = float("-inf")
        self._is_stopping = False

    @property
    def always_runs(self) -> bool:
        return self._needed is None

    def start(self) -> None:
        self._started_at = time.monotonic()
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

    def exit_code(self) -> int | None:
        """Its exit code; None while it runs and before it was started."""
        return self._process.poll() if self._process else None

    def check(self, say: Say) -> None:
        """Start, stop or restart it as needed."""
        now = time.monotonic()
        is_needed = self._is_needed(now)
        if self._process is None:
            if is_needed and now >= self._restart_at:
                self.start()
                say(f"{self.name}: started")
        elif (code := self.exit_code()) is not None:
            self.schedule_restart()
            ended = f"ended with code {code}; restarting in {self._pause:.0f} s"
            say(f"{self.name}: {'stopped' if self._is_stopping else ended}")
            self._is_stopping = False
        elif not is_needed and not self._is_stopping:
            self.terminate()
            self._is_stopping = True
        elif is_needed and (why := self._stalled()):
            say(f"{self.name}: {why}; restarted")
            self._kill_group()
            self.start()

    def _is_needed(self, now: float) -> bool:
        if self._needed is None:
            return True
        if now - self._checked_at >= DEMAND_SECONDS:
            self._checked_at = now
            try:
                is_needed = self._needed()
            except DatabaseError:
                connection.close()
                is_needed = self._process is not None  # without a database nothing is started or stopped
            self._needed_at = now if is_needed else self._needed_at
        return now - self._needed_at <= IDLE_SECONDS + DEMAND_SECONDS

    def schedule_restart(self) -> None:
        """Kill what is left of it and set when it may start again: later after each early end."""
        self._kill_group()
        lived = time.monotonic() - self._started_at
        self._pause = 1.0 if lived > HEALTHY_AFTER_SECONDS else min(self._pause * 2, MAX_PAUSE_SECONDS)
        self._restart_at = time.monotonic() + self._pause

    def terminate(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Terminate it, wait, then kill its process group: workers may outlive their main process."""
        if self._process is None:
            return
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._kill_group()

    def _kill_group(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):  # the group has ended
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes the pipe and waits
            pass


def open_socket(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class Web(Child):
    """The web server, on a socket that the supervisor opened.

    The supervisor keeps the socket: a taken port is noticed first, nobody else can take it, and a restarted web process
    finds it again.
    """

    def __init__(self, listening: socket.socket, application: str = "") -> None:
        handle = listening.fileno()
        module, _, name = str(settings.ASGI_APPLICATION).rpartition(".")
        super().__init__("web", ["web", str(handle), application or f"{module}:{name}"], pass_fds=[handle])
        self._listening = listening
        host, self.port = listening.getsockname()[:2]
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 compared, not opened

    @property
    def address(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if (code := self.exit_code()) is not None:
                raise ChildError(f"The web process ended with code {code}.")
            try:
                self.get("/healthz", timeout=0.5)  # the open socket accepts, so a request may time out
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


# --- Progress of the workers ---


class Progress:
    """Detect tasks that keep waiting although workers are free.

    After each report it waits longer, until a task is taken: workers that start slowly on a loaded machine must not be
    restarted again and again.
    """

    missed = "no task was taken"

    def __init__(self) -> None:
        self._checked_at = 0.0
        self._stuck_since: float | None = None
        self._patience = 1
        self._first: int | None = None

    def check(self) -> str:
        """Describe the stall; empty if there is none."""
        now = time.monotonic()
        if now - self._checked_at < PROGRESS_SECONDS:
            return ""
        self._checked_at = now
        try:
            stuck = self._is_stuck()
        except Exception:  # noqa: BLE001 an unreachable database or broker is not the workers' fault, nor the supervisor's
            connection.close()
            stuck = False
        if not stuck:
            self._stuck_since = None
            self._patience = 1
            return ""
        self._stuck_since = self._stuck_since or now
        limit = settings.LQOPS_STALL_SECONDS * self._patience
        if now - self._stuck_since < limit:
            return ""
        self._stuck_since = now
        self._patience = min(self._patience * 2, MAX_PATIENCE)
        return f"{self.missed} for {limit:g} seconds"

    def _is_stuck(self) -> bool:
        """A task has waited since the last check, and not every worker is busy.

        A task that a stuck cluster has taken is no longer in the queue, but the same run is still the next one.
        """
        now = clock()
        first = next_run(now)
        is_unchanged = first is not None and first == self._first
        self._first = first
        tasks = queue_length(now)
        is_new = tasks.oldest_at and (now - tasks.oldest_at).total_seconds() < PROGRESS_SECONDS
        if not is_unchanged and (not tasks.count or is_new):
            return False
        here = AgentSession.objects.filter(lease_owner__startswith=f"{platform.node()}:"[-96:])
        here = here.exclude(mode=Mode.SENSOR)  # sensors have workers of their own
        busy = here.filter(status=Status.RUNNING, lease_until__gt=now).count()
        return busy < int(str(settings.Q_CLUSTER["workers"]))


class SensorProgress(Progress):
    """The same for sensor workers: sensors without a holder, although workers are free."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers = workers

    def _is_stuck(self) -> bool:
        now = clock()
        return has_unheld_sensors(now) and count_live_slices(host=platform.node(), now=now) < self._workers


class TickerProgress(Progress):
    """The same for the ticker: this host's ticker holds the lease and does nothing."""

    missed = "no duty was done"

    def _is_stuck(self) -> bool:
        lease = Lease.objects.filter(name=TICKER, owner__startswith=f"{socket.gethostname()}:"[-96:]).first()
        return lease is not None and lease.done_at is not None and ticker_is_late(lease.done_at, clock())


# --- All processes ---


class Supervisor:
    """`with Supervisor(…) as children:` runs them inside the block; `watch` keeps them running."""

    def __init__(self, children: Sequence[Child], *, say: Say) -> None:
        self._children = children
        self._say = say

    def __enter__(self) -> "Supervisor":
        for child in self._children:
            if child.always_runs:
                child.start()
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):
            child.terminate()  # all at once, so that they end in parallel
        for child in reversed(self._children):
            child.stop()

    def watch(self) -> None:
        """Restart children that end, and workers without progress. Never returns."""
        while True:
            self.check()
            time.sleep(WATCH_SECONDS)

    def check(self) -> None:
        for child in self._children:
            child.check(self._say)


def everything(web: Web, *, say: Say) -> Supervisor:
    # The sensors, and nothing else, may reach the sample source on this machine.
    allowed = {"LQOPS_NET_ALLOW_HOSTS": ",".join([*settings.LQOPS_NET_ALLOW_HOSTS, place()])}
    return Supervisor([web, _workers(), _ticker(), _sensors(allowed), _sample_source()], say=say)


def without_web(*, say: Say, ticker: bool = True) -> Supervisor:
    return Supervisor([_workers(), *([_ticker()] if ticker else []), _sensors({})], say=say)


def _workers() -> Child:
    arguments = ["qcluster", "--skip-checks"]
    return Child("workers", arguments, environment=_persistent_connections(), stalled=Progress().check)


def _ticker() -> Child:
    return Child("ticker", ["tick"], environment=_persistent_connections(), stalled=TickerProgress().check)


def _sensors(environment: dict[str, str]) -> Child:
    return Child(
        "sensors",
        ["sense"],
        environment=_persistent_connections() | environment,
        needed=has_wanted_sensors,
        stalled=SensorProgress(WORKERS).check,
    )


def _sample_source() -> Child:
    """The source of the sample metrics, while the sample agent listens to it."""
    listening = Sensor.objects.filter(wanted=True, agent__enabled=True, config__source__url=url())
    return Child("sample metrics", ["sample_metrics"], needed=listening.exists)


def _persistent_connections() -> dict[str, str]:
    """Workers and ticker keep their database connections; the web process opens one per request."""
    return {"LQOPS_CONN_MAX_AGE": "600" if connection.vendor == "sqlite" else "60"}
