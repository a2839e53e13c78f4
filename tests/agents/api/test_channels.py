"""Channels by the API: the signing secret is in one answer, and a receiver verifies messages with it."""

import pytest
from standardwebhooks import Webhook

from agents.people.channels import channel_secret
from audit.models import AuditEvent
from tests.agents.people.test_channels import HOOK, receiver
from tests.factories import make_channel

pytestmark = pytest.mark.django_db

CHANNELS = "/api/v1/channels"


def create(api, **body):
    answer = api.post(CHANNELS, {"kind": "webhook", "name": "Hook", "address": HOOK, **body}, format="json")
    assert answer.status_code == 201, answer.content
    return answer.json()


def test_receiver_verifies_messages_with_the_secret_of_the_new_channel(api, settings):
    with receiver(settings) as server:
        made = create(api, address=server.address)
        assert api.post(f"{CHANNELS}/{made['id']}/test").json()["ok"]
    [(headers, body)] = server.taken

    assert made["secret"].startswith("whsec_")
    assert Webhook(made["secret"]).verify(body, headers)["type"] == "test"


def test_secret_is_in_no_other_answer_and_in_no_event(api, person):
    made = create(api)
    others = [
        api.get(CHANNELS),
        api.get(f"{CHANNELS}/{made['id']}"),
        api.patch(f"{CHANNELS}/{made['id']}", {"name": "B"}),
    ]

    assert all("secret" not in answer.json() and made["secret"] not in answer.content.decode() for answer in others)
    assert made["secret"] not in str(list(AuditEvent.objects.values()))
    assert AuditEvent.objects.filter(kind="channel.created", actor__startswith=f"user:{person.pk}").count() == 1


def test_chat_has_no_signing_secret(api, monkeypatch):
    monkeypatch.setattr("agents.people.channels.check_address", lambda *_: None)

    assert create(api, kind="chat", address="slack://a/b/c")["secret"] is None


def test_secret_of_another_channel_is_not_given(api, person):
    made = create(api)

    assert made["secret"] != channel_secret(make_channel(person))
