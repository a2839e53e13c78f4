"""A secret leaves for the hosts that an admin has named and for no other, whoever asks, on every surface."""

import json
import re
import socket
from datetime import timedelta

import pytest
import yaml
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command

from agents.conf import clock
from agents.definitions.schema import DefinitionError
from agents.exceptions import NotAllowed
from agents.models import Agent, AgentEvent, Alert, HotField, SecretBinding, Sensor
from agents.policy.destinations import Destination
from agents.roster.files import definition_write
from agents.sensors.trial import agent_try
from agents.sensors.validation import secrets_unbound
from agents.skills.handles import SecretUser, secret_bind, secrets_resolve
from audit.models import AuditEvent
from audit.redaction import register_known_secrets
from audit.redaction.redactor import _Known
from tests.agents.admin.rows import page, sign_in, text_of
from tests.agents.api.conftest import client_of
from tests.agents.sensors.scene import Scene, poll, running_slice, sensor
from tests.agents.sensors.sources import Socket, Web
from tests.factories import NOW, make_agent, make_starter, make_user
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)
VALUE = "Bearer zq81-hhl-3f0pl-quine"
OTHER = "open-sesame-7-and-more"
AGENTS = "/api/v1/agents"
HERE = "http://127.0.0.1"


@pytest.fixture(autouse=True)
def _secrets(settings, monkeypatch):
    settings.LQOPS_SECRETS = {"shop": VALUE, "crm": OTHER}
    monkeypatch.setattr(_Known, "values", _Known.values)
    monkeypatch.setattr(_Known, "expression", _Known.expression)
    register_known_secrets([VALUE, VALUE.split()[1], OTHER])


def with_secrets(url, **source):
    """A source that asks for two secrets."""
    return {"url": url, "headers": {"X-One": {"$secret": "shop"}}, "params": {"two": {"$secret": "crm"}}, **source}


def definition(url, *, kind="poll", name="Thief"):
    more = {"interval": 5} if kind == "poll" else {}
    told = {"name": "feed", "type": kind, "source": with_secrets(url), "updates": [{"field": "value"}], **more}
    fields = {"fields": {"value": {"type": "object"}}}
    return yaml.safe_dump({"name": name, "autonomy": {"enabled": True}, "hot_state": fields, "sensors": [told]})


class Attacker:
    """A server that keeps the whole head of each request."""

    def __init__(self, serving, answer=None):
        self.paths = []
        self.web = serving(Web, lambda request: self.paths.append(request.path) or answer or {"n": 1})
        self.url = self.web.url

    @property
    def got(self):
        """The secrets that arrived, whole or in part."""
        told = json.dumps([self.web.asked, self.paths])
        return [part for part in ("zq81", "sesame") if part in told]


@pytest.fixture
def attacker(serving):
    return Attacker(serving)


@pytest.fixture
def admin():
    return make_user(is_superuser=True)


def bind(name="shop", *hosts, by):
    return secret_bind(name=name, hosts=hosts or [HERE], by=by, now=clock())


def events(kind="secret.used"):
    return [event.details for event in AuditEvent.objects.filter(kind=kind).order_by("pk")]


# --- Nothing leaves for a host that nobody named ---


def test_imported_agent_that_is_tried_sends_no_secret(attacker):
    api = client_of(make_starter(), "read", "write")
    imported = api.post(f"{AGENTS}/import", {"definition": definition(attacker.url)}, format="json")
    agent = Agent.objects.filter(name="Thief").first()
    if agent is not None:
        api.post(f"{AGENTS}/{agent.public_id}/try")

    assert attacker.got == []
    assert imported.status_code == 422
    said = imported.content.decode()
    assert "the secret 'shop' may not go to 127.0.0.1" in said
    assert f"manage.py secrets bind shop {attacker.url.rstrip('/')}`" in said, "this port, no other"
    assert "agents.loosen" in said
    assert "zq81" not in said
    assert agent is None


def test_definition_that_is_changed_through_the_api_sends_no_secret_elsewhere(attacker, settings):
    settings.LQOPS_SECRET_HOSTS = {"shop": ["shop.example.org"], "crm": ["shop.example.org"]}
    person = make_starter()
    api = client_of(person, "read", "write")
    good = api.post(f"{AGENTS}/import", {"definition": definition("https://shop.example.org/")}, format="json")
    place = f"{AGENTS}/{good.json()['id']}"
    changed = api.put(f"{place}/definition", {"definition": definition(attacker.url)}, format="json")
    tried = api.post(f"{place}/try")

    assert (good.status_code, changed.status_code, tried.status_code) == (200, 422, 200)
    assert attacker.got == []


