"""`doctor` on changed source: `python -m tests.flows.brakeless`, with the changes as JSON on standard input.

Django and what no change touches are loaded once. Each change has a fork of its own, which loads the changed module
before anybody else does, and runs `doctor`. Prints the exit code of each, and what it said.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

import django
from django.db.migrations.loader import MigrationLoader

from lqops.cli import main

LOADED_ONCE = (
    "agents.providers.registry",
    "agents.definitions.in_force",
    "agents.skills.registry",
)  # no brake is part of these


class ChangedSource(SourceFileLoader):
    """Loads one module from its source with one text in it replaced."""

    def __init__(self, name: str, path: str, before: str, after: str) -> None:
        super().__init__(name, path)
        self._before, self._after = before, after

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname)
        assert self._before in source, f"{fullname} has no {self._before!r}"
        return compile(source.replace(self._before, self._after), self.path, "exec")


class ChangedModule(MetaPathFinder):
    """Finds one module before anybody else does; every other is left to the next finder."""

    def __init__(self, name: str, before: str, after: str) -> None:
        assert name not in sys.modules, f"{name} is loaded already"
        self._name, self._change = name, (before, after)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        spec.loader = ChangedSource(fullname, spec.origin, *self._change)
        return spec


def doctor(change: list[str] | None) -> int:
    """Its exit code."""
    sys.argv = ["manage.py", "doctor", "--skip-checks"]
    try:
        if change:
            sys.meta_path.insert(0, ChangedModule(*change))
            importlib.import_module(change[0])
            importlib.import_module("agents.checks.doctor").isolation_report = dict  # no brake: tried as it is
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
