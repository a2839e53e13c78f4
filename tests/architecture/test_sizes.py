"""Files and functions stay small enough to be read in one go. An exemption needs a reason, and ends with its cause."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .source import ROOT, files_of_tests, functions, shown, source_files

if find_spec("ruff") is None:
    pytest.skip("ruff is not installed: pip install -e '.[lint]'", allow_module_level=True)

SOURCE_LINES = 300
TEST_LINES = 400
FUNCTION_LINES = 50
COMPLEXITY = 10

# "path" or "path:function" → why it may be longer.
EXEMPT: dict[str, str] = {}


def long_files(files: list[Path], limit: int) -> set[str]:
    return {shown(path) for path in files if len(path.read_text(encoding="utf-8").splitlines()) > limit}


def long_functions(files: list[Path]) -> set[str]:
    return {
        f"{shown(path)}:{node.name}"
        for path in files
        for node in functions(path.read_text(encoding="utf-8"))
        if (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES
    }


def complex_functions(files: list[Path]) -> set[str]:
    """As ruff counts it, but deaf to `noqa`: an exemption stands in the table here, or nowhere."""
    rule = ["--isolated", "--ignore-noqa", "--select=C901", f"--config=lint.mccabe.max-complexity={COMPLEXITY}"]
    command = [sys.executable, "-m", "ruff", "check", *rule, "--output-format=json", "--exit-zero", "--no-cache"]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        f"{shown(Path(found['filename']))}:{found['message'].split('`')[1]}"
        for found in json.loads(done.stdout)
        if found["code"] == "C901"
    }


def all_too_big() -> set[str]:
    source, tests = list(source_files()), list(files_of_tests())
    return (
        long_files(source, SOURCE_LINES)
        | long_files(tests, TEST_LINES)
        | long_functions(source + tests)
        | complex_functions(source + tests)
    )


def test_files_and_functions_are_small_or_exempt_with_a_reason():
    too_big = all_too_big()

    assert too_big - EXEMPT.keys() == set(), "split it, or add it to EXEMPT with a reason"
    assert EXEMPT.keys() - too_big == set(), "small enough now: take it out of EXEMPT"
    assert all(len(reason.split()) > 2 for reason in EXEMPT.values())


def test_a_tangled_function_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "shown", lambda path: path.name)
    tangled = tmp_path / "tangled.py"
    branches = "".join(f"    if x == {n}:\n        x += 1\n" for n in range(COMPLEXITY))
    tangled.write_text(f"def f(x):\n{branches}\n")
    long = tmp_path / "long.py"
    long.write_text("def g(x):\n" + "    x += 1\n" * FUNCTION_LINES)

    assert complex_functions([tangled, long]) == {"tangled.py:f"}
    assert long_functions([tangled, long]) == {"long.py:g"}
