"""Which tests `make test` leaves to `make test-long`, and how those are divided into parts.

`@pytest.mark.long` leaves out a test, or one row of it. `@pytest.mark.sampled(3)` keeps three rows of a test and
leaves out the others.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest


def mark_long_rows(items: Sequence[pytest.Item]) -> None:
    """Mark the rows of sampled tests that are not in the sample as long."""
    tables = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            tables[item.nodeid.partition("[")[0]].append(item)
    for rows in tables.values():
        [count] = rows[0].get_closest_marker("sampled").args
        indices = [item.callspec.indices for item in rows]
        assert len(rows) > count, f"{rows[0].nodeid}: a sample of {count} leaves nothing out"
        kept = sample(indices, count)
        for number, item in enumerate(rows):
            if number not in kept:
                item.add_marker("long")


def sample(rows: Sequence[Mapping[str, int]], count: int) -> set[int]:
    """Choose rows that show as many values of each argument as they can, and lie far apart."""
    kept: list[int] = []
    while len(kept) < count:
        seen = {value for number in kept for value in rows[number].items()}
        left = [number for number in range(len(rows)) if number not in kept]
        new = {number: len(rows[number].items() - seen) for number in left}
        distance = {number: min((abs(number - other) for other in kept), default=-number) for number in left}
        kept.append(max(left, key=lambda number: (new[number], distance[number])))
    return set(kept)


def part_of(items: list[pytest.Item], part: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the items of a part such as 2/8, and the others. The parts together are all items, each of them once."""
    number, _, count = part.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--part is {part!r}: give a number and how many parts there are, as in 2/8")
    chosen = items[int(number) - 1 :: int(count)]
    return chosen, [item for item in items if item not in set(chosen)]
