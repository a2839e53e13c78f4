"""Memory, idle processor time and start of `manage.py up`, with its defaults.

`python -m tests.benchmarks.idle [--seconds 20]`, in a folder of its own, on SQLite or on the PostgreSQL database of
LQOPS_DATABASE_URL, without what the server takes; its tables may be there, so that its start is not measured. Memory is
the sum of Pss over `up` and all processes below it; processor time is what the kernel has counted for them in so many
seconds without a request. A start takes from the command to the sign-in page.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

from tests.benchmarks.paired import record
from tests.chaos.installation import below, free_port
from tests.flows.processes import name_of

SETTLE_SECONDS = 15  # caches are filled, and the runs of the samples have ended
START_SECONDS = 240
PAGE = "/login/"
URL = os.environ.get("LQOPS_DATABASE_URL", "")
DATABASE = "postgresql" if URL else "sqlite"
STARTS = ("first",) if URL else ("first", "later")


@contextmanager
def up(var: Path) -> Iterator[tuple[int, float]]:
    """Run `up` inside the block: its process id, and the seconds until its sign-in page was there."""
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LQOPS_")}
    kept |= {"LQOPS_DATABASE_URL": URL} if URL else {}
    command = [sys.executable, "manage.py", "up", "--port", str(port)]
    began = time.monotonic()
    with subprocess.Popen(command, env={**kept, "LQOPS_VAR_DIR": str(var)}, stdout=subprocess.DEVNULL) as process:
        try:
            while not has_page(port):
                assert process.poll() is None, f"`up` ended with code {process.returncode}"
                assert time.monotonic() < began + START_SECONDS, "there is no sign-in page"
                time.sleep(0.02)
            yield process.pid, time.monotonic() - began
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def has_page(port: int) -> bool:
    page = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        page.request("GET", PAGE)
        answer = page.getresponse()
    except OSError:  # nobody listens yet
        return False
    assert answer.status == 200, f"the sign-in page answered {answer.status}"
    return b"password" in answer.read()


def memory(pid: int) -> float:
    """Return the megabytes of a process and of those below it; what n of them share counts one nth in each."""
    found = 0
    for one in below(pid):
        with suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            found += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found / 1_000


def processor(pid: int) -> dict[str, float]:
    """Return the processor seconds of a process and of those below it, by their names."""
    found: dict[str, float] = {}
    for one in below(pid):
        with suppress(OSError):  # it has ended
            seconds = time.clock_gettime(process_clock(one))
            name = name_of(one) if one != pid else "supervisor"
            found[name] = found.get(name, 0) + seconds
    return found


def process_clock(pid: int) -> int:
    """Return the clock of a process, which counts its threads that have ended, too: as clock_getcpuclockid does."""
    return ~pid << 3 | 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="lqops-idle-") as folder:
        for start in STARTS:
            with up(Path(folder)) as (pid, taken):
                if not URL:
                    record(f"up.{start}.sign_in_page", [taken], unit="s", database=DATABASE)
                time.sleep(SETTLE_SECONDS)
                record(f"up.{start}.memory", [memory(pid)], unit="MB", database=DATABASE)
                if start == STARTS[-1]:
                    before, began = processor(pid), time.monotonic()
                    time.sleep(seconds)
                    after, passed = processor(pid), time.monotonic() - began
                    parts = {name: 100 * (after[name] - before.get(name, 0)) / passed for name in after}
                    record("up.idle", [sum(parts.values())], unit="% of a core", database=DATABASE)
                    for name, part in sorted(parts.items(), key=lambda item: -item[1]):
                        record(f"up.idle.{name}", [part], unit="% of a core", database=DATABASE)


if __name__ == "__main__":
    main()
