"""The page of the models: facts, states, tests, and what it never shows."""

import tomllib
from datetime import timedelta

import pytest
from django.urls import reverse

from agents.conf import clock
from agents.enums import Outcome
from agents.models import AgentSession, InferenceLog, ModelOutage, ModelPrice, SuspendedModel
from agents.sessions.model_facts import models_known
from audit.models import AuditEvent
from tests.agents.admin.rows import sign_in, text_of
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PAGE = "admin:models"
DECLARED = {
    "provider": "openai_compatible",
    "url": "https://models.example/s3cret/v1?key=s3cret",
    "key_env": "THE_KEY",
    "input_usd": "1",
    "output_usd": "2",
    "max_tokens": {"default": 8192, "judge": 512},
    "fallback": ["offline"],
}


@pytest.fixture
def declared(settings, monkeypatch):
    monkeypatch.setenv("THE_KEY", "k-s3cret")
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "big/1": dict(DECLARED)}
    settings.LQOPS_MODEL_ROLES = {"main": ["big/1"], "small": ["offline"], "judges": ["offline", "big/1"]}


@pytest.fixture
def _no_renewals(monkeypatch):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)  # it would wait for the test's transaction


def known(model="big/1"):
    return next(one for one in models_known(clock()) if one.model == model)


def log(outcome, **more):
    fields = {"model": "big/1", "purpose": "test", "latency_ms": 1500, "cost_estimate": "0.25", "created_at": clock()}
    return InferenceLog.objects.create(**{**fields, "outcome": outcome, **more})


def test_page_shows_facts_and_no_secret(client, declared):
    sign_in(client, "viewer")
    log(Outcome.SUCCESS)
    found = text_of(client.get(reverse(PAGE)))
    for words in (
        "models.example",
        "THE_KEY",
        "is set",
        "main, judges",
        "$1.00 input",
        "(declared)",
        "1.5 s",
        "1 call,",
    ):
        assert words in found, words
    assert "s3cret" not in found
    assert "Test</button>" not in found
    assert "Set price" not in found


def test_empty_installation_says_how_to_declare_a_model(client):
    sign_in(client)
    assert "LQOPS_MODEL_URL, LQOPS_MODEL_NAME and its prices" in text_of(client.get(reverse(PAGE)))


def test_price_row_wins_and_is_named(client, declared):
    assert known().prices_from == "declared"
    row = ModelPrice.objects.create(model="big/1", input_usd=7, output_usd=8)
    ModelPrice.objects.create(model="big", input_usd=70, output_usd=80)
    assert (known().prices_from, known().price_row) == ("price row", row)
    sign_in(client)
    found = text_of(client.get(reverse(PAGE)))
    assert "$7.00 input" in found
    assert reverse("admin:agents_modelprice_change", args=[row.pk]) in found
    assert f"{reverse('admin:agents_modelprice_add')}?model=offline" in found


def test_lines_are_toml_that_declares_the_same(declared):
    found = tomllib.loads(known().lines)
    assert found["models"]["big/1"]["max_tokens"] == DECLARED["max_tokens"]
    assert found["roles"] == {"main": ["big/1"], "judges": ["offline", "big/1"]}


def test_default_prices_are_not_frozen_into_the_lines(declared, settings):
    settings.LQOPS_MODELS["big/1"]["prices_from"] = "genai-prices 1, data of 2026-10-20 or later"
    assert "usd" not in known().lines
    assert known().prices_from.startswith("genai-prices 1")


def test_states(declared):
    assert known().state == "never asked"
    log(Outcome.SUCCESS)
    assert known().state == "answers"
    log(Outcome.GATEWAY_ERROR)
    assert known().state == "failing"
    ModelOutage.objects.create(model="big/1", since=clock(), next_try_at=clock())
    assert known().state == "away"
    SuspendedModel.objects.create(model="big/1", bound_usd=1, actual_usd=2)
    assert known().state == "suspended"
    assert known("offline").state == "never asked"


def test_costs_of_yesterday_do_not_count(declared):
    log(Outcome.SUCCESS, created_at=clock() - timedelta(days=1))
    log(Outcome.SUCCESS, cost_estimate=None)
    assert (known().calls_today, known().cost_today_usd) == (1, 0)


@pytest.mark.usefixtures("_no_renewals")
def test_test_asks_the_model_and_shows_what_came_back(client):
    by = sign_in(client, "operator")
    found = text_of(client.post(reverse(PAGE), {"act": "test", "model": "offline"}))
    assert "Test: the model answers" in found
    session = AgentSession.objects.get()
    assert session.owner == by
    event = AuditEvent.objects.get(kind="model.tested")
    assert (event.actor, event.details) == (
        f"user:{by.pk}",
        {"model": "offline", "session_id": str(session.public_id)},
    )
    assert known("offline").state == "answers"


@pytest.mark.usefixtures("_no_renewals")
def test_answered_test_ends_an_outage(client):
    sign_in(client, "operator")
    later = clock() + timedelta(hours=1)
    ModelOutage.objects.create(model="offline", since=clock(), next_try_at=later)
    client.post(reverse(PAGE), {"act": "test", "model": "offline"})
    assert not ModelOutage.objects.exists()


def test_refusals_are_told(client):
    sign_in(client, "operator")
    assert "There is no model nothing." in text_of(client.post(reverse(PAGE), {"act": "test", "model": "nothing"}))
    assert "is not away" in text_of(client.post(reverse(PAGE), {"act": "try_now", "model": "offline"}))
    assert not AgentSession.objects.exists()


def test_try_now_makes_the_model_due_and_is_recorded(client):
    by = sign_in(client, "operator")
    later = clock() + timedelta(hours=1)
    ModelOutage.objects.create(model="offline", since=clock(), next_try_at=later, error="503 from its server")
    assert "Try now" in (shown := text_of(client.get(reverse(PAGE))))
    assert "503 from its server" in shown
    assert "No run waits for it" in text_of(client.post(reverse(PAGE), {"act": "try_now", "model": "offline"}))
    assert ModelOutage.objects.get().next_try_at < later
    assert AuditEvent.objects.get(kind="model.try_now").actor == f"user:{by.pk}"


def test_suspended_model_can_be_accepted_from_here(client):
    sign_in(client)
    row = SuspendedModel.objects.create(model="offline", bound_usd=1, actual_usd=2)
    link = reverse("admin:agents_suspendedmodel_act", args=[row.pk, "accept"])
    assert link in text_of(client.get(reverse(PAGE)))
    accepted = client.post(link, {"confirmed": "1"}, follow=True)
    assert accepted.redirect_chain == [(reverse("admin:agents_suspendedmodel_changelist"), 302)]
    assert "accepted again" in text_of(accepted)
    row.save(force_insert=True)
    sign_in(client, "operator")
    assert link not in text_of(client.get(reverse(PAGE)))


def test_page_needs_view_and_acts_need_an_operator(client):
    client.force_login(make_user(is_staff=True))
    assert client.get(reverse(PAGE)).status_code == 403
    sign_in(client, "viewer")
    for act in ("test", "try_now"):
        assert client.post(reverse(PAGE), {"act": act, "model": "offline"}).status_code == 403


def test_health_names_each_model_with_its_state(client, declared):
    sign_in(client, "viewer")
    ModelOutage.objects.create(model="big/1", since=clock(), next_try_at=clock())
    found = text_of(client.get(reverse("admin:health")))
    assert "big/1" in found
    assert ">away</span>" in found
    assert f"{reverse(PAGE)}#model-" in found
