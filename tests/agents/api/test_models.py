"""The models in the API: what is listed, what is never shown, and tests."""

import pytest
from django.contrib.auth.models import Permission

from agents.conf import clock
from agents.models import AgentSession, DeclaredModel
from tests.factories import make_starter, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/models"


@pytest.fixture(autouse=True)
def _no_renewals(monkeypatch):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)  # it would wait for the test's transaction


@pytest.fixture
def operator():
    user = make_starter()
    user.user_permissions.add(Permission.objects.get(codename="view_modelprice"))
    return user


def test_list_shows_origin_and_state_and_no_address(operator, monkeypatch):
    monkeypatch.setenv("LQOPS_MODEL_KEY_B", "k-s3cret")
    values = {
        "provider": "openai_compatible",
        "url": "https://93.184.216.34/s3cret/v1",
        "key_env": "LQOPS_MODEL_KEY_B",
        "roles": ["console"],
    }
    DeclaredModel.objects.create(model="vendor/m:1", settings=values, changed_at=clock())
    answer = client_of(operator).get(ADDRESS)
    assert "s3cret" not in answer.content.decode()
    found, offline = sorted(answer.json()["models"], key=lambda one: one["provider"] == "offline")
    assert (found["model"], found["host"], found["key_env"], found["key_is_set"]) == (
        "vendor/m:1",
        "93.184.216.34",
        "LQOPS_MODEL_KEY_B",
        True,
    )
    assert (found["origin"], found["state"], found["roles"]) == ("set here", "no price", ["console"])
    assert found["set_here"] == ["key_env", "provider", "roles", "url"]
    assert (offline["origin"], offline["state"], offline["prices"]["input_usd"]) == ("file", "never asked", "3")


def test_model_is_tested_by_its_name_in_the_path(operator, settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "a/b:c": settings.LQOPS_MODELS["offline"]}
    answer = client_of(operator).post(f"{ADDRESS}/a/b:c/test", {"role": "judges"}, format="json")
    found = answer.json()
    assert (answer.status_code, found["ok"], found["model"]) == (200, True, "a/b:c")
    [judged] = found["answers"]
    assert (judged["role"], judged["reading"]) == ("judges", "Verdict read: supported.")
    assert AgentSession.objects.get().owner == operator


def test_unknown_models_and_roles_are_refused(operator):
    api = client_of(operator)
    assert api.post(f"{ADDRESS}/nobody/test", {}, format="json").status_code == 404
    assert api.post(f"{ADDRESS}/offline/test", {"role": "chief"}, format="json").status_code == 422
    assert not AgentSession.objects.exists()


def test_models_need_the_permissions_of_the_page():
    plain = make_user()
    assert client_of(plain).get(ADDRESS).json()["code"] == "not_allowed"
    starter = client_of(make_starter())
    assert starter.post(f"{ADDRESS}/offline/test", {}, format="json").status_code == 403
    plain.user_permissions.add(Permission.objects.get(codename="view_modelprice"))
    viewer = client_of(plain)
    assert viewer.get(ADDRESS).status_code == 200
    assert viewer.post(f"{ADDRESS}/offline/test", {}, format="json").status_code == 403
    assert not AgentSession.objects.exists()
