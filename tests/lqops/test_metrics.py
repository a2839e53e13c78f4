"""/metrics: figures that agree with the rows, from a bounded number of statements, for whoever has the token."""

import importlib.util
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agents.conf import clock
from agents.enums import Outcome, Purpose, Status
from agents.models import Approval, Budget, InferenceLog, Lease, ModelOutage
from audit import recorder
from lqops import metrics
from tests.factories import make_session, make_user

parser = pytest.importorskip("prometheus_client.parser")
pytestmark = pytest.mark.django_db

TOKEN = "a-token-for-the-scraper"
CHAIN = "6f9c2f55-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def _page(settings, monkeypatch, tmp_path):
    settings.LQOPS_METRICS_TOKEN = TOKEN
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "checkpoints.jsonl"
    monkeypatch.setattr(metrics, "_page", metrics._Page())
    monkeypatch.setattr(metrics, "KEPT_SECONDS", 0.0)


def get(token=TOKEN):
    return Client().get("/metrics", headers={"Authorization": f"Bearer {token}"})


def scrape():
    """Return every sample by its name and labels."""
    families = list(parser.text_string_to_metric_families(get().content.decode()))
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for found in families for sample in found.samples
    }


def ended(kind, reason, **result):
    recorder.append(CHAIN, f"autonomous_session.{kind}", now=clock(), details={"reason": reason, **result})


def called(outcome):
    details = {"tool": "run_skill", "outcome": outcome}
    recorder.append(CHAIN, "autonomous_session.tool_call", now=clock(), details=details)


def asked(model, outcome=Outcome.SUCCESS, latency_ms=700):
    InferenceLog.objects.create(
        model=model,
        purpose=Purpose.CHAT,
        outcome=outcome,
        latency_ms=latency_ms,
        input_tokens=10,
        output_tokens=4,
        cost_estimate=Decimal("0.25"),
    )


def test_figures_agree_with_the_rows():
    now = clock()
    Lease.objects.create(name="ticker", owner="host:1", done_at=now - timedelta(seconds=40))
    ModelOutage.objects.create(model="gone", since=now, next_try_at=now)
    Budget.objects.create(
        scope="installation", day=now.date(), cap_usd=Decimal(20), charged_usd=Decimal("1.5"), actual_usd=Decimal(2)
    )
    make_session(Status.QUEUED, enqueued_at=now - timedelta(seconds=90))
    waiting = make_session(Status.WAITING, waiting_on="approval")
    Approval.objects.create(
        session=waiting,
        call_key="k",
        intent="run_skill",
        action="send",
        version="1",
        phase="turn",
        level="RESTRICTED",
        description="d",
        arguments={},
        digest="d",
        signature="s",
        expires_at=now,
        created_at=now - timedelta(hours=1),
    )
    for result in ("findings", "findings", "partial"):
        ended("completed", "completed", result=result)
    ended("completed", "max_steps")
    ended("halted", "external_halt", result="failed")
    ended("failed", "provider_error", result="failed")
    for outcome in ("started", "success", "started", "gateway_error"):
        called(outcome)
    asked("small")
    asked("small", latency_ms=40_000)
    asked("small", Outcome.GATEWAY_ERROR, latency_ms=100)

    found = scrape()

    exact = {
        ("lqops_runs_total", ("reason", "completed"), ("result", "findings"), ("status", "completed")): 2,
        ("lqops_runs_total", ("reason", "completed"), ("result", "partial"), ("status", "completed")): 1,
        ("lqops_runs_total", ("reason", "max_steps"), ("result", "unknown"), ("status", "completed")): 1,
        ("lqops_runs_total", ("reason", "external_halt"), ("result", "failed"), ("status", "halted")): 1,
        ("lqops_runs_total", ("reason", "provider_error"), ("result", "failed"), ("status", "failed")): 1,
        ("lqops_calls_total", ("intent", "run_skill"), ("outcome", "success")): 1,
        ("lqops_calls_total", ("intent", "run_skill"), ("outcome", "gateway_error")): 1,
        ("lqops_model_requests_total", ("model", "small"), ("outcome", "success")): 2,
        ("lqops_model_requests_total", ("model", "small"), ("outcome", "gateway_error")): 1,
        ("lqops_model_tokens_total", ("direction", "input"), ("model", "small")): 30,
        ("lqops_model_cost_usd_total", ("model", "small")): 0.75,
        ("lqops_model_latency_seconds_bucket", ("le", "0.25"), ("model", "small")): 1,
        ("lqops_model_latency_seconds_bucket", ("le", "1.0"), ("model", "small")): 2,
        ("lqops_model_latency_seconds_bucket", ("le", "+Inf"), ("model", "small")): 3,
        ("lqops_model_latency_seconds_sum", ("model", "small")): 40.8,
        ("lqops_spend_usd_total", ("ledger", "approved")): 1.5,
        ("lqops_spend_usd_total", ("ledger", "reported")): 2,
        ("lqops_spend_today_usd", ("figure", "cap")): 20,
        ("lqops_queue_sessions",): 1,
        ("lqops_sessions_waiting", ("waiting_on", "approval")): 1,
        ("lqops_decisions_waiting", ("kind", "approval")): 1,
        ("lqops_model_away", ("model", "gone")): 1,
    }
    assert {name: found.get(name) for name in exact} == exact
    ages = {"lqops_queue_oldest_seconds": 90, "lqops_ticker_age_seconds": 40}
    assert {name: found[name,] for name in ages} == pytest.approx(ages, abs=20)
    assert found["lqops_decisions_oldest_seconds", ("kind", "approval")] == pytest.approx(3_600, abs=20)
    assert not any("started" in str(name) for name in found)


