"""When `up` refuses to start, and what it prints; in the process of the test."""

import json
import re
import signal
import socket
from io import StringIO

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import ConnectionHandler, OperationalError
from django.db.migrations.recorder import MigrationRecorder

from agents.conf import base_url
from agents.management.commands import up
from agents.management.supervisor import Stopped, Supervisor
from agents.policy import brakes
from tests.factories import make_user


@pytest.fixture(autouse=True)
def _signals_as_they_were():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("named", [None, "https://agents.example.com"])
@pytest.mark.django_db
def test_forked_processes_link_to_where_up_serves_unless_an_address_is_set(monkeypatch, settings, tmp_path, named):
    settings.ADDRESS_FILE = tmp_path / "address"
    settings.LQOPS_BASE_URL = named or "http://127.0.0.1:8000"
    monkeypatch.setenv("LQOPS_BASE_URL", named or "")
    linked = {}

    def everything(web, say):
        linked[web.address] = base_url()
        raise Stopped

    monkeypatch.setattr(up, "everything", everything)
    monkeypatch.setattr(up.Command, "_prepare", lambda self: None)
    call_command("up", port=0)

    [(served, links)] = linked.items()
    assert links == (named or served.rstrip("/"))
    assert not settings.ADDRESS_FILE.exists()


@pytest.fixture
def nothing_starts(monkeypatch):
    monkeypatch.setattr(up, "everything", lambda web, say: pytest.fail("parts were started"))


@pytest.mark.parametrize("port", ["web", "65536", "-1"])
def test_invalid_port_is_refused(port):
    with pytest.raises(CommandError, match="is not a port"):
        call_command("up", f"--port={port}")


def test_taken_port_is_reported_first(monkeypatch):
    monkeypatch.setattr(up.Command, "_prepare", lambda self: pytest.fail("something was made"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"port {port}: .*--port"):
            call_command("up", "--port", port)


def test_unreachable_database_is_reported(tmp_path, monkeypatch, nothing_starts, django_db_blocker):
    absent = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "absent/x.sqlite3"}
    monkeypatch.setattr(up, "connection", ConnectionHandler({"default": absent})["default"])

    with django_db_blocker.unblock(), pytest.raises(CommandError, match="LQOPS_DATABASE_URL"):
        call_command("up", "--port", "0")


@pytest.mark.django_db
def test_database_of_an_unknown_version_is_left_as_it_is(nothing_starts):
    notes = MigrationRecorder.Migration.objects
    notes.filter(app="auth", name__startswith="0012").delete()
    notes.filter(app="audit", name__startswith="0007").delete()
    before = list(notes.values_list("pk"))

    with pytest.raises(CommandError, match=r"a version that this one does not know.*auth\.0012.*a version in between"):
        call_command("up", "--port", "0")
    assert list(notes.values_list("pk")) == before


@pytest.mark.django_db
def test_up_does_not_start_with_a_failing_brake(monkeypatch, nothing_starts):
    monkeypatch.setattr(brakes, "contextual", lambda intent, phase: None)

    with pytest.raises(CommandError, match="Not started: R6"):
        call_command("up", "--port", "0", stdout=StringIO())


def test_web_process_that_cannot_start_is_an_error(monkeypatch, settings):
    settings.ASGI_APPLICATION = "lqops.absent.application"
    monkeypatch.setattr(up.Command, "_prepare", lambda self: "")
    monkeypatch.setattr(up, "everything", lambda web, say: Supervisor([web], say=say))
    output = StringIO()

    with pytest.raises(CommandError, match="The web process ended with code"):
        call_command("up", "--port", "0", stdout=output)

    assert "lqops is running" not in output.getvalue()


def test_later_run_shows_no_password():
    output = StringIO()

    command = up.Command(stdout=output)
    command._admin_hint = "ada, created earlier"
    command._announce("http://127.0.0.1:1/", "")

    assert "user                 ada, created earlier\n" in output.getvalue()
    assert not re.search(r"password +\S+\n", output.getvalue())


@pytest.mark.django_db
def test_later_run_names_who_can_sign_in():
    assert "createsuperuser" in up._existing_admin()
    make_user(username="gone", is_superuser=True, is_active=False)
    make_user(username="eve")
    make_user(username="ada", is_superuser=True)
    assert up._existing_admin() == "ada, created earlier; `manage.py changepassword ada` sets a new password"
    make_user(username="bob", is_superuser=True)
    assert up._existing_admin().startswith("ada and 1 more, created earlier;")


# --- a check ---


def test_check_prints_no_password(monkeypatch):
    def fail(self):
        raise CommandError("Not today.")

    monkeypatch.setattr(up.Command, "_prepare", lambda self: "secret-word")
    monkeypatch.setattr(up, "everything", lambda web, say: Supervisor([], say=say))
    monkeypatch.setattr(up.Web, "wait_until_it_answers", fail)
    output = StringIO()

    with pytest.raises(CommandError):
        call_command("up", "--check", stdout=output)

    assert "manage.py changepassword admin" in output.getvalue()
    assert "secret-word" not in output.getvalue()


def checked(monkeypatch, prepare, raised):
    """The summary of a check whose preparation goes wrong like this."""
    monkeypatch.setattr(up.Command, "_prepare", prepare)
    output = StringIO()
    with pytest.raises(raised):
        call_command("up", "--check", stdout=output)
    return json.loads(output.getvalue().splitlines()[-1])


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (CommandError("Not\n started."), CommandError, "Not started."),
        (OperationalError("migration 7 failed"), OperationalError, "OperationalError: migration 7 failed"),
        (ImproperlyConfigured("no such broker"), CommandError, "ImproperlyConfigured: no such broker"),
        (KeyError(), KeyError, "KeyError:"),
        (up.Stopped(), CommandError, "Stopped before the check was complete."),
    ],
)
def test_early_failure_is_in_the_summary_of_a_check(monkeypatch, error, raised, message):
    def fail(self):
        raise error

    summary = checked(monkeypatch, fail, raised)
    assert (summary["ok"], summary["error"]) == (False, message)


@pytest.mark.django_db
def test_check_names_the_failing_brake(monkeypatch, nothing_starts):
    monkeypatch.setattr(brakes, "contextual", lambda intent, phase: None)
    monkeypatch.setattr(up.Command, "_migrate", lambda self: "")
    summary = checked(monkeypatch, up.Command._prepare, CommandError)
    assert summary["error"].startswith("Not started: R6")
    assert "as it should be" in summary["brakes"].values()
    assert summary["brakes"]["R6 refuses what the phase does not grant"] != "as it should be"


WALKED, VERIFIED, SHOWN = {"ok": True}, {"verified": True}, {"/login/": 200}


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ((WALKED, VERIFIED, SHOWN), ""),
        (({"ok": False, "error": "Nobody has opted in."}, VERIFIED, SHOWN), "Nobody has opted in."),
        (
            ({"ok": False, "status": "failed", "terminal_reason": "error"}, VERIFIED, SHOWN),
            "The run ended as failed (error).",
        ),
        ((WALKED, {"verified": False}, SHOWN), "The audit log does not verify."),
        ((WALKED, {"verified": False, "error": "No key."}, SHOWN), "No key."),
        ((WALKED, VERIFIED, {"/a": 200, "/b": 500}), "Pages failed: /b: 500."),
    ],
)
def test_complete_check_reports_what_is_wrong(found, fault):
    assert up._fault(*found) == fault
