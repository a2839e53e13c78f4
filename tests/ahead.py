"""Work ahead in further processes, while the first one collects the tests: rewrite their modules, migrate a database.

pytest rewrites the assertions of each module before it imports it, which takes longer than all else in a collection.
The first process goes from the first module to the last; the others go the other way, and keep what they have rewritten
in files that the first one finds, until they meet. Then one of them migrates the database that workers copy.
"""

import os
import sys
import traceback
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from pytest_django.plugin import blocking_manager_key

from tests import databases

_helpers: list[int] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    config = session.config
    folders = [path for path in map(Path, config.args) if path.is_dir()]
    others = min(config.option.workers, os.cpu_count() or 1) - 1
    if not folders or sys.dont_write_bytecode or config.option.collectonly:
        return
    config._tmp_path_factory.getbasetemp()  # made now, it is the same for all: who migrates holds a lock there
    files = _files(config, folders)
    for number in range(others):
        if not (pid := os.fork()):
            code = 1
            try:
                _rewrite(config, files[number::others])
                if not number:
                    with config.stash[blocking_manager_key].unblock():
                        databases.Shared.of(config).migrate_ahead()
                code = 0
            except KeyboardInterrupt:
                pass
            except BaseException:  # noqa: BLE001 the tests themselves need nothing of it
                traceback.print_exc()
            finally:
                os._exit(code)
        _helpers.append(pid)


def pytest_unconfigure():
    while _helpers:
        os.waitpid(_helpers.pop(), 0)


def _files(config, folders):
    """Return the test modules of these folders, from the last to the first."""
    left_out = tuple(str(config.invocation_params.dir / name) for name in config.option.ignore or ())
    files = {file.absolute() for folder in folders for file in folder.rglob("test_*.py")}
    return sorted((file for file in files if not str(file).startswith(left_out)), reverse=True)


def _rewrite(config, files):
    """Do what pytest does before it imports a module, for each of the files."""
    state = config.stash[rewrite.assertstate_key]
    for file in files:
        folder = rewrite.get_cache_dir(file)
        pyc = folder / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite.try_makedirs(folder) and rewrite._read_pyc(file, pyc) is None:
            source_hash, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source_hash, pyc)
