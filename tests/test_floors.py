"""Checks that count what happened fail when that was nothing."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from tests import invariants
from tests.benchmarks import __main__ as benchmarks
from tests.mutations import __main__ as mutations


@pytest.mark.parametrize(("tried", "chosen", "code"), [(0, 0, 1), (0, 150, 1), (9, 150, 1), (10, 150, 0), (3, 3, 0)])
def test_share_of_too_few_mutants_fails(tried, chosen, code):
    assert mutations._report(7, Counter({"agents/guard": tried}), [], chosen) == code


def test_room_without_mutants_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(mutations, "ROOMS", {"agents/that_was_moved": "tests"})

    assert mutations.judge(None, tmp_path) == 1
    assert "nothing to change in agents/that_was_moved" in capsys.readouterr().out


@pytest.mark.parametrize("measures", [0, 1])
def test_benchmark_that_measures_nothing_fails(monkeypatch, tmp_path, measures):
    out = tmp_path / "bench.jsonl"
    out.write_text("{}\n")
    monkeypatch.setattr(benchmarks, "OUT", out)
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    monkeypatch.setattr(benchmarks, "run", lambda *_, **__: out.write_text("{}\n" * (1 + measures)))

    if measures:
        benchmarks.measure("text", "none", None, [])
    else:
        with pytest.raises(RuntimeError, match="measured nothing"):
            benchmarks.measure("text", "none", None, [])


@pytest.mark.django_db
def test_invariants_read_no_kind_of_event_that_nobody_writes(monkeypatch):
    """Under another name its events would be found nowhere, and everything about them would hold."""
    look = invariants.Look(datetime.now(UTC))
    assert look.events == {}

    monkeypatch.setattr(invariants, "CALLED", "autonomous_session.tool_called")
    with pytest.raises(LookupError, match="tool_called"):
        invariants.problems()
