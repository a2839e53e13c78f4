"""Which versions of lqops may work with the database, and beside which its migrations may be applied."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, migrations
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from agents import __version__
from agents.apps import _note_migrations
from agents.checks import doctor
from agents.conf import clock
from agents.exceptions import VersionsDiffer
from agents.guard import selftest
from agents.models import AppliedMigration, Host, Lease
from agents.sessions import faults, schema
from agents.sessions.control_room import health
from audit.models import AuditEvent

pytestmark = pytest.mark.django_db

NEWER = "0999_of_a_newer_version"


@pytest.fixture(autouse=True)
def _checkpoints(settings, tmp_path):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "audit" / "checkpoints.jsonl"


@pytest.fixture(autouse=True)
def _hurried(monkeypatch):
    monkeypatch.setattr(schema, "STILL_SECONDS", 0.2)
    monkeypatch.setattr(schema, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(schema, "_gone", set())


def migrated_by_a_newer_version(oldest_beside):
    MigrationRecorder(connection).record_applied("agents", NEWER)
    if oldest_beside is not None:
        AppliedMigration.objects.create(app="agents", name=NEWER, oldest_beside=oldest_beside)


def host(name="other", version="0.1.0", **fields):
    defaults = {"seen_at": clock(), "keys": faults.keys_fingerprint(), "free_bytes": 10**12}
    return Host.objects.create(name=name, version=version, **{**defaults, **fields})


def reporting(name="other"):
    """In the place of the pause between two looks: the host reports itself meanwhile."""

    def report(_):
        Host.objects.filter(name=name).update(seen_at=clock() + timedelta(seconds=1))

    return report


def migration(oldest_beside=None, app="agents"):
    one = migrations.Migration("0998_to_be_applied", app)
    if oldest_beside:
        one.oldest_beside = oldest_beside
    return one


@pytest.mark.parametrize(
    ("one", "other"), [("", "0.1.0"), ("0.2.0.dev1", "0.2.0"), ("1.10", "1.9"), ("0.10.0", "0.9.9")]
)
def test_versions_are_compared_by_their_numbers_and_no_version_is_that_of_before_they_were_reported(one, other):
    assert schema.release(one) >= schema.release(other)
    assert schema.release(other) < schema.release("99")


# --- A database of a newer version ---

NOT_ALLOWED = pytest.mark.parametrize("oldest", ["999.0", None], ids=["another version", "nothing said"])


@NOT_ALLOWED
def test_version_that_the_database_does_not_allow_does_not_start(oldest):
    migrated_by_a_newer_version(oldest)

    for start in (faults.host_register, lambda _: schema.require_allowed_version()):
        with pytest.raises(VersionsDiffer, match=f"agents.{NEWER}. Start that version"):
            start(clock())
    assert not Host.objects.exists()
    for command in (["work"], ["tick"], ["tick", "--once"], ["migrate"]):
        with pytest.raises(CommandError, match=NEWER):
            call_command(*command)


@NOT_ALLOWED
def test_process_of_a_version_that_the_database_does_not_allow_takes_no_runs(oldest, monkeypatch):
    monkeypatch.setattr(selftest, "_armed", False)
    migrated_by_a_newer_version(oldest)

    with pytest.raises(VersionsDiffer):
        selftest.arm()
    assert not selftest.is_armed()


@NOT_ALLOWED
def test_web_process_and_doctor_tell_that_the_database_does_not_allow_this_version(oldest):
    Lease.objects.create(name="ticker", owner="host:1", done_at=clock())
    assert Client().get("/readyz").status_code == 200
    migrated_by_a_newer_version(oldest)

    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert NEWER in answer.json()["checks"]["migrations"]
    [line] = health(clock()).red
    assert NEWER in line
    check = doctor._migrations()
    assert (check.ok, NEWER in check.found) == (False, True)


@pytest.mark.parametrize("oldest", ["0.1.0", __version__])
def test_version_that_a_newer_migration_allows_goes_on(oldest):
    Lease.objects.create(name="ticker", owner="host:1", done_at=clock())
    migrated_by_a_newer_version(oldest)

    faults.host_register(clock())

    assert Client().get("/readyz").status_code == 200
    assert health(clock()).red == ()


def test_migrations_of_other_packages_stop_nobody():
    MigrationRecorder(connection).record_applied("auth", "0999_of_a_newer_django")

    assert schema.newer_migrations() == []


# --- Noting what was applied ---


def test_each_applied_migration_is_stored_with_the_version_it_allows_and_forgotten_when_it_is_taken_back():
    AppliedMigration.objects.all().delete()
    AppliedMigration.objects.create(app="agents", name="0998_taken_back", oldest_beside="0.1.0")

    _note_migrations("default", plan=[])

    stored = dict(AppliedMigration.objects.filter(app="agents").values_list("name", "oldest_beside"))
    assert stored["0001_squashed_0028"] == "0.1.0"
    assert stored["0030_agents_with_a_heartbeat_are_wanted"] == "0.2.0"
    assert "0998_taken_back" not in stored
    assert AppliedMigration.objects.filter(app="audit").count() >= 7
    assert schema.release(schema.oldest_allowed()) >= (0, 2, 0)


def test_what_a_newer_version_has_stored_stays():
    migrated_by_a_newer_version("0.1.5")

    _note_migrations("default", plan=[])

    assert AppliedMigration.objects.get(name=NEWER).oldest_beside == "0.1.5"


# --- Migrating beside running hosts ---


def test_migration_is_refused_while_a_host_that_it_does_not_allow_reports_itself(monkeypatch):
    host()
    monkeypatch.setattr(schema.time, "sleep", reporting())
    said = []

    with pytest.raises(
        VersionsDiffer, match=r"hosts are running: other \(lqops 0.1.0\).*only 0.2.0 or newer"
    ) as refused:
        schema.require_no_other_version([(migration("0.2.0"), False)], say=said.append)

    assert "--force" in str(refused.value)
    assert "other (lqops 0.1.0)" in said[0]


@pytest.mark.parametrize("clock_is_ahead", [-90, 0, 90], ids=["behind", "right", "ahead"])
def test_host_that_was_stopped_a_moment_ago_is_given_time_and_then_ignored(clock_is_ahead):
    host(seen_at=clock() + timedelta(seconds=clock_is_ahead))
    said = []

    for _ in range(2):
        schema.require_no_other_version([(migration("0.2.0"), False)], say=said.append)

    assert len(said) == 1


@pytest.mark.parametrize("clock_is_ahead", [-90, 90], ids=["behind", "ahead"])
def test_running_host_is_found_whatever_its_clock_says(monkeypatch, clock_is_ahead):
    host(seen_at=clock() + timedelta(seconds=clock_is_ahead))
    monkeypatch.setattr(schema.time, "sleep", reporting())

    with pytest.raises(VersionsDiffer):
        schema.require_no_other_version([(migration("0.2.0"), False)])


def test_hosts_are_no_hindrance_for_migrations_that_allow_them(monkeypatch):
    monkeypatch.setattr(schema.time, "sleep", reporting())
    host(version="")
    host("new", version="0.2.0")

    schema.require_no_other_version([(migration(), False), (migration("0.1.0"), False)])
    schema.require_no_other_version([(migration("999", app="auth"), False)])
    schema.require_no_other_version([])
    Host.objects.filter(name="other").delete()
    schema.require_no_other_version([(migration("0.2.0"), False)])


def test_no_migration_is_taken_back_beside_a_running_host(monkeypatch):
    monkeypatch.setattr(schema.time, "sleep", reporting())
    host(version=__version__)

    with pytest.raises(VersionsDiffer, match="nothing may run while they are taken back"):
        schema.require_no_other_version([(migration("0.1.0"), True)])


def test_override_migrates_beside_the_host_and_is_in_the_audit_log(monkeypatch):
    host()
    monkeypatch.setattr(schema.time, "sleep", reporting())

    with schema.overriding():
        schema.require_no_other_version([(migration("0.2.0"), False)])
        assert not AuditEvent.objects.filter(kind=schema.FORCED).exists()

    event = AuditEvent.objects.get(kind=schema.FORCED)
    assert event.details == {"hosts": ["other"], "version": __version__}
    with schema.overriding():
        schema.require_no_other_version([])
    assert AuditEvent.objects.filter(kind=schema.FORCED).count() == 1


def test_hosts_are_read_from_a_table_of_before_versions_were_reported(monkeypatch):
    host(version="0.2.0")
    columns = [column for column in _columns() if column.name != "version"]
    monkeypatch.setattr(connection.introspection, "get_table_description", lambda *_: columns)

    [found] = schema._hosts_seen()
    assert (found.version, str(found)) == ("", "other (lqops 0.1.0 or older)")
    monkeypatch.setattr(connection.introspection, "table_names", lambda *_: [])
    assert schema._hosts_seen() == []
    assert schema._allowed() == {}


def _columns():
    with connection.cursor() as cursor:
        return connection.introspection.get_table_description(cursor, Host._meta.db_table)


def test_running_host_that_the_database_does_not_allow_is_red():
    Lease.objects.create(name="ticker", owner="host:1", done_at=clock())
    faults.host_report(clock())
    host("new", version=__version__)
    assert health(clock()).red == ()
    host(version="")

    [line] = health(clock()).red
    assert "Host other runs lqops 0.1.0, and the database allows 0.2.0 and newer" in line
    assert Host.objects.get(name=faults.host_name()).version == __version__
