"""Supervisor of the processes of one machine: web, workers, ticker and, while there are any, sensors.

Each child runs in a session of its own, is restarted when it ends, and is stopped with everything that it started. A
child that ends is a fault whatever its exit code. Workers are judged by progress: a stuck cluster is alive and idle.

Children are forked, so that they share the memory of what was imported. Where a fork is not safe, a new interpreter is
started instead.
"""

import gc
import http.client
import os
import pickle
import platform
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar, Generic, TypeVar, cast
from weakref import WeakSet

from django.conf import settings
from django.db import DatabaseError, connection, connections

from agents.conf import clock
from agents.database_clock import shared, time_to_claim
from agents.enums import Mode, Status
from agents.management.child import STOP_SIGNALS, run_child
from agents.management.commands.sample_metrics import place, url
from agents.management.commands.sense import WORKERS
from agents.models import AgentSession, Lease, Sensor
from agents.process_end import end_with_parent
from agents.queue import QueueLength, load_tasks, may_have_tasks, prepare_tasks, queue_length
from agents.sensors.rows import count_live_slices, has_unheld_sensors, has_wanted_sensors
from agents.sessions.control_room import TICKER, health, ticker_is_late
from agents.sessions.fairness import has_work, next_run
from agents.ticker import Mark, mark

START_SECONDS = 60
HEALTHY_AFTER_SECONDS = 10
MAX_PAUSE_SECONDS = 30.0
WATCH_SECONDS = 1.0
DEMAND_SECONDS = 1.0
PROGRESS_SECONDS = 2.0
MAX_PATIENCE = 8
IDLE_SECONDS = 60.0  # how long an on-demand child stays when it is no longer needed

Say = Callable[[str], None]
Result = TypeVar("Result")


class Stopped(BaseException):
    """Ctrl-C was pressed, or the process manager asked the supervisor to end."""

    was_asked = False  # Python drops what is raised while an object is destroyed


def stop_on_signals() -> None:
    """Raise `Stopped` at the first SIGINT or SIGTERM, and ignore further ones."""

    def stop(number: int, frame: object) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # stopping the children has time limits of its own
        Stopped.was_asked = True
        raise Stopped

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


# --- One process ---

Held = Connection | socket.socket


def can_fork() -> bool:
    """Return whether a forked process is sound: not with other threads, and not with the libraries of macOS."""
    return sys.platform == "linux" and threading.active_count() == 1


def run_apart(work: Callable[[], Result]) -> Result:
    """Return what a function returns, or raise what it raises. A forked process runs it, and its memory is freed."""
    if not can_fork():
        return work()
    connections.close_all()  # no two processes may use one
    context = get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(work, sending, os.getpid()))
    try:
        with _signals_held_back():  # Python would ignore what their handler raises in the middle of a fork
            process.start()
        sending.close()
        result, error = receiving.recv()
    except EOFError:
        process.join()
        raise ChildError(f"The process that prepares the start ended with code {process.exitcode}.") from None
    except BaseException:  # this process was asked to stop, or the other could not be started
        if process.pid:
            process.terminate()
        raise
    finally:
        if process.pid:
            process.join()
        receiving.close()
    if error is not None:
        raise error
    return cast("Result", result)


def _send_result(work: Callable[[], Any], sending: Connection, parent: int) -> None:
    end_with_parent(parent)
    result, raised = None, None
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        result = work()
    except Stopped:
        return  # the parent was asked to stop, too
    except BaseException as error:  # noqa: BLE001 the parent raises it
        raised = _sendable(error)
    sending.send((result, raised))


