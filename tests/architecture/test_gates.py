"""The coverage gates name files that exist: a gate on a file that was renamed would watch nothing."""

import re
import subprocess

from .source import ROOT


def fully_covered() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.search(r"^FULLY_COVERED := (.+)$", makefile, re.MULTILINE)[1].split()


def test_every_gated_file_exists():
    assert [pattern for pattern in fully_covered() if not any(ROOT.glob(pattern))] == []


def test_what_decides_about_safety_and_evidence_is_gated():
    assert {"agents/guard.py", "agents/brakes.py", "agents/services/budget.py", "audit/*.py"} <= set(fully_covered())


ABOVE = (
    *(f"tests/agents/{name}" for name in ("admin", "api", "chat", "definitions", "playbooks", "router")),
    *(
        f"tests/agents/sensors/test_{name}.py"
        for name in ("poll", "sample_agents", "signals_firing", "stream", "unjudged", "watch")
    ),
    "tests/flows/test_canary.py",
)


def test_what_is_left_out_on_postgresql_uses_no_database():
    """What `make test-postgres` leaves out proves the same on any database: what it uses of one, others prove there."""
    done = subprocess.run(["make", "-n", "test-postgres"], cwd=ROOT, capture_output=True, text=True, check=True)
    ignored = set(re.findall(r"--ignore=(\S+)", done.stdout))
    assert ignored >= set(ABOVE)
    left_out = [ROOT / path for path in ignored.difference(ABOVE)]
    files = [file for path in left_out for file in (path.rglob("test_*.py") if path.is_dir() else [path])]

    assert len(files) > 20
    assert [file for file in files if re.search(r"mark\.django_db", file.read_text(encoding="utf-8"))] == []