def test_admin_pages_and_the_command_refuse_it_too(attacker, client, tmp_path):
    user = sign_in(client, "admin")
    agent = make_agent(owner=user, name="Thief")
    shown = client.post(page(Agent, "definition", agent.pk), {"text": definition(attacker.url)})
    checked = client.post(page(Agent, "check", agent.pk), {"text": definition(attacker.url)})
    file = tmp_path / "thief.yaml"
    file.write_text(definition(attacker.url, name="Loaded"))
    with pytest.raises(CommandError, match="Nothing was loaded"):
        call_command("load_agents", str(file), user=user.username)
    agent.refresh_from_db()
    client.post(page(Agent, "act", agent.pk, "try"), {"confirmed": "1"})

    assert "may not go to 127.0.0.1" in text_of(shown) + text_of(checked)
    assert agent.definition_version == 0
    assert not Agent.objects.filter(name="Loaded").exists()
    assert attacker.got == []


@pytest.mark.parametrize(
    ("kind", "scheme", "key"),
    [("poll", "http", "url"), ("poll", "http", "items"), ("stream", "http", "url"), ("stream", "ws", "url")],
)
def test_definition_from_before_hosts_were_named_sends_nothing(attacker, kind, scheme, key):
    """Its text is stored already, so only the look can refuse it: in a trial, and in a slice."""
    source = with_secrets(attacker.url.replace("http", scheme, 1))
    source[key] = source.pop("url")
    given = sensor("feed", kind, source, ("value",), (), **({"interval": 1} if kind == "poll" else {}))
    scene = Scene(given, fields={"value": "object"})
    [tried] = agent_try(agent=scene.agent, by=None, now=clock())["sensors"]
    with running_slice():
        until(lambda: scene.sensor().failures)

    for problem in (tried["problem"], scene.sensor().problem):
        assert re.search(r"may not go to 127\.0\.0\.1:\d+ without encryption: it is bound to no host yet", problem)
    assert (attacker.got, attacker.paths, events()) == ([], [], [])


