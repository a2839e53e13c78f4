"""Real processes beside each other: one that reports itself as an older version, and one that migrates.

What is to be applied is taken out of Django's table and noted again with --fake: the tables stay as they are.
"""

from contextlib import closing

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from agents.models import AppliedMigration, Host
from agents.sessions import schema
from audit.models import AuditEvent
from tests.flows.processes import Program, until

pytestmark = pytest.mark.django_db(transaction=True)

FIRST_TAKEN_OUT = "0030_agents_with_a_heartbeat_are_wanted"  # only 0.2.0 and newer may run beside it
NEWER = "0999_of_a_newer_version"

# A host of the version before: it reports itself as its ticker does, and no version.
OLDER_HOST = """
import time
from agents.conf import clock
from agents.models import Host

while True:
    seen = {"seen_at": clock(), "keys": "", "free_bytes": 10**12, "version": ""}
    Host.objects.update_or_create(name="host-of-before", defaults=seen)
    time.sleep(0.1)
"""
COMMAND = """
import sys
from django.core.management import CommandError, call_command
from agents.sessions import schema

schema.STILL_SECONDS = 5
try:
    call_command(*sys.argv[1:])
except CommandError as error:
    sys.exit(f"CommandError: {error}")
"""


@pytest.fixture
def older_host():
    with closing(Program(OLDER_HOST)) as host:
        until(lambda: Host.objects.filter(name="host-of-before").exists())
        yield host


@pytest.fixture
def recorder():
    """Django's table of what was applied; it is not emptied after a test, so what a test changes is put back."""
    found = MigrationRecorder(connection)
    before = set(found.applied_migrations())
    yield found
    now = set(found.applied_migrations())
    for key in sorted(before - now):
        found.record_applied(*key)
    for key in now - before:
        found.record_unapplied(*key)


@pytest.fixture
def to_apply(recorder):
    """The names of what `migrate` finds to be applied."""
    names = [name for app, name in recorder.applied_migrations() if app == "agents" and name >= FIRST_TAKEN_OUT]
    for name in names:
        recorder.record_unapplied("agents", name)
    assert FIRST_TAKEN_OUT in names
    return names


def ran(*command):
    """The exit code of a command in a process of its own, and what it said."""
    with closing(Program(COMMAND, *command)) as program:
        out, errors = program.communicate()
        return program.returncode, out + errors


def applied(recorder):
    return {name for app, name in recorder.applied_migrations() if app == "agents"}


def test_migrate_refuses_while_an_older_version_runs_and_goes_on_when_it_is_stopped(older_host, recorder, to_apply):
    code, said = ran("migrate", "--fake")

    assert code == 1
    assert "these hosts are running: host-of-before (lqops 0.1.0 or older)" in said
    assert not set(to_apply) & applied(recorder)

    older_host.kill()
    older_host.wait()
    code, said = ran("migrate", "--fake")

    assert (code, "do these hosts still run? host-of-before" in said) == (0, True), said
    assert set(to_apply) <= applied(recorder)
    assert not AuditEvent.objects.filter(kind=schema.FORCED).exists()
    assert AppliedMigration.objects.get(name=FIRST_TAKEN_OUT).oldest_beside == "0.2.0"


def test_up_refuses_to_migrate_while_an_older_version_runs(older_host, recorder, to_apply):
    code, said = ran("up", "--check")

    assert code == 1
    assert "these hosts are running: host-of-before" in said
    assert not set(to_apply) & applied(recorder)


def test_forced_migration_beside_an_older_version_is_recorded(older_host, recorder, to_apply):
    code, said = ran("migrate", "--fake", "--force")

    assert code == 0, said
    assert set(to_apply) <= applied(recorder)
    assert AuditEvent.objects.get(kind=schema.FORCED).details["hosts"] == ["host-of-before"]


@pytest.mark.parametrize("command", [["up", "--check"], ["work"], ["tick"], ["tick", "--once"], ["migrate"]])
def test_version_that_the_database_does_not_allow_does_not_start(recorder, command):
    recorder.record_applied("agents", NEWER)
    AppliedMigration.objects.create(app="agents", name=NEWER, oldest_beside="999.0.0")

    code, said = ran(*command)

    assert code == 1
    assert f"a newer version has migrated the database: agents.{NEWER}. Start that version" in said
    assert not Host.objects.exists()


def test_version_that_a_newer_migration_allows_goes_on(recorder):
    recorder.record_applied("agents", NEWER)
    AppliedMigration.objects.create(app="agents", name=NEWER, oldest_beside="0.1.0")

    code, said = ran("tick", "--once")

    assert code == 0, said
