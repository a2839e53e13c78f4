"""Every operation answers as the OpenAPI document declares, and a client of the tests notices when one does not."""

import copy
import json
from types import SimpleNamespace

import pytest
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse

from agents.models import AgentSession, Approval, Finding, Precedent
from tests.factories import make_session, make_user

from . import contract
from .conftest import client_of
from .contract import document, mistakes, mistakes_of
from .test_audit_trail import ACTS, NO_RECORD, sent, staged
from .world import make_world, routes, undone

pytestmark = pytest.mark.django_db

# They read with connections of their own, for which a test has to commit; tests of their own do.
STREAMED = {"agent-events-stream:get", "stream:get", "audit-export:get"}


def answer_to(route, world):
    """The answer of a route to its owner, who may do everything, in a world where it makes sense."""
    if route.name in ACTS:
        with staged(route.name, world) as stage:
            return sent(stage)
    with undone():
        own = copy.deepcopy(world)
        if route.name == "ceilings:get":  # by the name that the address has
            own.owner.username = "send_email"
            own.owner.save()
        client = client_of(own.owner)
        if route.method == "get":
            return client.get(route.address(own), {"q": "lease"} if route.name == "search:get" else {})
        body, _ = NO_RECORD[route.name]
        return client.post(route.address(own), body(own) if callable(body) else body, format="json")


def test_every_operation_answers_as_declared(some):
    """The client checks each answer; here is counted how many operations have succeeded."""
    world = make_world(make_user(is_superuser=True))
    contract.answers.clear()
    chosen = some([route for route in routes() if route.name not in STREAMED], 8)

    refused = {route.name for route in chosen if answer_to(route, world).status_code >= 300}

    assert refused == set()
    assert contract.answers.total() >= len(chosen) > 15
    assert len({operation for operation, status in contract.answers if status < 300}) == len(chosen)


@pytest.mark.parametrize(
    ("path", "field", "model"),
    [
        ("sessions", "waiting_on", AgentSession),
        ("findings", "quote_check", Finding),
        ("precedents", "ended_as", Precedent),
        ("approvals", "risk_level", Approval),
    ],
)
def test_word_that_is_not_there_yet_is_declared_as_empty(api, person, path, field, model):
    rows = make_world(person).rows
    named = {"findings": "finding", "precedents": "precedent", "approvals": "approval", "sessions": "session"}[path]
    answer = api.get(f"/api/v1/{path}/{rows[named].public_id}").json()
    shape = document()["components"]["schemas"][contract.name_of_row("get", f"/api/v1/{path}/{{id}}")]

    assert answer[field] == ""
    assert {"$ref": "#/components/schemas/BlankEnum"} in shape["properties"][field]["oneOf"]
    assert mistakes_of("nonsense", shape["properties"][field])
    assert model._meta.get_field(field).blank


# --- The check itself ---

SESSION = SimpleNamespace(route="api/v1/sessions/<uuid:id>")


def mistaken(response, match=SESSION, method="GET"):
    response.resolver_match, response.request = match, {"REQUEST_METHOD": method}
    return mistakes(response)


@pytest.fixture
def body(api, person):
    return api.get(f"/api/v1/sessions/{make_session(owner=person).public_id}").json()


def test_fitting_answer_has_no_mistake(body):
    assert mistaken(JsonResponse(body)) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"status": "flying"}, "$.status"),
        ({"id": "7"}, "$.id"),
        ({"created_at": "yesterday"}, "$.created_at"),
        ({"max_cost_usd": 5}, "$.max_cost_usd"),
        ({"purpose": None}, "$.purpose"),
        ({"surprise": 1}, "$: Additional properties"),
    ],
)
def test_value_that_is_not_declared_is_found(body, change, place):
    [found] = mistaken(JsonResponse(body | change))

    assert found.startswith(place)


def test_missing_value_is_found(body):
    del body["status"]

    assert mistaken(JsonResponse(body)) == ["$: 'status' is a required property"]


def test_status_type_and_body_that_are_not_declared_are_found(body):
    assert "status 202 is not declared" in mistaken(JsonResponse(body, status=202))[0]
    assert "'text/html' is not declared" in mistaken(HttpResponse("hello"))[0]
    trigger = SimpleNamespace(route="api/v1/triggers/<uuid:id>")
    assert mistaken(JsonResponse({}, status=204), trigger, "DELETE") == [
        "a body of application/json where none is declared"
    ]
    assert mistaken(HttpResponse(status=204), trigger, "DELETE") == []


def test_error_has_the_shape_of_errors():
    right = {"code": "not_found", "message": "No.", "detail": None, "request_id": ""}

    assert mistaken(JsonResponse(right, status=404)) == []
    assert mistaken(JsonResponse(right, status=404), None) == []
    assert mistaken(JsonResponse({"detail": "No."}, status=404))
    assert mistaken(HttpResponse("No.", status=404), None)


def test_stream_is_judged_by_its_type():
    stream = SimpleNamespace(route="api/v1/events/stream")

    assert mistaken(StreamingHttpResponse([b"data: 1\n"], content_type="text/event-stream"), stream) == []
    assert mistaken(StreamingHttpResponse([b"data: 1\n"], content_type="text/plain"), stream)


def test_client_fails_where_the_document_is_wrong(api, person, monkeypatch):
    changed = copy.deepcopy(document())
    del changed["paths"]["/api/v1/me"]["get"]["responses"]["200"]
    monkeypatch.setattr(contract, "document", lambda: changed)

    with pytest.raises(AssertionError, match="GET /api/v1/me: 200\nstatus 200 is not declared"):
        api.get("/api/v1/me")
    assert json.loads(api.get("/api/v1/absent").content)["code"] == "not_found"
