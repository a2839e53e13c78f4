"""Channels of people: addresses, choices, quiet hours, digests, signed webhooks, dead letters and tests."""

import json
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest
from django.db import connection, transaction
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from agents.enums import News, NewsChoice, NoticeKind, OutboxStatus
from agents.exceptions import Invalid, NotFound
from agents.models import Channel, Notification, OutboxMessage
from agents.people import outbox, senders
from agents.people.channels import (
    address_of,
    channel_create,
    channel_delete,
    channel_rotate_secret,
    channel_secret,
    channel_update,
    email_channel,
)
from agents.people.notifications import notification_create
from agents.people.outbox import channel_test, copies_due, copy_discard, copy_replay, copy_send, max_attempts
from agents.people.senders import NO_APPRISE, NotSent
from agents.policy.news import GROUPS, next_digest, quiet_end
from agents.ticker import Mailer
from tests.factories import NOW, make_channel, make_session, make_user

from .rows import allowed, told

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
HOOK = "https://93.184.216.34/hook?token=s3cret"  # needs no lookup


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.taken.append((dict(self.headers.items()), body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def receiver(settings, status=204):
    """A real server on loopback, which the settings allow."""
    settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.1/32"]
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    server.taken, server.status = [], status
    server.address = f"http://127.0.0.1:{server.server_port}/hook"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tell(owner, kind=NoticeKind.RUN_STOPPED, now=NOW, **more):
    return notification_create(owner_id=owner.pk, kind=kind, title="Run failed", body="3 calls.", now=now, **more)


def hook(server, owner=None, **fields):
    return make_channel(owner, address=server.address, **fields)


def statuses():
    return list(OutboxMessage.objects.order_by("pk").values_list("status", flat=True))


# --- Webhooks ---


def test_webhook_is_signed_as_standard_webhooks_says(settings):
    settings.LQOPS_BASE_URL = "https://ops.example.org"
    with receiver(settings) as server:
        channel = hook(server)
        notice = tell(channel.owner, session_id=make_session(owner=channel.owner).pk)
        [pk] = copies_due(NOW)
        now = datetime.now(UTC)  # the library judges the time by the clock
        assert copy_send(pk, now=now)
    [(headers, body)] = server.taken
    data = Webhook(channel_secret(channel)).verify(body, headers)
    assert data["type"] == "notification.run_stopped"
    assert (data["data"]["title"], data["data"]["news"]) == ("Run failed", "failures")
    assert data["data"]["link"] == f"https://ops.example.org/admin/agents/notification/go/{notice.public_id}/"
    assert headers["webhook-id"] == str(OutboxMessage.objects.get().public_id)
    assert headers["webhook-signature"].startswith("v1,")
    with pytest.raises(WebhookVerificationError):
        Webhook(channel_secret(make_channel())).verify(body, headers)


def test_old_secret_signs_too_for_a_day(settings):
    with receiver(settings) as server:
        channel = hook(server)
        old = channel_secret(channel)
        now = datetime.now(UTC)
        new = channel_rotate_secret(channel=channel, by=channel.owner, now=now)
        channel.refresh_from_db()
        assert channel_test(channel=channel, by=channel.owner, now=now).ok
        Channel.objects.update(old_secret_until=now)
        channel.refresh_from_db()
        assert channel_test(channel=channel, by=channel.owner, now=now).ok
    (both, first), (alone, second) = server.taken
    for secret in (old, new):
        Webhook(secret).verify(first, both)
    Webhook(new).verify(second, alone)
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(second, alone)


def test_copy_is_written_with_its_notification_or_not_at_all():
    channel = make_channel()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tell(channel.owner)
        raise ZeroDivisionError
    assert (Notification.objects.count(), OutboxMessage.objects.count()) == (0, 0)


def test_message_lost_between_sending_and_noting_is_sent_again_with_its_id(settings, monkeypatch):
    with receiver(settings) as server:
        channel = hook(server)
        tell(channel.owner)
        [pk] = copies_due(NOW)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(outbox, "_note_sent", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
            copy_send(pk, now=NOW)
        assert not copy_send(pk, now=NOW)  # claimed
        later = NOW + outbox.CLAIMED_FOR
        assert copies_due(later) == [pk]
        assert copy_send(pk, now=later)
    first, second = (headers["webhook-id"] for headers, _ in server.taken)
    assert (first, statuses()) == (second, [OutboxStatus.SENT])


def test_no_transaction_is_open_while_sending(settings, monkeypatch):
    seen = []
    real = senders.SafeClient.stream
    monkeypatch.setattr(
        senders.SafeClient, "stream", lambda *a, **k: seen.append(connection.in_atomic_block) or real(*a, **k)
    )
    with receiver(settings) as server:
        tell(hook(server).owner)
        assert copy_send(copies_due(NOW)[0], now=NOW)
    assert seen == [False]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("status", [302, 400, 404, 500])
def test_other_answers_are_failures_and_redirects_are_not_followed(settings, status):
    with receiver(settings, status) as server:
        channel = hook(server)
        tell(channel.owner)
        assert not copy_send(copies_due(NOW)[0], now=NOW)
    assert len(server.taken) == 1
    channel.refresh_from_db()
    assert (channel.failures, channel.retry_at, bool(channel.error)) == (1, NOW + timedelta(seconds=5), True)


def test_address_inside_the_network_is_refused_when_sending():
    channel = make_channel(address="http://169.254.169.254/latest/")
    tell(channel.owner)
    assert not copy_send(copies_due(NOW)[0], now=NOW)
    channel.refresh_from_db()
    assert "not public" in channel.error or "address" in channel.error


def test_failing_channel_rests_while_others_go_on(settings):
    owner = make_user()
    broken = make_channel(owner)
    with receiver(settings) as server:
        settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.1/32"]
        good = hook(server, owner)
        for _ in range(3):
            tell(owner)
        for pk in copies_due(NOW):
            copy_send(pk, now=NOW)
    assert len(server.taken) == 3
    tried = OutboxMessage.objects.filter(channel=broken).order_by("pk").values_list("attempts", flat=True)
    assert sorted(tried) == [0, 0, 1], "one attempt shows that it fails; the others wait"
    assert copies_due(NOW + timedelta(seconds=4)) == []
    assert not OutboxMessage.objects.filter(channel=good).exclude(status=OutboxStatus.SENT).exists()


def test_dead_letters_are_told_of_and_sent_again(settings):
    owner = make_user()
    broken = make_channel(owner, name="Pager")
    tell(owner)
    now = NOW
    for _ in range(max_attempts(broken)):
        [pk] = copies_due(now)
        assert not copy_send(pk, now=now)
        broken.refresh_from_db()
        now = max(filter(None, (broken.retry_at, now)))
    assert statuses() == [OutboxStatus.FAILED]
    assert copies_due(now + 24 * HOUR) == []
    news = Notification.objects.get(kind=NoticeKind.CHANNEL_FAILING)
    assert (news.title, news.page) == ("You are not reached by Pager", f"/admin/agents/channel/{broken.pk}/change/")
    assert not news.copies.exists(), "not to the channel that fails"
    [failed] = OutboxMessage.objects.all()
    with pytest.raises(NotFound):
        copy_replay(copy=failed, by=make_user(), now=now)
    with receiver(settings) as server:
        settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.1/32", "93.184.216.34/32"]
        channel_update(channel=broken, address=server.address, by=owner, now=now)
        copy_replay(copy=failed, by=owner, now=now)
        assert copy_send(failed.pk, now=now)
        with pytest.raises(Invalid):
            copy_replay(copy=failed, by=owner, now=now)
    assert server.taken[0][0]["webhook-id"] == str(failed.public_id)
    assert [kind for kind, _, _ in told("channel.")] == ["channel.failing", "channel.changed"]
    assert [kind for kind, _, _ in told("delivery.")] == ["delivery.replayed"]


def test_discarded_dead_letter_leaves_its_notification():
    channel = make_channel()
    notice = tell(channel.owner)
    copy = OutboxMessage.objects.get()
    with pytest.raises(Invalid):
        copy_discard(copy=copy, by=channel.owner, now=NOW)
    OutboxMessage.objects.update(status=OutboxStatus.FAILED)
    copy_discard(copy=copy, by=channel.owner, now=NOW)
    assert (OutboxMessage.objects.count(), Notification.objects.get()) == (0, notice)


def test_receiver_that_is_gone_switches_its_channel_off(settings):
    with receiver(settings, 410) as server:
        channel = hook(server)
        tell(channel.owner)
        copy_send(copies_due(NOW)[0], now=NOW)
    channel.refresh_from_db()
    assert (channel.enabled, statuses()) == (False, [OutboxStatus.FAILED])
    assert "switched off" in Notification.objects.get(kind=NoticeKind.CHANNEL_FAILING).body


def test_error_in_a_sender_fails_its_message_alone(monkeypatch):
    channel = make_channel()
    tell(channel.owner)
    monkeypatch.setattr(outbox, "send_webhook", lambda *a, **k: 1 // 0)
    assert not copy_send(copies_due(NOW)[0], now=NOW)
    channel.refresh_from_db()
    assert channel.error == "The message could not be sent: ZeroDivisionError."


# --- What a channel gets, and when ---


def test_every_kind_of_notification_has_a_group():
    assert set(GROUPS) == set(NoticeKind)


@pytest.mark.parametrize(
    ("kind", "copies"), [(NoticeKind.RUN_STOPPED, 1), (NoticeKind.RUN_FINDINGS, 1), (NoticeKind.RUN_COMPLETED, 0)]
)
def test_failure_is_news_and_success_only_if_asked_for(kind, copies):
    channel = make_channel()
    tell(channel.owner, kind)
    assert OutboxMessage.objects.count() == copies
    channel_update(channel=channel, choices={"successes": "now", "failures": "off"}, by=channel.owner, now=NOW)
    tell(channel.owner, NoticeKind.RUN_COMPLETED)
    tell(channel.owner, NoticeKind.RUN_STOPPED)
    assert OutboxMessage.objects.count() == copies + 1


def test_quiet_hours_put_off_all_but_what_always_comes(settings):
    night = {"zone": "Europe/Paris", "quiet_from": time(22), "quiet_until": time(7)}
    with receiver(settings) as server:
        channel = hook(server, **night, choices={News.DECISIONS: NewsChoice.ALWAYS})
        late = datetime(2026, 7, 1, 21, 30, tzinfo=UTC)  # 23:30 in Paris
        tell(channel.owner, now=late)
        tell(channel.owner, NoticeKind.APPROVAL_WAITING, now=late)
        sent = [copy_send(pk, now=late) for pk in copies_due(late)]
        assert sent == [False, True]
        morning = datetime(2026, 7, 2, 5, 0, tzinfo=UTC)  # 07:00 in Paris
        assert copies_due(morning - timedelta(minutes=1)) == []
        assert [copy_send(pk, now=morning) for pk in copies_due(morning)] == [True]
    assert len(server.taken) == 2
    assert OutboxMessage.objects.filter(attempts=1).count() == 2, "waiting is no attempt"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-28T21:30+00:00", "2026-03-29T05:00+00:00"),  # clocks are set forward in this night
        ("2026-10-24T21:30+00:00", "2026-10-25T06:00+00:00"),  # and back in this one
        ("2026-07-01T12:00+00:00", None),
    ],
)
def test_quiet_hours_end_by_the_clock_of_the_zone(now, expected):
    end = quiet_end(time(22), time(7), "Europe/Paris", datetime.fromisoformat(now))
    assert end == (datetime.fromisoformat(expected) if expected else None)
    assert quiet_end(None, None, "Europe/Paris", NOW) is None


def test_quiet_hours_without_a_minute_between_them_end_in_two_days():
    assert quiet_end(time(0), time(23, 59, 59), "UTC", NOW) - NOW <= timedelta(days=2)


@pytest.mark.django_db(transaction=True)
def test_copy_that_cannot_be_read_is_put_off_and_the_others_are_sent(settings):
    with receiver(settings) as server:
        broken, fine = hook(server), hook(server)
        tell(broken.owner)
        tell(fine.owner)
        Channel.objects.filter(pk=broken.pk).update(zone="Nowhere/Unknown", quiet_from=time(0), quiet_until=time(12))
        mailer = Mailer()
        assert mailer.start(NOW) == 2
        mailer.join()
    assert sorted(statuses()) == ["pending", "sent"]
    assert OutboxMessage.objects.get(channel=broken).due_at > NOW


def test_what_waits_for_a_receiver_that_is_gone_is_kept_and_sent_again_when_it_is_back(settings):
    with receiver(settings, status=410) as server:
        channel = hook(server)
        tell(channel.owner)
        tell(channel.owner)
        later, first = OutboxMessage.objects.order_by("-pk")
        OutboxMessage.objects.filter(pk=later.pk).update(due_at=NOW + timedelta(hours=9))
        copy_send(first.pk, now=NOW)
    assert statuses() == ["failed", "failed"]
    with pytest.raises(Invalid, match="switch it on"):
        copy_replay(copy=OutboxMessage.objects.get(pk=later.pk), by=None, now=NOW)
    with receiver(settings) as server:
        channel = channel_update(
            channel=Channel.objects.get(pk=channel.pk), by=None, now=NOW, address=server.address, enabled=True
        )
        copy_replay(copy=OutboxMessage.objects.get(pk=later.pk), by=None, now=NOW)
        copy_send(later.pk, now=NOW)
    assert statuses() == ["failed", "sent"]


def test_digest_is_due_at_its_hour_in_the_zone():
    moment = datetime(2026, 7, 1, 6, 0, tzinfo=UTC)  # 08:00 in Paris
    assert next_digest(time(8), "Europe/Paris", moment - timedelta(seconds=1)) == moment
    assert next_digest(time(8), "Europe/Paris", moment) == moment + timedelta(days=1)


def test_digest_is_one_message_with_everything_since_the_last(settings):
    with receiver(settings) as server:
        channel = hook(server, choices={News.FAILURES: NewsChoice.DIGEST})
        for number in range(3):
            tell(channel.owner, now=NOW + number * HOUR)
        assert copies_due(NOW + 12 * HOUR) == []
        due = OutboxMessage.objects.first().due_at
        [pk] = copies_due(due)
        assert copy_send(pk, now=due)
    [(_, body)] = server.taken
    assert json.loads(body)["type"] == "digest"
    assert len(json.loads(body)["data"]["notifications"]) == 3
    assert statuses() == [OutboxStatus.SENT] * 3


def test_notification_that_comes_late_to_a_digest_is_not_lost(settings, monkeypatch):
    with receiver(settings) as server:
        channel = hook(server, choices={News.FAILURES: NewsChoice.DIGEST})
        tell(channel.owner)
        due = OutboxMessage.objects.get().due_at
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(outbox, "_note_sent", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
            copy_send(copies_due(due)[0], now=due)
        tell(channel.owner)  # its transaction began before the digest
        later = due + outbox.CLAIMED_FOR
        for pk in copies_due(later):
            copy_send(pk, now=later)
    first, second = ((headers["webhook-id"], json.loads(body)["data"]) for headers, body in server.taken)
    assert first[0] != second[0], "the receiver would skip it under the old id"
    assert [len(data["notifications"]) for _, data in (first, second)] == [1, 2]


def test_failed_digest_is_dead_as_a_whole():
    channel = make_channel(choices={News.FAILURES: NewsChoice.DIGEST})
    for _ in range(2):
        tell(channel.owner)
    now = OutboxMessage.objects.first().due_at
    for _ in range(max_attempts(channel)):
        [pk] = copies_due(now)
        copy_send(pk, now=now)
        channel.refresh_from_db()
        now = channel.retry_at or now
    assert statuses() == [OutboxStatus.FAILED] * 2


# --- Settings of a channel ---


def test_address_is_encrypted_and_shown_without_its_token():
    owner = make_user()
    row = channel_create(owner=owner, kind="webhook", name="Hook", address=HOOK, by=owner, now=NOW)
    assert (address_of(row), row.shown_address) == (HOOK, "https://93.184.216.34/…")
    assert "s3cret" not in row.sealed_address
    assert told("channel.created") == [
        (
            "channel.created",
            f"user:{owner.pk}",
            {"channel_id": str(row.public_id), "owner_id": owner.pk, "channel_kind": "webhook"},
        )
    ]


def test_address_of_another_key_asks_to_be_entered_again(settings):
    channel = make_channel()
    settings.SECRET_KEY = "another" * 10
    trial = channel_test(channel=channel, by=channel.owner, now=NOW)
    assert (trial.ok, "Enter it again" in trial.text) == (False, True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "email"}, "e-mail"),
        ({"address": "http://169.254.169.254/"}, "address"),
        ({"address": "file:///etc/passwd"}, "address"),
        ({"address": ""}, "address"),
        ({"name": " \n"}, "name"),
        ({"choices": {"gossip": "now"}}, "gossip"),
        ({"choices": {"failures": "loud"}}, "loud"),
        ({"zone": "Mars/Olympus"}, "time zone"),
        ({"quiet_from": time(22)}, "set both"),
        ({"quiet_from": time(22), "quiet_until": time(22)}, "cannot end"),
        ({"quiet_from": time(0), "quiet_until": time(23, 59, 59)}, "whole minutes"),
        ({"failures": 0}, "no such setting"),
        ({"kind": "chat", "address": "json://127.0.0.1/"}, "must begin with"),
        ({"kind": "chat", "address": "mailto://me:pw@example.org"}, "must begin with"),
        ({"kind": "chat", "address": "slack://a/b/c?template=/etc/passwd"}, "options"),
    ],
)
def test_unusable_settings_are_refused(given, words):
    owner = make_user()
    with pytest.raises(Invalid, match=words):
        channel_create(owner=owner, by=owner, now=NOW, **{"kind": "webhook", "name": "Hook", "address": HOOK, **given})
    assert not Channel.objects.exists()


