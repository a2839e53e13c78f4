"""Which tests `make test` leaves to `make test-long`, and how those are divided into parts.

`@pytest.mark.long` leaves out a test, or one row of it. `@pytest.mark.sampled(3)` keeps three rows of a test and
leaves out the others. In the rooms that stand above tested services two rows of every table stay; `sampled` may name
another number. Where a row renders a page or plays a whole run, a table of three or more is a list of one kind and
leaves one row; a table of two shows both sides of something and keeps them.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pytest

ROWS_KEPT = 2
ABOVE_SERVICES = tuple(
    f"tests/agents/{room}/"
    for room in ("admin", "api", "ask", "builtin_skills", "definitions", "engine", "loop", "management", "roster",
                 "sensors", "walk")
)  # fmt: skip
OF_PAGES_AND_RUNS = tuple(f"tests/agents/{room}/" for room in ("admin", "engine", "loop", "walk"))
# Files whose rows differ in what is approved, refused, stopped or trusted.
OF_SAFETY = ("approval", "deciding", "guardrails", "halt", "hostile", "limits", "money", "parsing", "refusals", "stale",
             "stuck", "untrusted")  # fmt: skip
# Who may see and do which: every row, whatever it costs.
PERMISSIONS = ("test_access.py", "test_isolation.py", "test_matrix.py", "test_view_audit.py")
LEFT_OUT = ("long", "stress", "redis", "postgres", "browser")
IN_A_BROWSER = 20  # takes as long as so many others


def mark_long_rows(items: Sequence[pytest.Item]) -> None:
    """Mark the rows of sampled tests that are not in the sample as long."""
    tables = defaultdict(list)
    for item in items:
        tables[item.nodeid.partition("[")[0]].append(item)
    for name, table in tables.items():
        if marked := table[0].get_closest_marker("sampled"):
            rows, [count] = table, marked.args
            assert len(rows) > count, f"{name}: a sample of {count} leaves nothing out"
        else:
            rows = [item for item in table if not any(map(item.get_closest_marker, LEFT_OUT))]
            count = _rows_kept(name, len(rows))
            if count is None or len(rows) <= count:
                continue
        kept = sample([item.callspec.indices for item in rows], count)
        for number, item in enumerate(rows):
            if number not in kept:
                item.add_marker("long")


def _rows_kept(test: str, count: int) -> int | None:
    """How many rows of a test stay that does not say so itself; None: all of them."""
    file = test.partition("::")[0]
    if not file.startswith(ABOVE_SERVICES) or file.endswith(PERMISSIONS):
        return None
    is_list = count > ROWS_KEPT and file.startswith(OF_PAGES_AND_RUNS) and not any(part in file for part in OF_SAFETY)
    return 1 if is_list else ROWS_KEPT


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


def part_of(
    items: list[pytest.Item], part: str, whole: tuple[str, ...] = ()
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the items of a part such as 2/8, and the others. The parts together are all items, each of them once.

    The tests of a file stay together, for they may share what the first of them has made. Each part takes about as
    long: a test in a browser counts as many others. Files whose names begin with one of `whole` belong to every part.
    """
    number, _, count = part.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--part is {part!r}: give a number and how many parts there are, as in 2/8")
    files: Counter[str] = Counter()
    for item in items:
        if not (whole and item.nodeid.startswith(whole)):
            files[_file_of(item)] += IN_A_BROWSER if item.nodeid.startswith("tests/browser/") else 1
    parts: list[set[str]] = [set() for _ in range(int(count))]
    sizes = [0] * len(parts)
    for file, tests in files.most_common():
        smallest = sizes.index(min(sizes))
        parts[smallest].add(file)
        sizes[smallest] += tests
    others = files.keys() - parts[int(number) - 1]
    chosen = [item for item in items if _file_of(item) not in others]
    return chosen, [item for item in items if _file_of(item) in others]


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
