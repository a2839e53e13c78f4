"""Time is passed down as `now`; the wall clock is read in two small modules only."""

import ast
from pathlib import Path

import pytest

from .source import shown, source_files

CLOCKS = {"agents/conf.py", "audit/clock.py"}
READS = {
    ("timezone", "now"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
}


def clock_reads(source: str) -> list[str]:
    """Reads of the wall clock, also through `from time import time`. `time.monotonic()` measures, and may."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in READS:
                found.append(f"{owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").rpartition(".")[2]
            found += [f"{module}.{alias.name}" for alias in node.names if (module, alias.name) in READS]
    return found


@pytest.mark.parametrize("path", [path for path in source_files() if shown(path) not in CLOCKS], ids=shown)
def test_no_module_reads_the_wall_clock(path: Path):
    assert clock_reads(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "timezone.now()",
        "datetime.now(UTC)",
        "datetime.datetime.now()",
        "datetime.utcnow()",
        "time.time()",
        "from time import time",
        "from django.utils.timezone import now",
        "field(default_factory=timezone.now)",
    ],
)
def test_a_read_of_the_wall_clock_is_found(source):
    assert len(clock_reads(source)) == 1


def test_the_database_clock_and_stop_watches_are_no_reads():
    assert clock_reads("Now(); time.monotonic(); time.sleep(0)") == []
