"""What the form of a schedule says while it is written."""

import pytest

from agents.conf import clock

from .rows import sign_in

pytestmark = pytest.mark.django_db


def test_schedule_is_read_out_with_its_next_times(client):
    sign_in(client, "viewer")
    address = "/admin/agents/trigger/schedule/"
    text = client.get(address, {"cron": "0 6 * * 1", "zone": "Europe/Paris"}).json()["text"]
    assert text.startswith("At 06:00 on Monday, Europe/Paris. Next: Mon ")
    assert text.count("06:00") == 6
    assert str(clock().year) in text
    for cron, zone, words in (("0 6", "UTC", "needs five"), ("0 6 * * *", "Mars", "no time zone"), ("", "", "fields")):
        assert words in client.get(address, {"cron": cron, "zone": zone}).json()["text"]
