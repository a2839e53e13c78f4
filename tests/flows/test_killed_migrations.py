"""A migration that is killed on its way is finished by the next `migrate`.

But for one moment: Django may note a migration in a transaction of its own, after the one that made it. What is killed
in between must be faked; docs/deployment.md tells. The migration with which a new installation begins has no such
moment.
"""

import random
import signal
from contextlib import closing, contextmanager
from uuid import uuid4

import pytest
from django.db import connection

from tests.flows.processes import Program, database_url

# Run migrate in a process that kills itself before its n-th statement that changes anything, or its n-th note of what
# was migrated; 0: never.
KILLED = """
import os, re, signal, sys
from django.core.management import call_command
from django.db import connection
from django.db.backends.utils import CursorWrapper

connection.close()
connection.settings_dict["NAME"] = sys.argv[1]
kinds = {
    "change": '(CREATE|ALTER|DROP|UPDATE|DELETE|INSERT INTO (?!"django_migrations))',
    "note": 'INSERT INTO "django_migrations"',
}
counted = re.compile(r"\\s*" + kinds[sys.argv[3]], re.I)
original, count, last = CursorWrapper._execute, 0, int(sys.argv[2])

def watched(cursor, sql, *more):
    global count
    count += bool(counted.match(str(sql)))
    if last and count == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(cursor, sql, *more)

CursorWrapper._execute = watched
call_command("migrate", *sys.argv[4:], verbosity=0)
"""
CHANGES = {"audit": 8, "": 350}  # there are more
SCHEMA = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name",
    "postgresql": """
        SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
        WHERE table_schema = 'public' ORDER BY 1, 2""",
}


def migrated(name, app, kill_at=0, kind="change"):
    """The exit code of `migrate` on a database, and its errors."""
    with closing(Program(KILLED, name, str(kill_at), kind, *filter(None, [app]))) as program:
        _, errors = program.communicate()
        return program.returncode, errors


@contextmanager
def empty_database(tmp_path):
    """The name of an empty database beside that of the tests, and how to read its schema."""
    if connection.vendor == "sqlite":
        import sqlite3

        path = tmp_path / f"{uuid4()}.sqlite3"

        def schema():
            with closing(sqlite3.connect(path)) as opened:
                return opened.execute(SCHEMA["sqlite"]).fetchall()

        yield str(path), schema
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

        yield name, schema
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
    with empty_database(tmp_path) as (name, schema):
        code, errors = migrated(name, app)
        expected = schema()
    assert (code, len(expected) > 5) == (0, True), errors
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    for kill_at in random.Random(seed).sample(range(2, CHANGES[app]), points):
        with empty_database(tmp_path) as (name, schema):
            code, errors = migrated(name, app, kill_at)
            assert code == -signal.SIGKILL, errors
            code, errors = migrated(name, app)
            assert code == 0, f"killed at {kill_at}: {errors}"
            assert schema() == expected, f"killed at {kill_at}"


@pytest.mark.long
@pytest.mark.django_db
def test_new_installation_is_noted_in_the_transaction_that_makes_it(tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    others, ours = 14, 28  # those that users need come first
    kill_at = others + random.Random(seed).randint(1, ours)
    with empty_database(tmp_path) as (name, schema):
        code, errors = migrated(name, "agents", kill_at, "note")
        assert code == -signal.SIGKILL, errors
        assert not [row for row in schema() if "agents_" in str(row)]
        code, errors = migrated(name, "agents")
        assert code == 0, f"killed at {kill_at}: {errors}"
