"""A migration that is killed on its way is finished by the next `migrate`.

But for one moment: Django may note a migration in a transaction of its own, after the one that made it. What is killed
in between must be faked; docs/deployment.md tells.
"""

import os
import random
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from django.db import connection

from tests.flows.processes import PATIENCE, ROOT, database_url

# Run migrate in a process that kills itself before its n-th statement that changes anything; 0: never.
KILLED = """
import os, re, signal, sys
import django
from django.core.management import call_command
from django.db.backends.utils import CursorWrapper

django.setup()
changes = re.compile(r'\\s*(CREATE|ALTER|DROP|UPDATE|DELETE|INSERT INTO (?!"django_migrations))', re.I)
original, count, last = CursorWrapper._execute, 0, int(sys.argv[1])

def watched(cursor, sql, *more):
    global count
    count += bool(changes.match(str(sql)))
    if last and count == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(cursor, sql, *more)

CursorWrapper._execute = watched
call_command("migrate", *sys.argv[2:], verbosity=0)
"""
CHANGES = {"audit": 8, "": 350}  # there are more
SCHEMA = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name",
    "postgresql": """
        SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
        WHERE table_schema = 'public' ORDER BY 1, 2""",
}


def migrated(url, app, kill_at=0):
    environment = {**os.environ, "LQOPS_TEST_DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(kill_at), *filter(None, [app])],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


@contextmanager
def empty_database(tmp_path):
    """The address of an empty database beside that of the tests, and how to read its schema."""
    if connection.vendor == "sqlite":
        import sqlite3

        path = tmp_path / "empty.sqlite3"

        def schema():
            with sqlite3.connect(path) as opened:
                return opened.execute(SCHEMA["sqlite"]).fetchall()

        yield f"sqlite:///{path}", schema
        path.unlink()
        return
    import psycopg

    name = f"{connection.settings_dict['NAME']}_killed"
    url = database_url().rpartition("/")[0]
    with psycopg.connect(database_url(), autocommit=True) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        server.execute(f'CREATE DATABASE "{name}"')

        def schema():
            with psycopg.connect(f"{url}/{name}") as opened:
                return opened.execute(SCHEMA["postgresql"]).fetchall()

        yield f"{url}/{name}", schema
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("app", "points"),
    [
        ("audit", 1),
        pytest.param("", 1, marks=pytest.mark.long, id="all"),
        pytest.param("", 25, marks=pytest.mark.stress, id="all-25"),
    ],
)
def test_killed_migration_is_finished_by_the_next(tmp_path, app, points):
    with empty_database(tmp_path) as (url, schema):
        whole = migrated(url, app)
        expected = schema()
    assert (whole.returncode, len(expected) > 5) == (0, True), whole.stderr
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    for kill_at in random.Random(seed).sample(range(2, CHANGES[app]), points):
        with empty_database(tmp_path) as (url, schema):
            killed = migrated(url, app, kill_at)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            finished = migrated(url, app)
            assert finished.returncode == 0, f"killed at {kill_at}: {finished.stderr}"
            assert schema() == expected, f"killed at {kill_at}"
