"""`probe`: whether lqops works on this host, for containers without a web process."""

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError

from agents.conf import clock
from agents.database_clock import shared
from agents.management.commands import probe
from agents.models import Host
from agents.sessions.faults import host_name, host_report

pytestmark = pytest.mark.django_db


def test_host_that_reported_lately_works(capsys):
    host_report(shared(clock()))
    call_command("probe")
    assert capsys.readouterr().out == f"lqops works on host {host_name()}.\n"
    call_command("probe", "--json")
    assert json.loads(capsys.readouterr().out) == {"ok": True, "host": host_name(), "problem": None}


def test_host_that_never_reported_does_not_work(capsys):
    with pytest.raises(CommandError, match=r"has never reported: `manage\.py work` does not run here"):
        call_command("probe", "--json")
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_host_that_is_silent_does_not_work():
    host_report(shared(clock()))
    Host.objects.update(seen_at=shared(clock()) - timedelta(seconds=90))
    with pytest.raises(CommandError, match=r"has not reported for (90|91) seconds"):
        call_command("probe")


@pytest.mark.parametrize(
    ("what", "says"),
    [("missing_migrations", "lacks migrations: .* agents.0099"), ("newer_migrations", "newer version .* agents.0099")],
)
def test_database_that_does_not_fit_this_version_is_a_problem(monkeypatch, what, says):
    host_report(shared(clock()))
    monkeypatch.setattr(probe, what, lambda: ["agents.0099"])
    with pytest.raises(CommandError, match=says):
        call_command("probe")


def test_database_that_is_away_is_a_problem(monkeypatch):
    def away():
        raise DatabaseError("connection refused\nmore")

    monkeypatch.setattr(probe, "missing_migrations", away)
    with pytest.raises(CommandError, match=r"The database does not answer: connection refused$"):
        call_command("probe")
