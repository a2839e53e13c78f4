"""Models changed in the admin: checked, recorded, and in force in every process."""

import asyncio
import threading

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from agents.definitions import catalogue
from agents.definitions.catalogue import (
    declaration_of,
    fallbacks_of,
    judge_models,
    model_for,
    models_in_force,
    roles_of,
)
from agents.exceptions import Invalid, NotFound, UnpricedModel
from agents.ledger import declared_models
from agents.ledger.declared_models import model_declare, model_restore
from agents.ledger.prices import declared_price
from agents.models import DeclaredModel, ModelOutage
from agents.policy.model_catalogue import ModelError
from agents.providers import registry
from agents.providers.base import ProviderError
from agents.types import ModelRequest
from audit.models import AuditEvent
from tests.agents.providers.hostile_servers import answer, reply, serving
from tests.factories import NOW

pytestmark = pytest.mark.django_db
HOST = "https://93.184.216.34"
NEW = {"provider": "openai_compatible", "url": f"{HOST}/v1"}


@pytest.fixture
def change(django_capture_on_commit_callbacks):
    def change(model="new", **values):
        with django_capture_on_commit_callbacks(execute=True):
            return model_declare(model=model, values=values, actor="user:7", now=NOW)

    return change


@pytest.fixture
def restore(django_capture_on_commit_callbacks):
    def restore(model="new"):
        with django_capture_on_commit_callbacks(execute=True):
            model_restore(model=model, actor="user:7", now=NOW)

    return restore


def test_declared_model_is_in_force_at_once_and_gone_when_it_is_removed(change, restore):
    change(**NEW, fallback=["offline"], roles=["console", "judges"])
    assert (fallbacks_of("new"), model_for("console"), model_for("main")) == (["offline"], "new", "offline")
    assert (judge_models(), roles_of("new")) == (["offline", "new"], ["judges", "console"])
    with pytest.raises(UnpricedModel):
        declared_price("new", None)
    restore()
    assert (declaration_of("new"), model_for("console"), roles_of("offline")) == (
        {},
        "offline",
        ["main", "small", "judges", "console"],
    )
    assert not DeclaredModel.objects.exists()


def test_part_of_a_declared_model_can_be_changed_and_the_record_names_no_host(change):
    change(model="offline", context_window=9_000)
    event = AuditEvent.objects.get(kind="model.declared")
    assert {name: event.details[name] for name in ("keys", "context_window")} == {
        "keys": ["context_window"],
        "context_window": 9_000,
    }
    assert "host" not in event.details


def test_changes_are_in_the_audit_log_with_who_and_without_paths(change, restore):
    change(**{**NEW, "url": f"{HOST}/v1/pa-th"}, name="a model", key_env="LQOPS_MODEL_KEY_B", context_window=9)
    change(**NEW, name="m")
    restore()
    first, second, third = AuditEvent.objects.filter(kind__startswith="model.").order_by("pk")
    assert {event.actor for event in (first, second, third)} == {"user:7"}
    assert first.details.pop("digest") != second.details.pop("digest")
    assert first.details == {
        "model": "new",
        "keys": ["context_window", "key_env", "name", "provider", "url"],
        "key_env": "LQOPS_MODEL_KEY_B",
        "context_window": 9,
        "host": "93.184.216.34",
    }
    assert second.details == {"model": "new", "keys": ["name", "provider", "url"], "name": "m", "host": "93.184.216.34"}
    assert (third.kind, third.details) == ("model.restored", {"model": "new"})


def test_model_that_was_away_is_tried_at_its_new_address(change):
    ModelOutage.objects.create(model="new", since=NOW, next_try_at=NOW.replace(year=2100))
    change(**NEW)
    assert ModelOutage.objects.get().next_try_at == NOW


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:8080/v1", "only the configuration can allow it"),
        ("http://169.254.169.254/v1", "only the configuration can allow it"),
        ("http://localhost/v1", "private network"),
        (f"{HOST}/v1?key=sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD", "looks like a secret"),
    ],
)
def test_address_passes_the_gate_and_holds_no_secret(change, url, says):
    with pytest.raises(Invalid, match=says):
        change(**{**NEW, "url": url})
    assert not DeclaredModel.objects.exists()


