"""Files of an installation are private from the start, and existing ones are tightened."""

import os
import resource
import sqlite3
import stat

import pytest

from lqops.env import allow_open_files, private_database, private_folder, private_process

from .processes import environment, read_settings, run, run_python


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def careless_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_new_installation_is_private(tmp_path):
    var = tmp_path / "new" / "var"

    done = run("migrate", "sessions", "--skip-checks", env=environment(var))

    assert done.returncode == 0, done.stderr
    assert mode(var) == mode(var / "media") == 0o700
    assert mode(var / "lqops.sqlite3") == 0o600
    assert {path.name for path in var.iterdir() if path.is_file() and mode(path) & 0o077} == set()


def test_open_installation_is_tightened_at_start(tmp_path):
    var = tmp_path / "var"
    (var / "media").mkdir(parents=True)
    kept = sqlite3.connect(var / "lqops.sqlite3")
    kept.execute("PRAGMA journal_mode=WAL")
    kept.execute("CREATE TABLE t (x)")
    kept.commit()
    files = [var / f"lqops.sqlite3{ending}" for ending in ("", "-wal", "-shm")]
    for path in (var, var / "media"):
        path.chmod(0o755)
    for path in files:
        path.chmod(0o644)

    read_settings(var)
    found = {mode(path) for path in files}

    kept.close()
    assert mode(var) == mode(var / "media") == 0o700
    assert found == {0o600}


def test_all_files_of_a_database_are_tightened(tmp_path):
    files = [tmp_path / f"x.sqlite3{ending}" for ending in ("", "-wal", "-shm", "-journal")]
    for path in files:
        path.touch(mode=0o644)

    private_database(str(files[0]))

    assert {mode(path) for path in files} == {0o600}


def test_files_beside_a_new_sqlite_database_are_private(tmp_path):
    private_process()
    connection = sqlite3.connect(tmp_path / "new.sqlite3")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.commit()

    found = {path.name: mode(path) for path in tmp_path.iterdir()}

    connection.close()
    assert found == {"new.sqlite3": 0o600, "new.sqlite3-wal": 0o600, "new.sqlite3-shm": 0o600}


ENTRY_POINT = "import os; os.umask(0); import lqops.asgi; print(oct(os.umask(0)))"
UNTIL_SETTINGS = """
import os, sys, django
def setup(**_):
    print(oct(os.umask(0)))
    sys.exit()
os.umask(0)
django.setup = setup
import lqops.asgi
"""


@pytest.mark.parametrize(
    "code", [UNTIL_SETTINGS, pytest.param(ENTRY_POINT, marks=pytest.mark.long)], ids=["before settings", "loaded"]
)
def test_server_creates_private_files(tmp_path, code):
    done = run_python(code, env=environment(tmp_path / "var"))

    assert done.stdout.splitlines() == ["0o77"], done.stderr


def test_stricter_mode_is_kept(tmp_path):
    folder = tmp_path / "var"
    folder.mkdir(mode=0o500)

    assert private_folder(folder) == folder
    assert mode(folder) == 0o500


def test_folder_that_cannot_be_created_raises_nothing(tmp_path):
    (tmp_path / "file").touch()

    assert private_folder(tmp_path / "file" / "var") == tmp_path / "file" / "var"
    private_database(str(tmp_path / "absent" / "x.sqlite3"))
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [(1_024, 20_000, 4_096), (1_024, 2_048, 2_048), (1_024, -1, 4_096), (8_192, 20_000, None), (-1, -1, None)],
)
def test_limit_of_open_files_is_raised_as_far_as_the_system_allows(monkeypatch, soft, hard, then):
    """-1 stands for no limit."""
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: limits.append(both))

    allow_open_files()

    assert limits == ([] if then is None else [(then, hard)])
