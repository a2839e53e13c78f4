"""The coverage gates name files that exist: a gate on a file that was renamed would watch nothing."""

import re

from .source import ROOT


def fully_covered() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.search(r"^FULLY_COVERED := (.+)$", makefile, re.MULTILINE)[1].split()


def test_every_gated_file_exists():
    assert [pattern for pattern in fully_covered() if not any(ROOT.glob(pattern))] == []


def test_what_decides_about_safety_and_evidence_is_gated():
    assert {"agents/guard.py", "agents/brakes.py", "agents/services/budget.py", "audit/*.py"} <= set(fully_covered())