def test_private_address_that_the_deployment_allows_or_declares_is_accepted(change, settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "local": {**NEW, "url": "http://127.0.0.1:8080/v1"}}
    change(**{**NEW, "url": "http://127.0.0.1:8080/v2"})
    settings.LQOPS_NET_ALLOW_HOSTS = ["127.0.0.1:8081"]
    change("another", **{**NEW, "url": "http://127.0.0.1:8081/v2"})
    assert set(models_in_force().declared) == {"offline", "local", "new", "another"}


def test_name_is_looked_up_again_at_every_connection(change, monkeypatch, settings):
    """A name that leads to a public address when it is set cannot lead inside later."""
    monkeypatch.setattr(declared_models, "check_url", lambda url: None)
    change(**{**NEW, "url": "http://127.0.0.1:8089/v1"})
    monkeypatch.setattr(registry, "_made", {})
    provider = registry.provider_for("new")
    request = ModelRequest("new", ({"role": "user", "content": "x"},), 5)
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1:8089: .*only the configuration can allow it") as refused:
        provider.stream(request, lambda chunk: None)
    assert (refused.value.contacted, refused.value.fault) == (False, "not_served")
    provider._inner.close()


def test_declaration_passes_the_checks_of_the_file(change):
    with pytest.raises(Invalid, match=r"max_tokens\.default is 0: it must be a whole number from 1"):
        change(**NEW, max_tokens=0)


def test_connection_goes_to_the_address_that_was_checked(change, monkeypatch, settings):
    settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.0/8"]
    monkeypatch.setattr(registry, "_made", {})
    with serving(answer(200, reply("fine"))) as server:
        change(**{**NEW, "url": server.url})
        provider = registry.provider_for("new")
        request = ModelRequest("new", ({"role": "user", "content": "x"},), 5)
        assert provider.stream(request, lambda chunk: None).text == "fine"
        provider._inner.close()


def test_change_that_another_row_does_not_allow_is_refused(change, restore):
    change("a", **NEW)
    change("b", **NEW, fallback=["a"])
    with pytest.raises(Invalid, match=r"b needs it as it is\. fallback: 'a' is not another model"):
        restore("a")
    with pytest.raises(NotFound, match="Nothing is set here for nobody"):
        restore("nobody")
    DeclaredModel.objects.create(model="broken", settings={"url": "x"}, changed_at=NOW)
    change("c", **NEW)  # a row that was broken before does not stand in the way


def test_fallback_that_leaves_a_task_no_time_is_refused(change, settings):
    change("a", **NEW)
    settings.LQOPS_SLICE_SECONDS = 101
    with pytest.raises(ModelError, match=r"'b' or 'a', with 30 for the change, .* more than LQOPS_TASK_SECONDS"):
        change("b", **NEW, fallback=["a"])


def test_row_is_seen_by_other_processes_within_the_time_that_rows_are_kept(monkeypatch):
    assert "new" not in models_in_force().declared
    DeclaredModel.objects.create(model="new", settings=NEW, changed_at=NOW)
    assert "new" not in models_in_force().declared
    monkeypatch.setattr(catalogue, "KEPT_SECONDS", 0)
    assert "new" in models_in_force().declared
    assert models_in_force() is models_in_force()


@pytest.mark.parametrize("error", [DatabaseError("away"), ImproperlyConfigured("a process without a database")])
def test_rows_stay_as_they_were_while_the_database_does_not_answer(monkeypatch, error):
    DeclaredModel.objects.create(model="new", settings=NEW, changed_at=NOW)
    catalogue.read_rows()

    def fail(*fields):
        raise error

    monkeypatch.setattr(catalogue, "KEPT_SECONDS", 0)
    monkeypatch.setattr(DeclaredModel.objects, "values_list", fail)
    assert "new" in models_in_force().declared


def test_event_loop_takes_what_was_read_last(monkeypatch):
    monkeypatch.setattr(catalogue, "KEPT_SECONDS", 0)
    found = []
    looking = threading.Thread(target=lambda: found.append(asyncio.run(_small())))  # without a connection of its own
    looking.start()
    looking.join()
    assert found == ["offline"]


async def _small():
    return model_for("small")


def test_provider_is_made_anew_when_its_declaration_changes(change, restore, monkeypatch):
    monkeypatch.setattr(registry, "_made", {})
    change(**NEW)
    first = registry.provider_for("new")
    assert registry.provider_for("new") is first
    change(**NEW, name="m")
    second = registry.provider_for("new")
    assert (second is first, second._inner.endpoint.model) == (False, "m")
    restore()
    with pytest.raises(ProviderError, match="No provider serves model 'new'"):
        registry.provider_for("new")
