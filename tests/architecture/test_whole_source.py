"""No module bypasses the guard, opens a connection outside the gate, or reads the wall clock."""

import pytest

from .bypass import bypasses_in
from .source import nodes, shown, source_files
from .test_clock import CLOCKS, clock_reads
from .test_one_gate import unlisted


@pytest.fixture(scope="module")
def found():
    """Return the findings of each check by file. Parsing takes longest, so all checks share one pass."""
    found = {"bypasses": {}, "openings": {}, "clock reads": {}}
    for path in source_files():
        place, read = shown(path), nodes(path.read_text(encoding="utf-8"))
        found["bypasses"][place] = list(bypasses_in(place, read))
        found["openings"][place] = unlisted(place, read)
        found["clock reads"][place] = clock_reads(read)
    assert len(found["bypasses"]) > 200
    return {what: {place: there for place, there in places.items() if there} for what, places in found.items()}


def test_no_module_bypasses_the_guard(found):
    assert found["bypasses"] == {}


def test_only_the_gate_opens_connections(found):
    assert found["openings"] == {}, "fetch through agents.net, or list the file with its reason"


def test_only_the_clock_modules_read_the_clock(found):
    assert found["clock reads"].keys() == CLOCKS
