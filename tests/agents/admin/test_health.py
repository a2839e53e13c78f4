"""The health page and the facts that it shares with probes and the API."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django_q.models import OrmQ

from agents.admin import home
from agents.conf import clock
from agents.enums import OutboxStatus, Status
from agents.guard.selftest import Check
from agents.models import Channel, Installation, Lease, Notification, OutboxMessage, SuspendedModel
from agents.people.channels import email_channel
from agents.sessions.control_room import health, workers_active
from audit.checkpoints import write_checkpoint
from tests.agents.admin.links import unrendered
from tests.agents.admin.rows import sign_in, text_of
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db

PAGE = "admin:health"


@pytest.fixture(autouse=True)
def _checkpoints(settings, tmp_path):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "checkpoints.jsonl"


def ticker(done_at):
    return Lease.objects.create(name="ticker", owner="host:1", until=done_at + timedelta(seconds=10), done_at=done_at)


def copy_of(status, due_at):
    notice = Notification.objects.create(owner=make_user(), title="t")
    channel = email_channel(notice.owner_id)
    return OutboxMessage.objects.create(notification=notice, channel=channel, status=status, due_at=due_at)


def test_healthy_installation_has_no_red_lines():
    ticker(NOW)

    found = health(NOW)

    assert found.red == ()
    assert (found.ticker_owner, found.ticker_done_at) == ("host:1", NOW)


def test_stopped_ticker_is_a_red_line():
    assert any("ticker" in line for line in health(NOW).red)
    ticker(NOW - timedelta(minutes=2))
    assert any("ticker" in line for line in health(NOW).red)


def test_session_queued_too_long_is_a_red_line():
    ticker(NOW)
    make_session(status=Status.QUEUED, enqueued_at=NOW)
    assert health(NOW).red == ()

    make_session(status=Status.QUEUED, enqueued_at=NOW - timedelta(minutes=5))
    found = health(NOW)

    assert (found.queued, found.oldest_queued_at) == (2, NOW - timedelta(minutes=5))
    assert any("waiting for a worker" in line for line in found.red)


def test_tasks_that_nobody_acknowledges_are_a_red_line():
    ticker(NOW)
    make_session(lease_owner="one", lease_until=NOW + timedelta(seconds=9))
    OrmQ.objects.bulk_create(OrmQ(key="lqops", payload="", lock=NOW + timedelta(minutes=20)) for _ in range(51))
    assert health(NOW).red == ()

    OrmQ.objects.create(key="lqops", payload="", lock=NOW + timedelta(minutes=20))
    assert health(NOW).red == ("52 tasks were taken and never acknowledged: restart `manage.py work`.",)


def test_channel_that_takes_nothing_is_a_red_line_after_two_attempts():
    """Its next attempts are minutes and hours apart, and only the last makes dead letters."""
    ticker(NOW)
    channel = email_channel(make_user(email="ada@example.org").pk)
    Channel.objects.filter(pk=channel.pk).update(failures=1)
    assert health(NOW).red == ()
    Channel.objects.filter(pk=channel.pk).update(failures=2)
    assert health(NOW).red == ("A channel does not take notifications: see Channels for the error.",)
    Channel.objects.filter(pk=channel.pk).update(enabled=False)
    assert health(NOW).red == ()


def test_lost_worker_is_a_red_line():
    ticker(NOW)
    make_session(lease_owner="one", lease_until=NOW + timedelta(seconds=9))
    make_session(lease_owner="one", lease_until=NOW + timedelta(seconds=5))
    make_session(lease_owner="two", lease_until=NOW - timedelta(seconds=1))

    found = health(NOW)

    assert [(worker.owner, worker.sessions) for worker in workers_active()] == [("one", 2), ("two", 1)]
    assert (found.lost, found.oldest_lease_until) == (1, NOW - timedelta(seconds=1))
    assert any("counts as lost" in line for line in found.red)


@pytest.mark.parametrize("number", [1, 2])
def test_undelivered_notifications_link_to_those_deliveries(client, number):
    sign_in(client)
    for _ in range(number):
        copy_of(OutboxStatus.FAILED, NOW)
    copy_of(OutboxStatus.SENT, NOW)
    text = f"{number} notification{'s' * (number > 1)} could not be delivered. See Deliveries."

    for name in (PAGE, "admin:index"):
        link = re.search(f'href="([^"]+)">{text}</a>', text_of(client.get(reverse(name))))[1]
        assert unrendered(client, unescape(link)).context_data["cl"].result_count == number


def test_outbox_suspended_models_and_halt_are_shown():
    ticker(NOW)
    copy_of(OutboxStatus.PENDING, NOW)
    copy_of(OutboxStatus.FAILED, NOW)
    SuspendedModel.objects.create(model="greedy", bound_usd=1, actual_usd=2)

    found = health(NOW)

    assert (found.outbox_pending, found.outbox_failed, found.outbox_oldest_at) == (1, 1, NOW)
    assert found.suspended == ("greedy",)
    assert len(found.red) == 2


def test_missing_checkpoint_is_a_red_line(settings):
    ticker(NOW)
    write_checkpoint(now=NOW - timedelta(hours=1))

    found = health(NOW)

    assert found.checkpoint_at == NOW - timedelta(hours=1)
    assert any("checkpoint" in line for line in found.red)


def test_broker_in_redis_is_not_counted(settings, monkeypatch):
    settings.Q_CLUSTER = {"redis": "redis://x"}
    monkeypatch.setattr("agents.sessions.control_room.broker_fault", lambda: "")

    assert health(NOW).broker_depth is None


def test_missing_installation_row_is_a_red_line():
    Installation.objects.all().delete()

    with pytest.raises(Installation.DoesNotExist):
        health(NOW)


def test_health_takes_a_fixed_number_of_queries():
    counts = []
    for _ in range(2):
        for number in range(3):
            make_session(lease_owner=f"w{number}", lease_until=NOW)
            make_session(status=Status.QUEUED)
        with CaptureQueriesContext(connection) as captured:
            health(NOW)
        counts.append(len(captured))

    assert counts[0] == counts[1]


# --- The page ---


def test_page_shows_health_and_refreshes(client):
    sign_in(client, "viewer")
    ticker(clock())
    make_session(lease_owner="worker-7", lease_until=clock() + timedelta(minutes=1))

    found = text_of(client.get(reverse(PAGE)))

    for words in ("All checks passed.", "host:1", "worker-7", "django-q2", "Python", "data-every"):
        assert words in found, words
    assert "Test brakes" not in found


def test_page_shows_red_lines(client):
    sign_in(client)

    assert "Start `manage.py work`" in text_of(client.get(reverse(PAGE)))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("durable_commits")
def test_operator_tests_the_brakes(client, monkeypatch):
    monkeypatch.setattr(home.selftest, "is_armed", lambda: False)
    sign_in(client, "operator")
    assert "not tested in this process" in text_of(client.get(reverse(PAGE)))

    found = text_of(client.post(reverse(PAGE)))

    assert "✓" in found
    assert "✗" not in found
    assert "all checks passed" in found


def test_failed_brakes_are_counted(client, monkeypatch):
    monkeypatch.setattr(home.selftest, "is_armed", lambda: True)
    monkeypatch.setattr(home, "diagnose", lambda: [Check("halt", False, "the call was made"), Check("grant", True, "")])
    sign_in(client, "operator")

    assert "tested at the start of this process" in text_of(client.get(reverse(PAGE)))
    found = text_of(client.post(reverse(PAGE)))
    assert "1 check failed" in found
    assert "the call was made" in found


def test_health_needs_view_and_tests_need_change(client):
    client.force_login(make_user(is_staff=True))
    assert client.get(reverse(PAGE)).status_code == 403
    sign_in(client, "viewer")
    assert client.post(reverse(PAGE)).status_code == 403


def test_unknown_version_is_shown_as_unknown(monkeypatch):
    monkeypatch.setattr(home, "PACKAGES", ("no-such-package",))

    assert home.versions()["no-such-package"] == "unknown"
