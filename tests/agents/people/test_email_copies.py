"""E-mail copies of notifications, with a real mail server that accepts, refuses, hangs or is down."""

import socket
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.urls import reverse

from agents.enums import NoticeKind, OutboxStatus, Phase, Status, ToolIntent
from agents.exceptions import OpenTransaction
from agents.guard import guarded_tool_call
from agents.models import Channel, Notification, OutboxMessage
from agents.people import outbox
from agents.people.channels import email_channel
from agents.people.notifications import notification_create
from agents.people.outbox import CLAIMED_FOR, copies_due, copy_send, receipt_path
from agents.runner import run_session
from agents.types import Finished
from tests.factories import NOW, make_session, make_user
from tests.flows.processes import in_threads

from .mail_server import mail_server, name_server

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
ATTEMPTS = 5


def make_copy(*, title="Run halted: idle_timeout", body="3 calls, 0.01 USD.", email="ada@example.org", **session):
    owner = make_user(email=email)
    made = make_session(owner=owner, **session)
    notice = Notification.objects.create(
        owner=owner, session=made, kind=NoticeKind.RUN_STOPPED, title=title, body=body, created_at=NOW
    )
    channel = email_channel(owner.pk)
    return OutboxMessage.objects.create(notification=notice, channel=channel, due_at=NOW, created_at=NOW)


def state(copy):
    copy.refresh_from_db()
    return copy.status, copy.attempts


