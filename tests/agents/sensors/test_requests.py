"""Headers and parameters of sources: secrets by handle reach the source, and nothing else."""

import json
import logging

import pytest

from agents.definitions.values import OWN_HEADERS
from agents.models import AgentEvent, Alert, HotField, Notification, Sensor
from agents.net.client import CLIENT_HEADERS
from audit.models import AuditEvent
from audit.redaction import register_known_secrets
from audit.redaction.redactor import _Known
from tests.agents.sensors.scene import Scene, poll, running_slice, sensor
from tests.agents.sensors.sources import Socket, Web
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)
VALUE = "Bearer zq81-hhl-3f0pl-quine"
FIELDS = {"value": "object"}


@pytest.fixture(autouse=True)
def _secrets(settings, monkeypatch):
    settings.LQOPS_SECRETS = {"shop": VALUE}
    settings.LQOPS_SECRET_HOSTS = {"shop": ["http://127.0.0.1"]}
    monkeypatch.setattr(_Known, "values", _Known.values)
    monkeypatch.setattr(_Known, "expression", _Known.expression)
    register_known_secrets([VALUE, VALUE.split()[1]])


def test_poll_sends_headers_and_parameters_with_secrets(serving):
    paths = []
    source = serving(Web, lambda request: paths.append(request.path) or {"n": 1})
    asked = {"url": f"{source.url}a?b=c#part", "headers": {"X-Key": {"$secret": "shop"}, "Accept": "application/json"}}
    given = poll(**asked, params={"page": 2, "all": True, "key": {"$secret": "shop"}})
    scene = Scene(given, fields=FIELDS)
    with running_slice():
        until(lambda: scene.value("value") == {"n": 1})

    assert paths[0] == "/a?b=c&all=true&key=Bearer+zq81-hhl-3f0pl-quine&page=2"
    assert (source.asked[0]["x-key"], source.asked[0]["accept"]) == (VALUE, "application/json")


def test_secret_is_masked_wherever_a_source_repeats_it(serving, caplog):
    caplog.set_level(logging.DEBUG)

    def answer(request):
        key = request.headers["Authorization"]
        if len(source.asked) > 2:
            return 200, {"Content-Type": "application/json"}, f"no JSON: {key}".encode()
        return {"echo": key, "token": key.split()[1]}

    source = serving(Web, answer)
    signal = {"name": "odd", "when": {"path": "echo", "matches": "zq81"}}
    scene = Scene(poll(url=source.url, headers={"Authorization": {"$secret": "shop"}}, signals=[signal]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(lambda: scene.alerts() and scene.sensor().failures)

    rows = [list(model.objects.values()) for model in (Sensor, HotField, Alert, AgentEvent, AuditEvent, Notification)]
    told = f"{json.dumps(rows, default=str)}{caplog.text}{scene.agent.definition}"
    assert "zq81-hhl" not in told
    assert scene.value("value")["echo"] != VALUE


def test_unknown_secret_is_an_error_and_nothing_is_sent(serving):
    source = serving(Web, {"n": 1})
    scene = Scene(poll(url=source.url, headers={"X-Key": {"$secret": "other"}}), fields=FIELDS)
    with running_slice():
        until(lambda: scene.sensor().problem)

    assert "there is no secret 'other'" in scene.sensor().problem
    assert not source.asked


def test_streams_send_headers(serving):
    keys = []

    def behave(connection, number):
        keys.append(connection.request.headers["X-Key"])
        connection.send("1")
        connection.recv(60)

    socket = serving(Socket, behave)
    web = serving(Web, lambda request: (404, {}, b"{}"))

    def headers():
        return {"X-Key": {"$secret": "shop"}}

    Scene(
        sensor("ws", "stream", {"url": socket.url, "headers": headers()}, (), ()),
        sensor("sse", "stream", {"url": web.url, "headers": headers()}, (), ()),
    )
    with running_slice():
        until(lambda: keys and web.asked)

    assert keys[0] == web.asked[0]["x-key"] == VALUE
    assert web.asked[0]["accept"] == "text/event-stream"


def test_headers_of_the_client_cannot_be_given():
    assert OWN_HEADERS >= CLIENT_HEADERS
