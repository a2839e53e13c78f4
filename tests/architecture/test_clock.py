"""Time is passed as `now`: only two small modules read the wall clock."""

import ast

import pytest

from .source import nodes

CLOCKS = {"agents/conf.py", "audit/__init__.py"}
READS = {
    ("timezone", "now"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
}


def clock_reads(found_in: list[ast.AST]) -> list[str]:
    """Return reads of the wall clock, also through `from time import time`; `time.monotonic()` is allowed."""
    found = []
    for node in found_in:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in READS:
                found.append(f"{owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").rpartition(".")[2]
            found += [f"{module}.{alias.name}" for alias in node.names if (module, alias.name) in READS]
    return found


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
def test_clock_read_is_found(source):
    assert len(clock_reads(nodes(source))) == 1


def test_database_clock_and_monotonic_time_are_no_clock_reads():
    assert clock_reads(nodes("Now(); time.monotonic(); time.sleep(0)")) == []
