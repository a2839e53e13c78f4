"""Take any one brake out of the source, and `doctor` says so and leaves with an error."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = {
    "R5": (
        "agents/brakes.py",
        "if boundary.status in TERMINAL or boundary.halt_state == HaltState.HALTED:",
        "if False:",
    ),
    "R5 requested": (
        "agents/brakes.py",
        "if boundary.organisation_halt is not None or boundary.halt_state == HaltState.HALT_REQUESTED:",
        "if False:",
    ),
    "R5 of all work": ("agents/brakes.py", "boundary.organisation_halt is not None or ", ""),
    "R5 and R6": (
        "agents/guard.py",
        "return brakes.temporal(boundary) or brakes.contextual(call.intent, boundary.phase)",
        "return None",
    ),
    "R6": ("agents/grants.py", "return intent in PHASE_GRANTS.get(phase, frozenset())", "return True"),
    "R4": (
        "agents/brakes.py",
        "if session.cap is not None and session.approved + quote.estimate > session.cap:",
        "if False:",
    ),
    "consent": ("agents/consent.py", "return asks_from is not None and", "return False and"),
    "fencing": ("agents/services/boundary.py", "if fencing != session.fencing:", "if False:"),
}


def doctor(root: Path, var: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LQOPS_VAR_DIR": str(var), "LQOPS_DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": ""}
    environment["DJANGO_SETTINGS_MODULE"] = "lqops.settings"
    return subprocess.run(
        [sys.executable, "manage.py", "doctor", "--no-color"],
        cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    root = tmp_path_factory.mktemp("lqops")
    for name in ("lqops", "audit", "agents", "templates"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "manage.py", root)
    var = root / "var"
    environment = {**os.environ, "LQOPS_VAR_DIR": str(var), "LQOPS_DATABASE_URL": ""}
    environment["DJANGO_SETTINGS_MODULE"] = "lqops.settings"
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=root, env=environment, check=True, timeout=120)
    return root, var


def test_doctor_is_content_with_the_source_as_it_is(copied):
    found = doctor(*copied)
    assert (found.returncode, found.stderr) == (0, "")
    assert "FAIL" not in found.stdout


@pytest.mark.parametrize("brake", MUTATIONS)
def test_doctor_sees_a_brake_that_is_commented_out(brake, copied):
    root, var = copied
    name, before, after = MUTATIONS[brake]
    source = (root / name).read_text(encoding="utf-8")
    assert before in source
    (root / name).write_text(source.replace(before, after), encoding="utf-8")
    try:
        found = doctor(root, var)
    finally:
        (root / name).write_text(source, encoding="utf-8")
    assert found.returncode == 1
    assert "FAIL" in found.stdout
    assert "do not start" in found.stderr