def test_password_of_a_mailbox_goes_to_no_server_that_nobody_named(monkeypatch):
    monkeypatch.setattr("agents.net.urls.system_resolve", lambda host: ["127.0.0.1"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mailbox = {"host": "mail.evil.example.org", "port": listener.getsockname()[1], "user": "me"}
        source = {"imap": {**mailbox, "password": {"$secret": "crm"}}}
        scene = Scene(sensor("feed", "poll", source, (), (), interval=60))
        [tried] = agent_try(agent=scene.agent, by=None, now=clock())["sensors"]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()

    assert "the secret 'crm' may not go to mail.evil.example.org" in tried["problem"].lower()


def test_host_that_is_named_for_one_secret_is_not_named_for_another(attacker, admin):
    bind("shop", by=admin)
    scene = Scene(sensor("feed", "poll", with_secrets(attacker.url), ("value",), (), interval=60))
    [tried] = agent_try(agent=scene.agent, by=None, now=clock())["sensors"]

    assert "the secret 'crm' may not go" in tried["problem"].lower()
    assert (attacker.got, attacker.paths) == ([], [])


def test_host_that_is_taken_back_gets_no_further_look(attacker, admin):
    bind("shop", by=admin)
    scene = Scene(poll(attacker.url, headers={"X-One": {"$secret": "shop"}}), fields={"value": "object"})
    with running_slice(time_scale=0.1):
        until(lambda: attacker.got)
        secret_bind(name="shop", hosts=[], by=admin, now=clock())
        until(lambda: scene.sensor().failures)
        looked = len(attacker.paths)
        failures = scene.sensor().failures
        until(lambda: scene.sensor().failures > failures)

    assert len(attacker.paths) == looked
    assert "bound to no host yet" in scene.sensor().problem


def test_redirect_to_another_host_carries_no_secret(serving, admin):
    """Also not in a header that others may see, such as the name of the client."""
    caught = []
    bad = serving(Web, lambda request: caught.append(request.path) or {"n": 2})
    away = bad.url
    good = serving(Web, lambda request: (302, {"Location": away}, b""))
    bind("shop", HERE + ":" + good.url.split(":")[2].strip("/"), by=admin)
    names = ("User-Agent", "Accept", "X-Key")
    scene = Scene(poll(good.url, headers={name: {"$secret": "shop"} for name in names}), fields={"value": "object"})
    [tried] = agent_try(agent=scene.agent, by=None, now=clock())["sensors"]

    assert (tried["ok"], tried["value"]) == (True, '{"n": 2}')
    assert all(good.asked[0][name.lower()] == VALUE for name in names)
    assert len(bad.asked) == 1
    assert "zq81" not in json.dumps([bad.asked, caught])


@pytest.mark.parametrize("kind", ["poll", "items", "stream"])
def test_secret_in_an_address_follows_no_redirect_to_another_origin(serving, admin, kind):
    """The server may repeat the whole address in it, and the secret with it."""
    caught, asked = [], []
    bad = serving(Web, lambda request: caught.append(request.path) or {"n": 2})
    away = bad.url.rstrip("/")
    good = serving(Web, lambda request: asked.append(request.path) or (302, {"Location": away + request.path}, b""))
    bind("crm", HERE + ":" + good.url.split(":")[2].strip("/"), by=admin)
    source = {"items" if kind == "items" else "url": good.url, "params": {"key": {"$secret": "crm"}}}
    given = {"interval": 60} if kind != "stream" else {}
    scene = Scene(sensor("feed", "stream" if kind == "stream" else "poll", source, ("value",), (), **given))
    [tried] = agent_try(agent=scene.agent, by=None, now=clock())["sensors"]

    assert asked == [f"/?key={OTHER}"]
    assert "The server redirects to another host" in tried["problem"]
    assert caught == []


# --- What is named works, and is on record ---


def test_named_host_gets_the_secret_and_each_day_one_event(attacker, admin):
    bind("shop", by=admin)
    bind("crm", by=admin)
    scene = Scene(poll(**with_secrets(attacker.url)), fields={"value": "object"})
    with running_slice(time_scale=0.1):
        until(lambda: len(attacker.paths) >= 3)
    with running_slice(time_scale=0.1):  # another slice reads from the row what is on record
        until(lambda: len(attacker.paths) >= 5)

    agent = {"agent_id": str(scene.agent.public_id), "sensor": "feed", "host": "127.0.0.1"}
    assert events() == [{**agent, "secret": "crm"}, {**agent, "secret": "shop"}]
    assert attacker.got == ["zq81", "sesame"]

    yesterday = (clock() - timedelta(days=1)).date().isoformat()
    Sensor.objects.update(secret_uses={"shop@127.0.0.1": yesterday, "crm@127.0.0.1": yesterday, "old@x": yesterday})
    with running_slice(time_scale=0.1):
        until(lambda: len(attacker.paths) >= 7)
    assert len(events()) == 4
    assert scene.sensor().secret_uses.keys() == {"shop@127.0.0.1", "crm@127.0.0.1"}


def test_use_that_another_slice_has_recorded_today_is_not_recorded_again(admin):
    """Its row was leased before that."""
    bind("shop", by=admin)
    scene = Scene(poll("http://127.0.0.1:9/", headers={"X-One": {"$secret": "shop"}}), fields={"value": "object"})
    first, second = scene.sensor(), scene.sensor()
    here = [Destination("127.0.0.1", 9, encrypted=False)]
    given = {"headers": {"X-One": {"$secret": "shop"}}}
    for row in (first, second, second):
        found = secrets_resolve(given, ("headers",), destinations=here, user=SecretUser(sensor=row), now=NOW)
        assert found == {"headers": {"X-One": VALUE}}
    assert len(events()) == 1

    row = scene.sensor()
    Sensor.objects.filter(pk=row.pk).delete()
    later = NOW + timedelta(days=1)
    secrets_resolve(given, ("headers",), destinations=here, user=SecretUser(sensor=row), now=later)
    assert len(events()) == 2


def test_each_use_in_a_trial_is_on_record_with_its_run(attacker, admin):
    bind("shop", by=admin)
    scene = Scene(poll(attacker.url, headers={"X-One": {"$secret": "shop"}}), fields={"value": "object"})
    runs = [agent_try(agent=scene.agent, by=None, now=clock())["session"] for _ in range(2)]

    assert [(event["secret"], event["host"], event["session_id"]) for event in events()] == [
        ("shop", "127.0.0.1", runs[0]),
        ("shop", "127.0.0.1", runs[1]),
    ]


def test_value_is_in_no_row(attacker, admin):
    bind("shop", by=admin)
    bind("crm", by=admin)
    scene = Scene(poll(**with_secrets(attacker.url)), fields={"value": "object"})
    agent_try(agent=scene.agent, by=None, now=clock())
    with running_slice(time_scale=0.1):
        until(lambda: scene.value("value") == {"n": 1})

    kept = (AuditEvent, Sensor, SecretBinding, Alert, AgentEvent, HotField)
    rows = json.dumps([list(model.objects.values()) for model in kept], default=str)
    assert not [part for part in ("zq81", "sesame") if part in rows]


@pytest.mark.parametrize("kind", ["poll", "stream"])
def test_value_that_a_server_repeats_as_the_tag_of_its_answer_is_in_no_row(serving, admin, kind):
    bind("crm", by=admin)
    told = f'id: x-{OTHER}\ndata: {{"n": 1}}\n\n'.encode() if kind == "stream" else {"n": 1}
    tags = {"ETag": f'"{OTHER}"', "Last-Modified": OTHER}
    more = {"Content-Type": "text/event-stream"} if kind == "stream" else tags
    web = serving(Web, lambda request: (200, more, told))
    source = {"url": web.url, "headers": {"X-Key": {"$secret": "crm"}}}
    given = {"interval": 1} if kind == "poll" else {}
    scene = Scene(sensor("feed", kind, source, ("value",), (), **given), fields={"value": "object"})
    with running_slice(time_scale=0.1):
        until(lambda: scene.value("value") == {"n": 1})

    assert "sesame" not in json.dumps(list(Sensor.objects.values()), default=str)


def test_text_that_sends_what_it_sent_before_can_be_edited(attacker, admin):
    """An installation from before hosts were named keeps its agents editable; only what is new has to be named."""
    scene = Scene(sensor("feed", "poll", with_secrets(attacker.url), (), (), interval=60))
    text = scene.agent.definition
    edited = definition_write(agent=scene.agent, text=f"{text}zone: Europe/Paris\n", by=None, now=NOW)
    assert edited.changed
    assert sorted(secrets_unbound()) == [
        f"crm for 127.0.0.1 (sensor feed of {scene.agent.name})",
        f"shop for 127.0.0.1 (sensor feed of {scene.agent.name})",
    ]

    more = yaml.safe_load(text)
    more["sensors"][0]["source"]["url"] = attacker.url.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(DefinitionError, match=r"may not go to 127\.0\.0\.2"):
        definition_write(agent=scene.agent, text=yaml.safe_dump(more), by=admin, now=NOW)

    bind("shop", by=admin)
    bind("crm", by=admin)
    assert secrets_unbound() == []


def test_operator_names_no_host_and_an_admin_does_on_record(client):
    operator = make_user()
    operator.groups.add(Group.objects.get(name="operator"))
    with pytest.raises(NotAllowed, match=r"agents\.change_secretbinding"):
        bind("shop", "evil.example.org", by=operator)
    admin = sign_in(client, "admin")
    address = page(SecretBinding, "act", "shop", "set_hosts")
    assert client.get(page(SecretBinding, "changelist")).status_code == 200
    assert client.post(address, {"hosts": "shop.example.org\n*.eu.example.org", "confirmed": "1"}).status_code == 302

    assert SecretBinding.objects.get().hosts == ["shop.example.org", "*.eu.example.org"]
    told = AuditEvent.objects.get(kind="secret.bound")
    assert (told.actor, told.subject) == (f"user:{admin.pk}", "secret:shop")
    assert told.details == {
        "secret": "shop",
        "hosts": 2,
        "added": [".eu.example.org", "shop.example.org"],
        "removed": [],
    }
    shown = text_of(client.get(page(SecretBinding, "change", "shop")))
    assert "shop.example.org, *.eu.example.org" in shown
    assert "zq81" not in shown


def test_socket_gets_the_secret_of_a_named_host(serving, admin):
    keys = []

    def behave(connection, number):
        keys.append(connection.request.headers["X-Key"])
        connection.send("1")
        connection.recv(60)

    web = serving(Socket, behave)
    bind("shop", by=admin)
    Scene(sensor("ws", "stream", {"url": web.url, "headers": {"X-Key": {"$secret": "shop"}}}, (), ()))
    with running_slice():
        until(lambda: keys)
    assert keys[0] == VALUE