def _sendable(error: BaseException) -> BaseException:
    """Return the error with its traceback as a note; its text alone, if it cannot be sent as it is."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 our own bytes
    except Exception:  # noqa: BLE001 whatever its class does when it is copied
        return ChildError(f"{type(error).__name__}: {error}")
    return error


class ChildError(RuntimeError):
    """A child ended, or did not start properly."""


class Child:
    """One process and everything that it starts. With `needed`, it runs while that is true, and some time longer."""

    # What only this process, or one child, may hold open: the pipes by which children notice its end, and the socket.
    _held: ClassVar[WeakSet[Held]] = WeakSet()
    _run: ClassVar[Callable[..., None]] = staticmethod(run_child)

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        connection_seconds: int = 0,
        overrides: Mapping[str, Any] | None = None,
        listening: socket.socket | None = None,
        needed: Callable[[], bool] | None = None,
        stalled: Callable[[], str] = lambda: "",
    ) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._connection_seconds = connection_seconds
        self._overrides = overrides or {}
        self._listening = listening
        self._needed = needed
        self._stalled = stalled
        self._process: BaseProcess | None = None
        self._lifeline: Connection | None = None
        self._pidfd: int | None = None
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
        fork = can_fork()
        context: Any = get_context("fork" if fork else "spawn")
        reading, self._lifeline = context.Pipe(duplex=False)
        self._held.add(self._lifeline)
        given = {
            "name": self.name,
            "connection_seconds": self._connection_seconds,
            "overrides": self._overrides,
            "listening": self._listening,
            "lifeline": reading,
            "closing": [one.fileno() for one in self._held if one is not self._listening] if fork else [],
        }
        self._process = context.Process(target=self._run, args=self._arguments, kwargs=given)
        if fork:
            connections.close_all()  # no two processes may use one
            with _signals_held_back():  # until the child has handlers of its own
                self._process.start()
        else:
            self._process.start()
        reading.close()
        self._pidfd = _open_pidfd(cast("int", self._process.pid))

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def exit_code(self) -> int | None:
        """Its exit code; None while it runs and before it was started."""
        return self._process.exitcode if self._process else None

    def wait_fd(self) -> int | None:
        """Return what becomes readable when it ends; None while it does not run."""
        if self._process is None:
            return None
        return self._process.sentinel if self._pidfd is None else self._pidfd

    def seconds_until_restart(self) -> float:
        """Return how long it is to wait, if it has ended."""
        return WATCH_SECONDS if self._process else max(0.0, self._restart_at - time.monotonic())

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
        if self._process and self._process.is_alive():
            self._process.terminate()

    def stop(self) -> None:
        """Terminate it, wait, then kill its process group: workers may outlive their main process."""
        if self._process is None:
            return
        self.terminate()
        self._process.join(settings.LQOPS_STOP_SECONDS)
        self._kill_group()

    def _kill_group(self) -> None:
        process, self._process = self._process, None
        if process is None or process.pid is None or self._lifeline is None:
            return
        with suppress(ProcessLookupError):  # the group has ended, or the process has not yet made it
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self._held.discard(self._lifeline)
        self._lifeline.close()


def _open_pidfd(pid: int) -> int | None:
    """Return a handle that tells of the end of a process. Its pipe would tell only of the last that it has started."""
    if sys.platform == "linux":
        with suppress(OSError):  # an old kernel
            return os.pidfd_open(pid)
    return None


@contextmanager
def _signals_held_back() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_socket(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class Web(Child):
    """The web server, on a socket that the supervisor opened.

    The supervisor keeps the socket: a taken port is noticed first, nobody else can take it, and a restarted web process
    finds it again.
    """

    def __init__(self, listening: socket.socket, application: str = "") -> None:
        module, _, name = str(settings.ASGI_APPLICATION).rpartition(".")
        super().__init__("web", [application or f"{module}:{name}"], listening=listening)
        self._held.add(listening)
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


# --- What the rows say ---


class KeptUntilWrite(Generic[Result]):
    """Answers a question about rows; asks the database again only if somebody may have written since.

    Within `one_look`, all of them look once whether somebody has.
    """

    _marks: ClassVar[list[Mark | None] | None] = None

    def __init__(self, ask: Callable[[], Result]) -> None:
        self._ask = ask
        self._answer: tuple[Mark | None, Result] | None = None

    @classmethod
    @contextmanager
    def one_look(cls) -> Iterator[None]:
        cls._marks = []
        try:
            yield
        finally:
            cls._marks = None

    @classmethod
    def _mark(cls) -> Mark | None:
        if cls._marks is None:
            return mark()
        if not cls._marks:
            cls._marks.append(mark())
        return cls._marks[0]

    def __call__(self) -> Result:
        now = self._mark()  # first: what is written while it is asked counts as written later
        if self._answer is None or now is None or self._answer[0] != now:
            self._answer = now, self._ask()
        return self._answer[1]


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
        self._has_work = KeptUntilWrite(has_work)
        self._may_have_tasks = KeptUntilWrite(may_have_tasks)

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
        now = time_to_claim(clock())
        if now is None:  # its workers are to take nothing
            return False
        first = next_run(now) if self._has_work() else None
        is_unchanged = first is not None and first == self._first
        self._first = first
        tasks = queue_length(now) if self._may_have_tasks() else QueueLength(0)
        is_new = tasks.oldest_at and (now - tasks.oldest_at).total_seconds() < PROGRESS_SECONDS
        if not is_unchanged and (not tasks.count or is_new):
            return False
        here = AgentSession.objects.filter(lease_owner__startswith=f"{platform.node()}:"[-96:])
        here = here.exclude(mode=Mode.SENSOR)  # sensors have workers of their own
        held = here.filter(status=Status.RUNNING, lease_until__gt=now)
        busy = held.values("lease_owner").distinct().count()  # a worker may have several
        return busy < int(str(settings.Q_CLUSTER["workers"]))


class SensorProgress(Progress):
    """The same for sensor workers: sensors without a holder, although workers are free."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers = workers

    def _is_stuck(self) -> bool:
        now = time_to_claim(clock())
        return (
            now is not None
            and has_unheld_sensors(now)
            and count_live_slices(host=platform.node(), now=now) < self._workers
        )


