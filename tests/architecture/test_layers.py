"""Imports go downwards only: the contracts in pyproject.toml are kept, and a broken one is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from .source import ROOT

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


pytest.importorskip("importlinter", reason="import-linter is not installed: pip install -e '.[lint]'")


def lint_imports(config: Path, *, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LINT, "--config", str(config), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_every_import_contract_is_kept():
    done = lint_imports(ROOT / "pyproject.toml")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_an_upward_import_breaks_a_contract(tmp_path):
    package = tmp_path / "agents"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "guard.py").touch()
    (package / "sessions.py").write_text("from agents import guard\n")
    config = tmp_path / "importlinter.toml"
    config.write_text(
        '[tool.importlinter]\nroot_package = "agents"\n'
        '[[tool.importlinter.contracts]]\nname = "down"\ntype = "layers"\ncontainers = ["agents"]\n'
        'layers = ["guard", "sessions"]\n'
    )

    done = lint_imports(config, cwd=tmp_path)

    assert done.returncode == 1
    assert "agents.sessions is not allowed to import agents.guard" in done.stdout
