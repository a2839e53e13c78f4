"""The coverage gate names existing files, and only tests without a database skip PostgreSQL."""

import re
import subprocess
from itertools import chain

from tests import sampling, side_by_side

from .source import ROOT


def fully_covered() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.search(r"^FULLY_COVERED := (.+)$", makefile, re.MULTILINE)[1].split()


def test_every_gated_file_exists():
    assert [pattern for pattern in fully_covered() if not any(ROOT.glob(pattern))] == []


def test_safety_and_evidence_are_gated():
    assert {"agents/guard/guard.py", "agents/policy/brakes.py", "agents/ledger/budgets.py", "audit/*.py"} <= set(
        fully_covered()
    )


def test_tests_that_skip_postgresql_use_no_database():
    whole = ["make", "-n", "test-postgres", "WHOLE=1"]
    done = subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=True)
    left_out = [ROOT / path for path in set(re.findall(r"--ignore=(\S+)", done.stdout))]

    assert len(left_out) > 20
    assert [file for file in left_out if re.search(r"mark\.django_db", file.read_text(encoding="utf-8"))] == []


def test_what_is_in_every_part_or_has_rules_of_its_own_exists():
    """A folder of another name would be in one part of 24, or would lose its rule, and nobody would see it."""
    part = ["make", "-n", "test-postgres", "PART=1/24"]
    done = subprocess.run(part, cwd=ROOT, capture_output=True, text=True, check=True)
    [whole] = re.findall(r"--whole='([^']+)'", done.stdout)
    names = [*whole.split(), *sampling.ABOVE_SERVICES, *sampling.OF_PAGES_AND_RUNS, *chain(*side_by_side.TOGETHER)]
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")]
    named = [f"/{name}" for name in sampling.PERMISSIONS]

    assert len(names) > 20
    assert [name for name in names if not any(file.startswith(name) for file in files)] == []
    assert [name for name in named if not any(file.endswith(name) for file in files)] == []
    assert [part for part in sampling.OF_SAFETY if not any(part in file for file in files)] == []


def test_table_without_rows_fails_and_is_not_skipped(pytestconfig):
    assert pytestconfig.getini("empty_parameter_set_mark") == "fail_at_collect"
