"""Real worker processes on the test database, and real threads with connections of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
started: list["Worker"] = []


def database_url() -> str:
    """The test database as a worker process names it."""
    named = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{named['NAME']}"
    user = f"{named['USER']}@" if named["USER"] else ""
    return f"postgresql://{user}{named['HOST'] or '127.0.0.1'}:{named['PORT'] or 5432}/{named['NAME']}"


class Worker:
    """A Python process that runs one function of its module with the given arguments."""

    module = "tests.flows.workers"

    def __init__(self, function: str, **arguments: Any) -> None:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "LQOPS_TEST_DATABASE_URL": database_url(),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, function, json.dumps(arguments)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(self)

    def wait_for(self, word: str) -> None:
        """Blocks until the worker says the word; a worker that ends without saying it fails the test."""
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"the worker ended ({self.process.wait()}) without saying {word!r}")

    def tell(self, word: str) -> None:
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def result(self, timeout: float = 120) -> Any:
        out, _ = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, f"the worker left with {self.process.returncode}: {out}"
        return json.loads(out.strip().splitlines()[-1])


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(0…count-1) at once, each in a thread with its own connection; raises what any of them raised."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def body(number: int) -> None:
        try:
            start.wait()
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


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Waits for a condition, looking again every 20 ms; a condition that does not come true fails the test."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


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
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(stat.parent.name), int(parent)


def command_of(pid: int) -> str:
    known = Path(f"/proc/{pid}/cmdline")
    if known.exists():
        return known.read_text()
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


def is_alive(pid: int) -> bool:
    return any(one == pid for one, _ in _processes())