def test_missing_apprise_is_said_plainly(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(senders, "import_module", missing)
    owner = make_user()
    with pytest.raises(Invalid, match="install lqops\\[chat\\]"):
        channel_create(owner=owner, kind="chat", name="Team", address="slack://a/b/c", by=owner, now=NOW)
    chat = make_channel(owner, kind="chat", address="slack://a/b/c")
    assert channel_test(channel=chat, by=owner, now=NOW) == outbox.Trial(ok=False, text=NO_APPRISE)


def test_chat_service_gets_title_text_and_link(monkeypatch):
    sent = []

    class Log:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def getvalue(self):
            return "token-12345 is refused"

    class Fake:
        LogCapture = staticmethod(lambda **_: Log())

        class Apprise:
            works = True

            @staticmethod
            def instantiate(url):
                return SimpleNamespace(url=url)

            def add(self, service):
                sent.append(service)

            def notify(self, **message):
                sent.append(message)
                return self.works

    monkeypatch.setattr(senders, "import_module", lambda name: Fake)
    chat = make_channel(kind="chat", address="tgram://token-12345/99")
    assert channel_test(channel=chat, by=chat.owner, now=NOW).ok
    assert (sent[0].url, sent[0].overflow_mode) == ("tgram://token-12345/99", "split")
    assert sent[1]["title"] == "Test of a channel of lqops"
    assert "/admin/agents/channel/" in sent[1]["body"]
    Fake.Apprise.works = False
    trial = channel_test(channel=chat, by=chat.owner, now=NOW)
    assert trial.text == "The chat service did not take the message. *** is refused"


def test_only_its_owner_and_who_manages_profiles_change_a_channel():
    channel = make_channel()
    acts = (channel_update, channel_delete, channel_rotate_secret, channel_test)
    for act in acts:
        with pytest.raises(NotFound):
            act(channel=channel, by=make_user(), now=NOW)
    channel_update(channel=channel, name="Theirs", by=allowed("change_profile"), now=NOW)
    assert Channel.objects.get().name == "Theirs"


def test_switching_off_drops_what_waits_and_email_cannot_be_deleted(settings):
    settings.EMAIL_HOST = "mail.example.org"
    owner = make_user(email="a@example.org")
    tell(owner)
    channel = email_channel(owner.pk)
    assert statuses() == [OutboxStatus.PENDING]
    channel_update(channel=channel, enabled=False, by=owner, now=NOW)
    assert statuses() == []
    with pytest.raises(Invalid, match="switch it off"):
        channel_delete(channel=channel, by=owner, now=NOW)


def test_success_lets_a_resting_channel_go_on(settings):
    with receiver(settings) as server:
        channel = hook(server, failures=3, retry_at=NOW + HOUR, error="down")
        tell(channel.owner)
        assert copies_due(NOW) == []
        assert channel_test(channel=channel, by=channel.owner, now=NOW).ok
        assert len(copies_due(NOW)) == 1
    assert told("channel.tested")[0][2] == {"channel_id": str(channel.public_id), "ok": True}


def test_sender_refuses_without_mail_server_or_address(settings):
    message = senders.Message(id="1", type="test", title="t", text="", link="", at=NOW)
    with pytest.raises(NotSent, match="No mail server"):
        senders.send_email(message, to="a@example.org")
    settings.EMAIL_HOST = "mail.example.org"
    with pytest.raises(NotSent, match="no e-mail address"):
        senders.send_email(message, to="")
