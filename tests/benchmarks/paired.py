"""Contenders take turns in one process, in a new order each round; each is divided by the reference of its round.

Rounds in which the machine was busy with something else are left out: a probe of plain arithmetic before and after each
round says which. What is left is given as the median of the ratios, with its quartiles.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

OUT = Path("build/bench.jsonl")
QUIET = 1.5  # a round is quiet if its probes took at most this much longer than the fastest


def probe() -> float:
    started = time.perf_counter()
    sum(number * number for number in range(20_000))
    return time.perf_counter() - started


def measure(
    contenders: Mapping[str, Callable[[], None]], *, rounds: int, steps: int, warm: int = 10
) -> list[dict[str, float]]:
    """Return the seconds of a step for each contender, one row a round, quiet rounds only."""
    for step in contenders.values():
        for _ in range(warm):
            step()
    found = []
    for _ in range(rounds):
        before = probe()
        order = random.sample(sorted(contenders), len(contenders))
        row = {name: _block(contenders[name], steps) for name in order}
        found.append((max(before, probe()), row))
    fastest = min(slow for slow, _ in found)
    quiet = [row for slow, row in found if slow <= QUIET * fastest]
    return quiet if len(quiet) >= rounds // 3 else [row for _, row in found]


def _block(step: Callable[[], None], steps: int) -> float:
    """Return the median seconds of a step. One that takes several steps at once says how many in `at_once`."""
    at_once = getattr(step, "at_once", 1)
    taken = []
    for _ in range(max(1, steps // at_once)):
        started = time.perf_counter()
        step()
        taken.append((time.perf_counter() - started) / at_once)
    return statistics.median(taken)


def report(rows: list[dict[str, float]], *, references: Mapping[str, tuple[str, str]], database: str) -> None:
    """Print a table and append one JSON object for each measure, a contender by its reference, to build/bench.jsonl."""
    print(f"\n{database}, {len(rows)} quiet rounds")
    print(f"{'measure':28} {'ratio':>7} {'low':>7} {'high':>7} {'ms':>8}   divided by")
    for name, (contender, reference) in references.items():
        low, ratio, high = quartiles([row[contender] / row[reference] for row in rows])
        ms = statistics.median(row[contender] for row in rows) * 1_000
        print(f"{name:28} {ratio:7.2f} {low:7.2f} {high:7.2f} {ms:8.3f}   {reference}")
        write(name, ratio=ratio, low=low, high=high, rounds=len(rows), database=database, reference=reference, ms=ms)


def record(
    name: str, values: Sequence[float], *, unit: str, database: str, ratios: Sequence[float] = (), reference: str = ""
) -> None:
    """Print and append a measure with a unit of its own, by its rounds.

    `ratios` divide it by something of the same round. Without them `ratio` is empty, and the quartiles are those of the
    value.
    """
    value = statistics.median(values)
    low, middle, high = quartiles(ratios or values)
    by = f"   {middle:.2f} ({low:.2f} to {high:.2f}) by {reference}" if ratios else f"   {low:.2f} to {high:.2f}"
    print(f"{database:10} {name:28} {value:10.2f} {unit:12}{by}", flush=True)
    write(
        name, ratio=middle if ratios else None, low=low, high=high, rounds=len(values), database=database,
        reference=reference, value=value, unit=unit,
    )  # fmt: skip


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return low, middle, high


def write(name: str, **measure: Any) -> None:
    """Append a measure to build/bench.jsonl, as one JSON object."""
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in measure.items()}
    OUT.parent.mkdir(exist_ok=True)
    with OUT.open("a") as out:
        out.write(json.dumps({"name": name, **rounded}) + "\n")