class TickerProgress(Progress):
    """The same for the ticker: this host's ticker holds the lease and does nothing."""

    missed = "no duty was done"

    def __init__(self) -> None:
        super().__init__()
        held_here = Lease.objects.filter(name=TICKER, owner__startswith=f"{socket.gethostname()}:"[-96:])
        self._lease = KeptUntilWrite(lambda: held_here.all().first())

    def _is_stuck(self) -> bool:
        lease = self._lease()
        return lease is not None and lease.done_at is not None and ticker_is_late(lease.done_at, shared(clock()))


# --- All processes ---


class Supervisor:
    """`with Supervisor(…) as children:` runs them inside the block; `watch` keeps them running."""

    def __init__(self, children: Sequence[Child], *, say: Say) -> None:
        self._children = children
        self._say = say

    def __enter__(self) -> "Supervisor":
        try:
            for child in self._children:
                if child.always_runs:
                    child.start()
        except BaseException:
            self.__exit__()
            raise
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
            self._wait()

    def _wait(self) -> None:
        """Wait until a child ends, one is to be started again, or it is time to look at them."""
        waiting = [child for child in self._children if child.always_runs]
        seconds = min([WATCH_SECONDS, *(child.seconds_until_restart() for child in waiting)])
        running = [handle for child in self._children if (handle := child.wait_fd()) is not None]
        if running:
            wait(running, seconds)
        else:
            time.sleep(seconds)

    def check(self) -> None:
        if Stopped.was_asked:
            raise Stopped
        with KeptUntilWrite.one_look():
            for child in self._children:
                child.check(self._say)


def everything(web: Web, *, say: Say) -> Supervisor:
    _make_what_children_share()
    # The sensors, and nothing else, may reach the sample source on this machine.
    sensors = _sensors(LQOPS_NET_ALLOW_HOSTS=[*settings.LQOPS_NET_ALLOW_HOSTS, place()])
    return Supervisor([web, _workers(), _ticker(), sensors, _sample_source()], say=say)


def without_web(*, say: Say, ticker: bool = True) -> Supervisor:
    return Supervisor([_workers(), *([_ticker()] if ticker else []), _sensors()], say=say)


def load() -> None:
    """Import what children use, once, before anything is forked."""
    if can_fork():
        load_tasks()
        for module in ("agents.ticker", settings.ROOT_URLCONF):
            import_module(module)


def _make_what_children_share() -> None:
    if can_fork():
        with suppress(Exception):  # it only saves memory; whatever is wrong is found by those that need it
            health(clock())  # what is made at the first use of rows is shared, too
            prepare_tasks()
        gc.collect()
        gc.freeze()  # the collector would write to the memory that is shared


def _workers() -> Child:
    arguments = ["qcluster", "--skip-checks"]
    return Child("workers", arguments, connection_seconds=_connection_seconds(), stalled=Progress().check)


def _ticker() -> Child:
    return Child("ticker", ["tick"], connection_seconds=_connection_seconds(), stalled=TickerProgress().check)


def _sensors(**overrides: Any) -> Child:
    return Child(
        "sensors",
        ["sense"],
        connection_seconds=_connection_seconds(),
        overrides=overrides,
        needed=KeptUntilWrite(has_wanted_sensors),
        stalled=SensorProgress(WORKERS).check,
    )


def _sample_source() -> Child:
    """The source of the sample metrics, while the sample agent listens to it."""
    listening = Sensor.objects.filter(wanted=True, agent__enabled=True, config__source__url=url())
    return Child("sample metrics", ["sample_metrics"], needed=KeptUntilWrite(listening.exists))


def _connection_seconds() -> int:
    """Workers and ticker keep their database connections; the web process opens one per request."""
    return 600 if connection.vendor == "sqlite" else 60
