"""`doctor` on changed source: `python -m tests.flows.brakeless`, with the changes as JSON on standard input.

Django and what no change touches are loaded once. Each change has a fork of its own, which loads the changed module
before anybody else does, and runs `doctor`. Prints the exit code of each, and what it said.
"""

import importlib
import importlib.util
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import django
from django.db.migrations.loader import MigrationLoader

from lqops.cli import main

LOADED_ONCE = ("agents.metering", "agents.services.definitions", "agents.skills.registry")  # no brake is part of these


def load_changed(name: str, before: str, after: str) -> None:
    """The module is what its changed source says, for everybody who imports it from now on."""
    assert name not in sys.modules, f"{name} is loaded already"
    spec = importlib.util.find_spec(name)
    source = Path(spec.origin).read_text(encoding="utf-8")
    assert before in source, f"{name} has no {before!r}"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    exec(compile(source.replace(before, after), spec.origin, "exec"), module.__dict__)
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


def doctor(change: list[str] | None) -> int:
    """Its exit code."""
    sys.argv = ["manage.py", "doctor", "--skip-checks"]
    try:
        if change:
            load_changed(*change)
        main()
    except SystemExit as left:
        return left.code
    except BaseException:  # noqa: BLE001 the test is told
        traceback.print_exc()
        return 2
    return 0


def forked(change: list[str] | None) -> tuple[int, str, str]:
    """The exit code of `doctor` after this change, what it said, and its errors."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = doctor(change)
            sys.stdout.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


if __name__ == "__main__":
    django.setup()
    MigrationLoader(None)
    for loaded in LOADED_ONCE:
        importlib.import_module(loaded)
    changes = json.load(sys.stdin)
    print(json.dumps({name: forked(change) for name, change in changes.items()}))
