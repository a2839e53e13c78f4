"""/healthz and /readyz: whether the installation can work safely, and what an operator must fix."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from agents.conf import clock
from agents.enums import HaltScope, Status
from agents.guard import selftest
from agents.models import AgentSession, Halt, Installation, Lease, SuspendedModel
from lqops.settings import LQOPS_AUDIT_KEY, SECRET_KEY

pytestmark = pytest.mark.django_db


def health():
    response = Client().get("/healthz")
    return response.status_code, response.json()


def running_session(lease_until):
    owner = get_user_model().objects.create_user("owner")
    return AgentSession.objects.create(owner=owner, status=Status.RUNNING, lease_until=lease_until)


@pytest.fixture(autouse=True)
def ticker(settings, tmp_path):
    """A ticker is running."""
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "checkpoints.jsonl"
    return Lease.objects.create(name="ticker", owner="host:1", done_at=clock())


def test_healthy_installation(monkeypatch, ticker):
    monkeypatch.setattr(selftest, "_armed", False)

    assert health() == (
        200,
        {
            "ok": True,
            "database": "ok",
            "brakes": "not tested in this process",
            "halted": False,
            "suspended_models": [],
            "models_away": [],
            "oldest_lease_until": None,
            "ticker_done_at": ticker.done_at.isoformat(),
            "queued": 0,
            "oldest_queued_at": None,
            "red": [],
        },
    )


def test_armed_brakes_are_reported(monkeypatch):
    monkeypatch.setattr(selftest, "_armed", True)

    assert health()[1]["brakes"] == "armed"


def test_halt_of_all_work_is_red():
    Installation.objects.update(halt=Halt.objects.create(scope=HaltScope.ORGANISATION))

    status, found = health()

    assert (status, found["halted"], found["red"]) == (200, True, ["All work is halted."])


def test_suspended_model_is_red():
    SuspendedModel.objects.create(model="greedy", bound_usd=Decimal("0.1"), actual_usd=Decimal("0.2"))

    status, found = health()

    assert (status, found["suspended_models"]) == (200, ["greedy"])
    assert "greedy" in found["red"][0]


def test_running_worker_is_reported():
    session = running_session(clock() + timedelta(minutes=1))

    status, found = health()

    assert (status, found["red"]) == (200, [])
    assert found["oldest_lease_until"] == session.lease_until.isoformat()


def test_lost_worker_is_red():
    running_session(clock() - timedelta(seconds=1))

    status, found = health()

    assert status == 200
    assert "counts as lost" in found["red"][0]


def test_stopped_ticker_is_red(ticker):
    ticker.delete()

    status, found = health()

    assert (status, found["ok"]) == (200, True)
    assert "ticker is not running" in found["red"][0]


def test_unreadable_database_is_503_without_its_error(monkeypatch):
    def refuse(**_):
        raise DatabaseError("password=hunter2 refused")

    monkeypatch.setattr(Installation.objects, "values", refuse)

    status, found = health()

    assert (status, found) == (503, {"ok": False, "red": ["The database cannot be read."]})

    MigrationRecorder(connection).record_unapplied("agents", "0006_model_outages")
    assert "lacks migrations" in health()[1]["red"][0]


def test_missing_installation_row_is_503():
    Installation.objects.all().delete()

    status, found = health()

    assert (status, found["ok"]) == (503, False)
    assert "migrate" in found["red"][0]


def test_response_has_no_secret_and_is_not_cached():
    response = Client().get("/healthz")

    assert SECRET_KEY not in response.content.decode()
    assert LQOPS_AUDIT_KEY not in response.content.decode()
    assert "no-store" in response["Cache-Control"]


def test_migrated_database_is_ready():
    response = Client().get("/readyz")

    assert (response.status_code, response.json()) == (
        200,
        {"ok": True, "checks": {"database": "ok", "migrations": "ok"}},
    )
    assert "no-store" in response["Cache-Control"]


def test_missing_migration_is_not_ready():
    MigrationRecorder(connection).record_unapplied("agents", "0006_model_outages")

    response = Client().get("/readyz")

    assert (response.status_code, response.json()["ok"]) == (503, False)
    assert response.json()["checks"] == {
        "database": "ok",
        "migrations": "run manage.py migrate; missing: agents.0006_model_outages",
    }


def test_probes_allow_only_reading():
    for path in ("/healthz", "/readyz"):
        assert Client(enforce_csrf_checks=False).post(path).status_code == 405


def test_probe_may_use_plain_http(settings):
    settings.SECURE_SSL_REDIRECT = True

    assert Client().get("/healthz").status_code == 200
    assert Client().get("/readyz").status_code == 200
    assert Client().get("/admin/").status_code == 301
