"""Real worker processes on the test database, and real threads with connections of their own."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.db import connection

PATIENCE = 150  # seconds: a machine that is busy with other things is no failure
ROOT = Path(__file__).resolve().parents[2]
started: list["Worker"] = []
_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["tests.flows.workers", "agents.management.supervisor"])


def database_url() -> str:
    """The test database as a worker process names it."""
    named = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{named['NAME']}"
    user = f"{named['USER']}@" if named["USER"] else ""
    return f"postgresql://{user}{named['HOST'] or '127.0.0.1'}:{named['PORT'] or 5432}/{named['NAME']}"


class Worker:
    """A process of its own that runs one function of `tests.flows.workers` with the given arguments.

    It is forked from a server that has loaded the product once, and that works on the database of this run.
    """

    def __init__(self, function: str, **arguments: Any) -> None:
        self._line, theirs = _forking.Pipe()
        self.process = _forking.Process(target=_work, args=(function, arguments, theirs))
        with patch.dict(os.environ, LQOPS_TEST_DATABASE_URL=database_url()):  # the server starts with the first worker
            self.process.start()
        theirs.close()
        started.append(self)

    def wait_for(self, word: str) -> None:
        """Blocks until the worker says the word; a worker that does not say it in time, or ends, fails the test."""
        deadline = time.monotonic() + PATIENCE
        try:
            while self._line.poll(max(deadline - time.monotonic(), 0)):
                if self._line.recv() == word:
                    return
            raise AssertionError(f"the worker has not said {word!r} in {PATIENCE} seconds")
        except EOFError:
            self.process.join()
            raise AssertionError(f"the worker ended ({self.process.exitcode}) without saying {word!r}") from None

    def tell(self, word: str) -> None:
        self._line.send(word)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def result(self, timeout: float = PATIENCE) -> Any:
        """What its function returned."""
        said, deadline = [], time.monotonic() + timeout
        with suppress(EOFError):
            while self._line.poll(max(deadline - time.monotonic(), 0)):
                said.append(self._line.recv())
        self.process.join(max(deadline - time.monotonic(), 0))
        assert self.process.exitcode == 0, f"the worker left with {self.process.exitcode}: {said}"
        return said[-1]


def _work(function: str, arguments: dict[str, Any], line: Connection) -> None:
    from tests.flows import workers

    workers.line = line
    line.send(getattr(workers, function)(**arguments))


class Program:
    """Lines of Python in a process of its own without threads, forked as a worker is; like `subprocess.Popen`."""

    def __init__(self, code: str, *arguments: str) -> None:
        (out, theirs), (errors, their_errors) = (_forking.Pipe(duplex=False) for _ in range(2))
        self._process = _forking.Process(target=_run_program, args=(code, arguments, theirs, their_errors))
        with patch.dict(os.environ, LQOPS_TEST_DATABASE_URL=database_url()):
            self._process.start()
        theirs.close()
        their_errors.close()
        self.pid = self._process.pid
        self.stdout, self.stderr = (os.fdopen(os.dup(end.fileno())) for end in (out, errors))
        out.close()
        errors.close()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = PATIENCE) -> None:
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"the program has not ended in {timeout} seconds"

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Return its last output and its errors, both short. A process that it forked may hold its output open."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()

    def terminate(self) -> None:
        self._process.terminate()
        self.wait()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._process.join()
        self.stdout.close()
        self.stderr.close()


def _run_program(code: str, arguments: tuple[str, ...], out: Connection, errors: Connection) -> None:
    for number, end in ((1, out), (2, errors)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.argv = ["-c", *arguments]
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 until it ends
    exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(0…count-1) at once, each in a thread with its own connection; raises what any of them raised."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def body(number: int) -> None:
        try:
            start.wait(PATIENCE)
            results[number] = work(number)
        except BaseException as error:  # noqa: BLE001 it is raised again below, in the test
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits for a condition, looking again every 50 ms; a condition that does not come true fails the test."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def children_of(parent: int) -> list[int]:
    """The processes that a process of ours has started and that have not ended, by /proc or else by ps."""
    return [pid for pid, of in _processes() if of == parent]


def _processes() -> Iterator[tuple[int, int]]:
    """Every process with its parent."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
        for pid, parent, state in (line.split() for line in listed.splitlines()):
            if not state.startswith("Z"):
                yield int(pid), int(parent)
        return
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if parent := _parent_of(pid):
            yield pid, parent


def _parent_of(pid: int) -> int:
    """The parent of a process, by /proc; 0 if it has ended."""
    with suppress(OSError):  # it has just ended
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return 0 if state == "Z" else int(parent)
    return 0


def name_of(pid: int) -> str:
    """The name that a process has, or has from its supervisor; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_alive(pid: int) -> bool:
    if Path("/proc/self/stat").exists():
        return bool(_parent_of(pid))
    return any(one == pid for one, _ in _processes())
