"""Helpers to read the settings and to run commands in an environment that the test controls."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]


def environment(var: Path, **values: str) -> dict[str, str]:
    """Return the variables of this process without those of lqops, with a var folder and the given values."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LQOPS_", "DJANGO_"))}
    return {**kept, "LQOPS_VAR_DIR": str(var), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **values}


def read_settings(var: Path, **values: str) -> dict[str, Any]:
    """Return the settings of a process with these variables."""
    with patch.dict(os.environ, environment(var, **values), clear=True):
        return runpy.run_path(str(ROOT / "lqops/settings.py"))


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


def run(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def run_python(code: str, *, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