def test_older_rows_are_counted_once_and_restored_databases_anew(monkeypatch):
    monkeypatch.setattr(metrics, "RECOUNTED", 2)
    name = ("lqops_model_requests_total", ("model", "small"), ("outcome", "success"))
    for number in range(1, 8):
        asked("small")
        assert scrape()[name] == number

    totals = metrics._page._installation._requests
    assert totals._upto == InferenceLog.objects.latest("id").pk - 2
    InferenceLog.objects.filter(pk__lt=totals._upto).delete()
    assert scrape()[name] == 7  # not counted again

    InferenceLog.objects.filter(pk__gte=totals._upto).delete()
    assert name not in scrape()


def test_statements_do_not_grow_with_the_rows():
    scrape()  # reads what a process keeps for a second
    with CaptureQueriesContext(connection) as few:
        scrape()
    for number in range(20):
        make_session(Status.QUEUED)
        ended("completed", "completed")
        asked(f"model-{number}")
    scrape()
    with CaptureQueriesContext(connection) as many:
        scrape()

    assert len(many) == len(few)
    assert len(few) <= 34  # docs/monitoring.md: about 31


def test_answer_is_kept_for_some_seconds(monkeypatch):
    monkeypatch.setattr(metrics, "KEPT_SECONDS", 60.0)
    first = get().content
    ended("completed", "completed")
    with CaptureQueriesContext(connection) as statements:
        assert get().content == first
    assert len(statements) == 0


def test_labels_hold_no_names(settings):
    owner = make_user(username="alice", email="alice@example.org")
    make_session(Status.QUEUED, owner=owner, lease_owner="host-of-alice")

    text = get().content.decode()

    assert not [word for word in ("alice", TOKEN, settings.SECRET_KEY) if word in text]


def test_page_needs_its_token(settings):
    wrong = get("another")
    assert (wrong.status_code, wrong["WWW-Authenticate"]) == (401, "Bearer")
    assert Client().get("/metrics").status_code == 401
    settings.LQOPS_METRICS_TOKEN = ""
    assert get("").status_code == 404


def test_page_without_the_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    answer = get()

    assert answer.status_code == 501
    assert ".[metrics]" in answer.content.decode()
