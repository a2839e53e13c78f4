"""What `up` does not start with, and what it says then: the command itself, in the process of the test."""

import re
import signal
import socket
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import ConnectionHandler

from agents import brakes
from agents.management.children import Children
from agents.management.commands import up


@pytest.fixture(autouse=True)
def _signals_as_they_were():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def nothing_starts(monkeypatch):
    monkeypatch.setattr(up, "everything", lambda web, say: pytest.fail("parts were started"))


@pytest.mark.parametrize("port", ["web", "65536", "-1"])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(CommandError, match="is not a port"):
        call_command("up", f"--port={port}")


def test_taken_port_is_named_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(up.Command, "_prepare", lambda self: pytest.fail("something was made"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"port {port}: .*--port"):
            call_command("up", "--port", port)


def test_unreachable_database_is_named(tmp_path, monkeypatch, nothing_starts, django_db_blocker):
    absent = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "absent/x.sqlite3"}
    monkeypatch.setattr(up, "connection", ConnectionHandler({"default": absent})["default"])

    with django_db_blocker.unblock(), pytest.raises(CommandError, match="LQOPS_DATABASE_URL"):
        call_command("up", "--port", "0")


@pytest.mark.django_db
def test_up_does_not_start_with_a_brake_that_lets_pass(monkeypatch, nothing_starts):
    monkeypatch.setattr(brakes, "contextual", lambda intent, phase: None)

    with pytest.raises(CommandError, match="Not started: R6"):
        call_command("up", "--port", "0", stdout=StringIO())


def test_web_process_that_cannot_start_ends_up_with_a_plain_error(monkeypatch, settings):
    settings.ASGI_APPLICATION = "lqops.absent.application"
    monkeypatch.setattr(up.Command, "_prepare", lambda self: "")
    monkeypatch.setattr(up, "everything", lambda web, say: Children([web], say=say))
    said = StringIO()

    with pytest.raises(CommandError, match="The web process ended with code"):
        call_command("up", "--port", "0", stdout=said)

    assert "lqops is running" not in said.getvalue()


def test_later_run_shows_no_password():
    said = StringIO()

    up.Command(stdout=said)._announce("http://127.0.0.1:1/", "")

    assert "exists already" in said.getvalue()
    assert not re.search(r"password +\S+\n", said.getvalue())
