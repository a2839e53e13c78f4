"""The command `channels`."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from agents.enums import OutboxStatus
from agents.models import Notification, OutboxMessage
from agents.people import outbox
from tests.factories import make_channel, make_user

pytestmark = pytest.mark.django_db


def printed(*given):
    out = StringIO()
    call_command("channels", *given, stdout=out)
    return out.getvalue()


def dead_letter(channel):
    notice = Notification.objects.create(owner=channel.owner, title="t")
    return OutboxMessage.objects.create(channel=channel, notification=notice, status=OutboxStatus.FAILED)


def test_channels_are_listed_with_their_state():
    channel = make_channel(make_user(username="olga"), name="Pager", error="down")
    dead_letter(channel)
    make_channel(channel.owner, name="Room", enabled=False)
    lines = printed().splitlines()
    assert lines[0] == f"{channel.public_id}  olga  webhook  Pager  failing: down  1 undelivered"
    assert lines[1].endswith("Room  off")
    assert lines[2] == "2 listed."
    assert json.loads(printed("--json"))[0]["undelivered"] == 1


def test_failed_test_is_an_error(monkeypatch):
    make_channel(name="Pager")
    with pytest.raises(CommandError, match="did not arrive"):
        printed("--test", "Pager")
    monkeypatch.setattr(outbox, "send_webhook", lambda *given, **more: "The server answered with status 204.")
    assert printed("--test", "Pager") == "The test message was sent. The server answered with status 204.\n"


def test_dead_letters_of_a_channel_are_sent_again():
    channel = make_channel(name="Pager")
    copies = [dead_letter(channel) for _ in range(2)]
    other = dead_letter(make_channel(name="Room"))
    assert printed("--replay", "Pager") == "2 to be sent again.\n"
    assert {OutboxMessage.objects.get(pk=copy.pk).status for copy in copies} == {OutboxStatus.PENDING}
    other.refresh_from_db()
    assert other.status == OutboxStatus.FAILED
    with pytest.raises(CommandError, match="nothing of that kind"):
        dead_letter(channel)
        printed("--replay", "Pager", "--user", make_user().username)
