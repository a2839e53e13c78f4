"""Error pages: not found, forbidden and failed requests, each with a link back."""

import pytest
from django.test import Client

from tests.agents.admin.rows import sign_in, text_of

HOME = 'href="/admin/"'


@pytest.fixture
def quiet():
    return Client(raise_request_exception=False)


@pytest.fixture
def broken(monkeypatch):
    """Make the view of /healthz fail with an unexpected error."""

    def fail(_now):
        raise RuntimeError("the key is sk-live-0123456789")

    monkeypatch.setattr("lqops.web.health", fail)


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/nowhere", "/admin/agents/nothing/", "/admin/agents/agentsession/999/change/"])
def test_page_not_found_links_back(client, address):
    sign_in(client)

    answer = client.get(address)

    assert answer.status_code == 404
    assert "<h1>Page not found</h1>" in text_of(answer)
    assert HOME in text_of(answer)


@pytest.mark.django_db
def test_forbidden_page_names_the_user_and_whom_to_ask(client):
    user = sign_in(client, "viewer")

    answer = client.get("/admin/release/")

    assert answer.status_code == 403
    assert f"<strong>{user.username}</strong>" in text_of(answer)
    assert "An admin gives roles" in text_of(answer)
    assert HOME in text_of(answer)


@pytest.mark.django_db
def test_expired_form_asks_to_send_it_again():
    strict = Client(enforce_csrf_checks=True)
    sign_in(strict)

    answer = strict.post("/admin/release/", {"confirmed": "1"})

    assert answer.status_code == 403
    assert "<h1>Form expired</h1>" in text_of(answer)


def test_error_page_needs_no_database_and_hides_the_error(quiet, broken):
    answer = quiet.get("/healthz")

    assert answer.status_code == 500
    assert "<h1>Server error</h1>" in text_of(answer)
    assert HOME in text_of(answer)
    assert "sk-live" not in text_of(answer)
    assert answer.headers["X-Request-ID"]


def test_unknown_host_name_names_its_setting(client):
    answer = client.get("/healthz", headers={"Host": "elsewhere.example"})

    assert answer.status_code == 400
    assert "LQOPS_ALLOWED_HOSTS" in text_of(answer)


def test_error_pages_load_and_run_nothing(quiet, broken):
    for answer in (quiet.get("/nowhere"), quiet.get("/healthz")):
        assert "<script" not in text_of(answer)
        assert "src=" not in text_of(answer)
        assert "Content-Security-Policy" in answer.headers


@pytest.mark.django_db
def test_api_keeps_its_own_error_format(client):
    sign_in(client)

    answer = client.get("/api/v1/sessions/00000000-0000-4000-8000-000000000000")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
