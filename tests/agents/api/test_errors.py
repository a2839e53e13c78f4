"""Every error has one shape, reveals no internals and is never a traceback."""

import json
import logging
from unittest.mock import patch

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import OperationalError
from django.http import UnreadablePostError
from django.test import override_settings
from rest_framework.exceptions import ValidationError

from agents.api import errors
from agents.api.results import ProjectViewSet
from agents.exceptions import (
    AutonomousBrake,
    BudgetExceeded,
    CostCapReached,
    Invalid,
    InvalidTransition,
    LqopsError,
    ModelSuspended,
    NotAllowed,
    NotFound,
    SessionHalted,
    TicketRefused,
    ToolNotGranted,
    UnpricedModel,
)
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
PROJECTS = "/api/v1/projects"
SHAPE = {"code", "message", "detail", "request_id"}


def raising(error):
    return patch.object(ProjectViewSet, "list", side_effect=error)


def answer_to(api, error):
    with raising(error):
        return api.get(PROJECTS)


BRAKES = [
    SessionHalted("external_halt"), ToolNotGranted("notify", "intake"), CostCapReached(2, 1),
    BudgetExceeded("usd", "used up"), UnpricedModel("m"), ModelSuspended("m"),
]  # fmt: skip


def test_refusal_by_a_brake_is_409(api):
    for error in BRAKES:
        assert isinstance(error, AutonomousBrake), error
        answer = answer_to(api, error)
        assert answer.status_code == 409, error
        assert answer.json()["code"] == error.code, error
        assert answer.json()["message"] == str(error), error


def test_each_error_has_its_status_and_shape(api):
    for error, status in [
        (InvalidTransition("x"), 409),
        (TicketRefused("x"), 409),
        (NotAllowed("x"), 403),
        (NotFound("x"), 404),
        (Invalid("x"), 422),
        (PermissionDenied("x"), 403),
        (SuspiciousOperation("x"), 400),
        (UnreadablePostError("x"), 400),
        (OperationalError("database is locked"), 503),
    ]:
        answer = answer_to(api, error)
        assert answer.status_code == status, (error, status)
        assert answer.json().keys() == SHAPE, (error, status)
        assert answer.json()["request_id"] == answer["X-Request-ID"], (error, status)


def test_request_id_of_a_proxy_is_kept(api):
    answer = api.get(f"{PROJECTS}/nonsense", HTTP_X_REQUEST_ID="proxy-7")
    assert answer.json()["request_id"] == "proxy-7"


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("boom"), LqopsError("boom")])
def test_server_error_reveals_only_its_request_id(api, caplog, error):
    with caplog.at_level(logging.ERROR, logger=errors.__name__):
        answer = answer_to(api, error)
    assert answer.status_code == 500
    assert answer.json()["code"] == "server_error"
    assert "boom" not in answer.content.decode()
    assert "Traceback" not in answer.content.decode()
    assert type(error).__name__ in caplog.text


def test_secret_in_a_server_error_is_redacted(api):
    answer = answer_to(api, Invalid("The key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789 is no name."))
    assert "abcdefghijkl" not in answer.content.decode()
    assert "[redacted:" in answer.json()["message"]


@pytest.mark.parametrize("address", ["/api/v1/", "/api/v1/nothing"])
def test_unknown_path_names_the_api_documentation(api, address):
    answer = api.get(address)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.json()["message"] == "Not found: /api/docs/ lists the routes of the API."


def test_message_is_the_first_problem_of_a_definition(api, person):
    address = f"/api/v1/agents/{make_agent(owner=person).public_id}/definition"
    told = api.put(address, {"definition": "mode: loud\nzone: Nowhere\n"}, format="json").json()
    assert told["message"] == f"{told['detail']['problems'][0]['message']} (and 1 more)"
    told = api.put(address, {"definition": "mode: loud\n"}, format="json").json()
    assert told["message"] == told["detail"]["problems"][0]["message"]


