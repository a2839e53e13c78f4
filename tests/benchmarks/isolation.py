"""What isolation costs: one call in a process of its own, against the same call in a thread and a bare interpreter.

`python -m tests.benchmarks.isolation [--rounds 20]`. The three are measured in turn, so that a busy machine slows all
of them; the time of the processor hardly depends on what else it does. Prints a table and one JSON line. Needs no
database.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from agents.skills.running import perform  # noqa: E402
from tests.agents.skills.contexts import make_context  # noqa: E402
from tests.benchmarks.measured_skill import celsius  # noqa: E402

WAYS: dict[str, Callable[[], object]] = {
    "thread": lambda: perform(celsius, make_context(), {"fahrenheit": 212.0}),
    "bare interpreter": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "process": lambda: perform(replace(celsius, isolation="process"), make_context(), {"fahrenheit": 212.0}),
}


def processor() -> float:
    """Seconds that this process and those that it waited for have used."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def milliseconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return how long something takes, and how long the processor works on it."""
    started, used = time.perf_counter(), processor()
    work()
    return (time.perf_counter() - started) * 1_000, (processor() - used) * 1_000


def medians(times: list[tuple[float, float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*times, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for work in WAYS.values():
        work()  # what the first one reads stays in memory
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, work in WAYS.items():
            taken[way].append(milliseconds(work))
    found = {way: dict(zip(("median", "processor"), medians(times), strict=True)) for way, times in taken.items()}
    for way, times in found.items():
        print(f"{way:<18} median {times['median']:8.1f} ms   of the processor {times['processor']:8.1f} ms")
    print(json.dumps({"rounds": rounds, "milliseconds": found}))


if __name__ == "__main__":
    main()
