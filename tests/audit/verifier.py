"""Runs docs/verify_export.py, in this process or, as a third party would, in one of its own."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

SCRIPT = Path(__file__).parents[2] / "docs" / "verify_export.py"


@cache
def _compiled():
    return compile(SCRIPT.read_text(), SCRIPT, "exec")


def loaded(name="verify_export"):
    """The names of the script."""
    scope = {"__name__": name}
    exec(_compiled(), scope)
    return scope


def run_script(*arguments):
    """Its exit code, output and errors, without starting a process, which takes ten times as long."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), patch.object(sys, "argv", [str(SCRIPT), *map(str, arguments)]):
        try:
            loaded("__main__")
        except SystemExit as end:
            if isinstance(end.code, int):
                return end.code, out.getvalue(), errors.getvalue()
            return 1, out.getvalue(), f"{errors.getvalue()}{end.code}\n"
    return 0, out.getvalue(), errors.getvalue()


def run_process(*arguments):
    """The same of a process that cannot import lqops."""
    command = [sys.executable, "-I", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr
