"""POST /hooks/<id>, over the web."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
import time_machine
from django.test import Client
from django.urls import reverse

from agents.models import AgentSession
from tests.factories import NOW

from .messages import BODY, make_hook, signed
from .rows import halt_all

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _at_a_fixed_time():
    with time_machine.travel(NOW, tick=False):
        yield


def post(trigger, body=BODY, headers=None, client=None):
    address = reverse("hook", args=[trigger.public_id])
    sent = signed(trigger, body) if headers is None else headers
    return (client or Client(enforce_csrf_checks=True)).post(
        address, body, content_type="application/json", headers=sent
    )


def test_a_signed_message_is_taken_without_sign_in_and_without_a_token():
    trigger = make_hook()
    answer = post(trigger)
    session = AgentSession.objects.get()
    assert answer.status_code == 200
    assert answer.json()["code"] == "spawned"
    assert answer.json()["session_id"] == str(session.public_id)
    assert answer.json()["request_id"] == answer["X-Request-ID"]
    assert session.created_at == NOW


def test_the_same_message_again_gets_the_same_answer():
    trigger = make_hook()
    first, again = post(trigger).json(), post(trigger).json()
    del first["request_id"], again["request_id"]
    assert first == again
    assert AgentSession.objects.count() == 1


def test_what_nobody_signed_is_refused():
    trigger = make_hook()
    answer = post(trigger, headers={})
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed")
    assert answer.json()["session_id"] is None


def test_an_address_that_leads_nowhere_is_not_found():
    trigger = make_hook()
    headers = signed(trigger)
    trigger.public_id = uuid4()
    assert post(trigger, headers=headers).status_code == 404
    answer = Client().post("/hooks/not-an-id", {}, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.json()["request_id"] == answer["X-Request-ID"]


@pytest.mark.parametrize("method", ["get", "put", "delete", "patch"])
def test_only_posts_are_taken(method):
    assert getattr(Client(), method)(reverse("hook", args=[make_hook().public_id])).status_code == 405


def test_a_body_that_is_too_large_is_not_read_to_its_end():
    trigger = make_hook()
    body = b'{"a": "' + b"x" * 3_000_000 + b'"}'
    assert post(trigger, body, headers={}).status_code == 413


def test_whoever_is_put_off_is_told_for_how_long():
    trigger = make_hook(max_runs_per_hour=1)
    post(trigger)
    body = b'{"another": 1}'
    headers = {**signed(trigger, body, webhook_id="msg_2")}
    answer = post(trigger, body, headers=headers)
    assert (answer.status_code, answer["Retry-After"]) == (429, "3600")
    halt_all()
    assert post(trigger, body, headers=headers)["Retry-After"] == "60"


def test_a_message_during_a_halt_is_no_error_in_the_log(caplog):
    trigger = make_hook()
    halt_all()
    assert post(trigger).status_code == 503
    [line] = [record for record in caplog.records if record.name == "django.request"]
    assert (line.levelname, "halted" in line.getMessage()) == ("WARNING", True)


def test_the_time_is_that_of_the_server():
    trigger = make_hook()
    headers = signed(trigger, at=datetime(2026, 3, 14, 9, 0, tzinfo=UTC))
    assert post(trigger, headers=headers).status_code == 401