@pytest.fixture
def down(settings):
    """The settings name a port of this machine where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        name_server(settings, held.getsockname()[1])
        yield settings


def test_copy_has_title_counts_and_one_link(settings):
    settings.LQOPS_BASE_URL = "https://ops.example.org"
    settings.DEFAULT_FROM_EMAIL = "lqops <ops@example.org>"
    copy = make_copy()
    chain = copy.notification.session.chain
    Notification.objects.update(body=f"3 calls, 0.01 USD.\nReceipt: /receipts/{chain}/\nReceipt: /what/an/agent/wrote")
    with mail_server(settings) as server:
        assert copy_send(copy.pk, now=NOW)
    [mail] = server.taken
    assert (mail["Subject"], mail["To"]) == ("[lqops] Run halted: idle_timeout", "ada@example.org")
    assert mail["From"] == "lqops <ops@example.org>"
    assert mail["Message-ID"] == f"<{copy.public_id}@example.org>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content().split() == (
        "Run halted: idle_timeout 3 calls, 0.01 USD. Receipt: /what/an/agent/wrote "
        f"Open: https://ops.example.org/admin/agents/notification/go/{copy.notification.public_id}/".split()
    )
    assert state(copy) == (OutboxStatus.SENT, 1)
    assert (copy.sent_at, copy.error) == (NOW, "")


def test_link_leads_to_the_receipt_page():
    session = make_session()
    assert receipt_path(session) == reverse("audit:receipt", args=[session.chain])


def test_copy_is_sent_once(settings):
    copy = make_copy()
    with mail_server(settings) as server:
        sent = [copy_send(copy.pk, now=NOW + later) for later in (MINUTE * 0, MINUTE * 0, MINUTE * 60)]
    assert (sent, len(server.taken)) == ([True, False, False], 1)


def test_one_of_several_workers_sends_a_copy(settings):
    copy = make_copy()
    with mail_server(settings) as server:
        sent = in_threads(8, lambda _: copy_send(copy.pk, now=NOW))
    assert (sum(sent), len(server.taken)) == (1, 1)


@pytest.mark.parametrize(
    "title",
    ["Done\r\nBcc: all@example.org", "Done\nBcc: all@example.org\n\nbody", "Done\u2028\x00Bcc: all@example.org"],
)
def test_title_cannot_add_a_header(settings, title):
    copy = make_copy(title=title.replace("\x00", "\x01"))
    with mail_server(settings) as server:
        copy_send(copy.pk, now=NOW)
    [mail] = server.taken
    assert mail["Bcc"] is None
    assert mail["Subject"].startswith("[lqops] Done Bcc: all@example.org")
    assert set(mail.keys()) <= {
        "Content-Type", "MIME-Version", "Content-Transfer-Encoding", "Subject", "From", "To", "Date", "Message-ID",
        "Auto-Submitted",
    }  # fmt: skip


@pytest.mark.parametrize("email", ["ada@example.org\r\nBcc: all@example.org", "a@b.org, c@d.org"])
def test_invalid_address_gets_no_mail(settings, email):
    copy = make_copy(email=email)
    with mail_server(settings) as server:
        assert not copy_send(copy.pk, now=NOW)
    assert (server.taken, state(copy)) == ([], (OutboxStatus.PENDING, 1))


@pytest.mark.parametrize("manner", [{"silent": True}, {"refuses": True}])
def test_hanging_or_refusing_server_is_retried_later(settings, manner):
    copy = make_copy()
    with mail_server(settings, **manner) as server:
        assert not copy_send(copy.pk, now=NOW)
    assert (server.taken, state(copy)) == ([], (OutboxStatus.PENDING, 1))
    assert (copy.due_at, bool(copy.error)) == (NOW + MINUTE, True)


@pytest.mark.usefixtures("down")
def test_retry_delays_grow_until_five_attempts_failed():
    copy = make_copy()
    now, waited = NOW, []
    while state(copy)[0] == OutboxStatus.PENDING:
        assert not copy_send(copy.pk, now=copy.due_at - MINUTE / 60)  # not yet
        now = copy.due_at
        assert copies_due(now + MINUTE) == [copy.pk]
        assert not copy_send(copy.pk, now=now)
        copy.refresh_from_db()
        waited.append(copy.due_at - now)
    assert waited == [MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE, CLAIMED_FOR]
    assert state(copy) == (OutboxStatus.FAILED, ATTEMPTS)
    assert "refused" in copy.error.lower()
    assert copies_due(now + 24 * 60 * MINUTE) == []


def test_recovered_server_gets_the_copy(settings, down):
    copy = make_copy()
    copy_send(copy.pk, now=NOW)
    with mail_server(settings) as server:
        assert copy_send(copy.pk, now=NOW + MINUTE)
    assert (len(server.taken), state(copy), copy.error) == (1, (OutboxStatus.SENT, 2), "")


def test_no_transaction_is_open_while_sending(settings, monkeypatch):
    copy = make_copy()
    seen = []
    real = outbox.send_email

    def look(message, *, to):
        seen.append(connection.in_atomic_block)
        return real(message, to=to)

    monkeypatch.setattr(outbox, "send_email", look)
    with mail_server(settings):
        copy_send(copy.pk, now=NOW)
        with transaction.atomic(), pytest.raises(OpenTransaction):
            copy_send(copy.pk, now=NOW)
    assert seen == [False]


def test_copy_claimed_by_a_dead_worker_is_sent_by_another(settings, monkeypatch):
    copy = make_copy()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(outbox, "send_email", lambda message, to: (_ for _ in ()).throw(KeyboardInterrupt))
        copy_send(copy.pk, now=NOW)
    assert state(copy) == (OutboxStatus.PENDING, 1)
    with mail_server(settings) as server:
        assert not copy_send(copy.pk, now=NOW + CLAIMED_FOR - MINUTE)
        assert copies_due(NOW + CLAIMED_FOR) == [copy.pk]
        assert copy_send(copy.pk, now=NOW + CLAIMED_FOR)
    assert len(server.taken) == 1


def test_worker_lost_after_sending_repeats_the_same_message_id(settings, monkeypatch):
    copy = make_copy()
    with mail_server(settings) as server:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(outbox, "_note_sent", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
            copy_send(copy.pk, now=NOW)
        copy_send(copy.pk, now=NOW + CLAIMED_FOR)
    first, second = server.taken
    assert first["Message-ID"] == second["Message-ID"]


def test_copy_lost_at_its_last_attempt_fails():
    copy = make_copy()
    OutboxMessage.objects.update(attempts=ATTEMPTS)
    assert not copy_send(copy.pk, now=NOW)
    assert state(copy) == (OutboxStatus.FAILED, ATTEMPTS)


def test_user_who_turned_copies_off_gets_none(settings):
    copy = make_copy()
    Channel.objects.update(enabled=False)
    with mail_server(settings) as server:
        assert not copy_send(copy.pk, now=NOW)
    assert (server.taken, OutboxMessage.objects.count(), Notification.objects.count()) == ([], 0, 1)


def test_copies_are_due_oldest_first():
    copies = [make_copy() for _ in range(3)]
    assert copies_due(NOW - MINUTE) == []
    assert copies_due(NOW, limit=2) == [copies[0].pk, copies[1].pk]


@pytest.mark.usefixtures("down")
def test_run_completes_while_the_mail_server_is_down():
    session = make_session(Status.QUEUED, owner=make_user(email="ada@example.org"), current_phase=Phase.DELIVERY)

    def engine(held):
        guarded_tool_call(held, ToolIntent.NOTIFY, {"title": "Done"})
        return Finished()

    assert run_session(session.pk, engine, owner="worker:1")
    copy = OutboxMessage.objects.get()
    assert not copy_send(copy.pk, now=copy.due_at)
    session.refresh_from_db()
    assert (session.status, Notification.objects.get().title) == (Status.COMPLETED, "Done")


def test_written_copy_can_be_sent_at_once(settings):
    with mail_server(settings) as server:
        notification_create(
            owner_id=make_user(email="ada@example.org").pk, kind=NoticeKind.AGENT, title="Done", body="", now=NOW
        )
        assert copy_send(OutboxMessage.objects.get().pk, now=NOW)
    assert len(server.taken) == 1
