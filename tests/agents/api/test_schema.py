"""The OpenAPI schema has no warnings and stable operation names, and has a page."""

import re
from unittest.mock import patch

import pytest
from django.contrib.staticfiles import finders
from django.urls import reverse
from drf_spectacular.generators import SchemaGenerator

from tests.factories import make_user

from .conftest import client_of
from .contract import document
from .world import routes

pytestmark = pytest.mark.django_db


@pytest.fixture
def schema():
    return document()


def operations(schema):
    return {
        (method, path): operation for path, methods in schema["paths"].items() for method, operation in methods.items()
    }


def test_every_route_is_described_and_no_other(schema):
    described = {(method, path.removeprefix("/api/")) for method, path in operations(schema)}
    assert described == {(route.method, re.sub(r"<\w+:(\w+)>", r"{\1}", route.path)) for route in routes()}


def test_operation_names_are_stable(schema):
    names = [operation["operationId"] for operation in operations(schema).values()]
    assert len(names) == len(set(names))
    assert {
        "sessions_list", "sessions_retrieve", "sessions_halt", "sessions_restart", "approvals_approve",
        "approvals_deny", "triggers_create", "triggers_edit", "run_now", "run_estimate", "events_send", "events_list",
        "documents_upload", "documents_download", "search_retrieve", "me_edit", "costs_retrieve", "health_retrieve",
        "models_list", "models_test",
    } <= set(names)  # fmt: skip
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_operation_describes_errors(schema):
    for operation in operations(schema).values():
        error = operation["responses"]["default"]["content"]["application/json"]["schema"]
        assert error == {"$ref": "#/components/schemas/ErrorShown"}
    assert set(schema["components"]["schemas"]["ErrorShown"]["required"]) == {"code", "message", "detail", "request_id"}


def test_every_operation_needs_a_key_or_session(schema):
    for operation in operations(schema).values():
        assert operation["security"] == [{"apiKey": []}, {"cookieAuth": []}]


def test_money_is_text(schema):
    amounts = [
        shape
        for component in schema["components"]["schemas"].values()
        for name, shape in component.get("properties", {}).items()
        if name.endswith("_usd")
    ]
    assert len(amounts) > 20
    assert all(shape["type"] == "string" for shape in amounts)


def test_main_operations_have_examples(schema):
    bodies = [operation.get("requestBody", {}) for operation in operations(schema).values()]
    examples = sum("examples" in kind for body in bodies for kind in body.get("content", {}).values())
    assert examples >= 7


def test_lists_are_described_as_pages(schema):
    page = operations(schema)["get", "/api/v1/sessions"]["responses"]["200"]["content"]["application/json"]["schema"]
    shape = schema["components"]["schemas"][page["$ref"].rpartition("/")[2]]
    assert set(shape["required"]) == {"count", "page", "page_size", "next", "previous", "results"}


def test_schema_needs_sign_in(client, schema):
    assert client.get(reverse("api:schema")).status_code == 401
    with patch.object(SchemaGenerator, "get_schema", return_value=schema):  # as it was made before, in half a second
        answer = client_of(make_user(), "read").get(reverse("api:schema"))
    assert answer.status_code == 200
    assert b"sessions_halt" in answer.content


def test_page_redirects_to_sign_in(client):
    assert client.get(reverse("api:docs")).headers["Location"].startswith("/login/")


def test_page_leads_back_to_the_admin_for_those_who_may_use_it(client):
    client.force_login(make_user())
    assert "Back to Home" not in client.get(reverse("api:docs")).content.decode()

    client.force_login(make_user(is_staff=True))
    assert f'href="{reverse("admin:index")}">Back to Home</a>' in client.get(reverse("api:docs")).content.decode()


def test_page_has_no_external_or_inline_script(client):
    client.force_login(make_user())
    page = client.get(reverse("api:docs"))
    text = page.content.decode()
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)""", text)
    assert len(loaded) >= 4
    assert all(address.startswith("/") and not address.startswith("//") for address in loaded)
    assert re.findall(r"<script[^>]*>\s*[^<\s]", text) == []
    assert "unsafe-eval" not in page.headers["Content-Security-Policy"]
    for address in loaded:
        if address.startswith("/static/"):
            assert finders.find(address.removeprefix("/static/")), address
        else:
            assert client.get(address).status_code == 200, address