def test_validation_error_names_its_fields(api):
    body = api.post(PROJECTS, {"nme": "x"}, format="json")
    assert body.status_code == 422
    assert body.json()["code"] == "invalid"
    assert list(body.json()["detail"]) == ["nme"]
    assert "name" in api.post(PROJECTS, {}, format="json").json()["detail"]


def test_validation_error_without_field_is_non_field(api):
    answer = answer_to(api, ValidationError("They do not fit together."))
    assert answer.status_code == 422
    assert answer.json()["detail"] == {"non_field_errors": ["They do not fit together."]}


def test_body_that_is_no_object_is_invalid(api):
    for body in ["[]", "1", '"x"', "null", "true"]:
        answer = api.post(PROJECTS, body, content_type="application/json")
        assert (answer.status_code, list(answer.json()["detail"])) == (422, ["non_field_errors"]), body


def test_unusual_json_is_refused(api):
    for body in [
        b"{",
        b"\xff\xfe",
        b"{'name': 1}",
        b'{"name": NaN}',
        b'{"name": Infinity}',
        b'{"name": 1e999}',
        b'{"name": "a", "name": "b"}',
        b'{"name": "\\u0000"}',
        b'{"name": "\\ud800"}',
        b'{"\\u0000": 1}',
        b'{"name": 99999999999999999999}',
        b'{"name": ' + b"9" * 5_000 + b"}",
        b'\xef\xbb\xbf{"name": "x"}',
        b"[" * 100_000,
        b'{"a":' * 60 + b"1" + b"}" * 60,
        b"[" * 10_000 + b"]" * 10_000,
    ]:
        answer = api.post(PROJECTS, body, content_type="application/json")
        assert (answer.status_code, answer.json()["code"]) == (400, "parse_error"), body[:40]


@pytest.mark.parametrize("act", ["start", "stop", "restart"])
def test_unreadable_body_is_refused_where_none_is_needed(api, person, act):
    agent = make_agent(owner=person)
    answer = api.post(f"/api/v1/agents/{agent.public_id}/{act}", b"{bad", content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")


def test_chunked_body_is_refused(api):
    answer = api.post(PROJECTS, HTTP_TRANSFER_ENCODING="chunked", CONTENT_LENGTH="")
    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")


def test_too_large_body_is_refused(api):
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1_000):
        answer = api.post(PROJECTS, json.dumps({"name": "x" * 2_000}), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "1000 bytes" in answer.json()["message"]


def test_another_type_of_body_is_refused(api):
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "x"]:
        answer = api.post(PROJECTS, "name=x", content_type=kind)
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type"), kind


def test_another_type_of_answer_is_refused(api):
    answer = api.get(PROJECTS, HTTP_ACCEPT="text/html")
    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")


def test_unknown_path_is_404(api):
    for path in [
        "nonsense",
        "sessions/",
        "sessions/1",
        "sessions/nonsense",
        "sessions/%00",
        "sessions/..%2f",
        "sessions/00000000-0000-4000-8000-00000000000g",
        "me/x",
        "triggers/events/x",
        "",
    ]:
        for method in ["get", "post", "delete"]:
            answer = getattr(api, method)(f"/api/v1/{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (path, method)


def test_unknown_path_without_key_is_401(client):
    assert client.get("/api/v1/nonsense").status_code == 401


def test_unknown_method_is_refused(api):
    for method in ["put", "options", "trace"]:
        answer = api.generic(method.upper(), PROJECTS)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed"), method


def test_responses_are_not_cached(api):
    for address in (PROJECTS, f"{PROJECTS}/nonsense", "/api/v1/me"):
        assert api.get(address)["Cache-Control"] == "no-store"


def test_invisible_characters_are_escaped(api, person):
    from agents.models import Project

    Project.objects.create(owner=person, name="pay \u202e0001")
    raw = api.get(PROJECTS).content
    assert raw.isascii()
    assert b"\\u202e" in raw
