"""Contenders take turns in one process, in a new order each round; each is divided by the reference of its round.

Rounds in which the machine was busy with something else are left out: a probe of plain arithmetic before and after each
round says which. What is left is given as the median of the ratios, with its quartiles.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Mapping
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
    taken = []
    for _ in range(steps):
        started = time.perf_counter()
        step()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def report(rows: list[dict[str, float]], *, references: Mapping[str, str], database: str) -> list[dict[str, Any]]:
    """Print a table and append one JSON object for each contender to build/bench.jsonl."""
    OUT.parent.mkdir(exist_ok=True)
    lines = []
    print(f"\n{database}, {len(rows)} quiet rounds")
    print(f"{'measure':28} {'ratio':>7} {'low':>7} {'high':>7} {'ms':>8}   divided by")
    for name, reference in references.items():
        ratios = sorted(row[name] / row[reference] for row in rows)
        low, ratio, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        milliseconds = statistics.median(row[name] for row in rows) * 1_000
        print(f"{name:28} {ratio:7.2f} {low:7.2f} {high:7.2f} {milliseconds:8.3f}   {reference}")
        lines.append(
            {
                "name": name,
                "ratio": round(ratio, 3),
                "low": round(low, 3),
                "high": round(high, 3),
                "rounds": len(rows),
                "database": database,
                "reference": reference,
                "ms": round(milliseconds, 4),
            }
        )
    with OUT.open("a") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    return lines
