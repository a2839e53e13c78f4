"""Notifications, and the e-mail copies written with them."""

import pytest
from django.db import transaction

from agents.accounts import email_copies_set
from agents.enums import NoticeKind, OutboxStatus, Phase, TerminalReason, ToolIntent
from agents.exceptions import NotFound
from agents.guard import guarded_tool_call
from agents.models import Channel, Finding, Notification, OutboxMessage, Profile
from agents.people.channels import channel_update
from agents.people.notifications import BODY_CHARS, TITLE_CHARS, notification_create, notification_mark_read
from agents.sessions.ending import notify_end
from tests.factories import NOW, make_channel, make_session, make_user

from .rows import allowed, told

pytestmark = pytest.mark.django_db


@pytest.fixture
def _mail(settings):
    settings.EMAIL_HOST = "mail.example.org"


def tell(owner, **more):
    given = {"kind": NoticeKind.RUN_STOPPED, "title": "Run halted", "body": "3 calls.", "now": NOW, **more}
    return notification_create(owner_id=owner.pk, **given)


def test_notification_is_one_row_without_a_mail_server():
    notice = tell(make_user(email="a@example.org"))
    assert (notice.title, notice.body, notice.kind, notice.created_at) == ("Run halted", "3 calls.", "run_stopped", NOW)
    assert not OutboxMessage.objects.exists()


@pytest.mark.usefixtures("_mail")
def test_copy_is_written_with_its_notification():
    notice = tell(make_user(email="a@example.org"))
    copy = OutboxMessage.objects.get()
    assert (copy.notification, copy.status, copy.attempts, copy.due_at) == (notice, OutboxStatus.PENDING, 0, NOW)


@pytest.mark.usefixtures("_mail")
@pytest.mark.django_db(transaction=True)
def test_rollback_removes_notification_and_copy():
    owner = make_user(email="a@example.org")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tell(owner)
        raise ZeroDivisionError
    assert [model.objects.count() for model in (Notification, OutboxMessage)] == [0, 0]


@pytest.mark.usefixtures("_mail")
@pytest.mark.parametrize("user", [{}, {"email": "a@example.org", "is_active": False}])
def test_no_copy_without_address_or_for_inactive_users(user):
    tell(make_user(**user))
    assert not OutboxMessage.objects.exists()


@pytest.mark.usefixtures("_mail")
def test_no_copy_for_users_who_want_none():
    owner = make_user(email="a@example.org")
    email_copies_set(user=owner, enabled=False, by=owner, now=NOW)
    tell(owner)
    assert not OutboxMessage.objects.exists()
    email_copies_set(user=owner, enabled=True, by=None, now=NOW)
    tell(owner)
    assert OutboxMessage.objects.count() == 1
    channel = {"channel_id": str(Channel.objects.get().public_id), "owner_id": owner.pk, "fields": ["enabled"]}
    assert told("channel.") == [
        ("channel.changed", f"user:{owner.pk}", {**channel, "enabled": False}),
        ("channel.changed", "system", {**channel, "enabled": True}),
    ]


@pytest.mark.usefixtures("_mail")
def test_user_without_profile_gets_no_copy():
    owner = make_user(email="a@example.org")
    Profile.objects.all().delete()
    tell(owner)
    assert (Notification.objects.count(), OutboxMessage.objects.count()) == (1, 0)


def test_text_is_cut_and_masked_on_entry():
    secret = "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 5
    notice = tell(make_user(), title=f"One\r\nBcc: x {secret}", body=f"{secret} " + "x" * 2 * BODY_CHARS)
    assert notice.title.startswith("One Bcc: x [redacted")
    assert secret not in notice.title + notice.body
    assert (len(notice.title) <= TITLE_CHARS, len(notice.body)) == (True, BODY_CHARS)
    assert tell(make_user(), title="\r\n").title == "(untitled)"


def test_reading_twice_is_recorded_once():
    notice = tell(make_user())
    for _ in range(2):
        row = notification_mark_read(notification=notice, by=notice.owner, now=NOW)
    assert row.read_at == NOW
    assert told("notification.") == [
        ("notification.read", f"user:{notice.owner_id}", {"notification_id": str(notice.public_id)})
    ]


def test_only_owner_or_permitted_staff_reads_a_notification():
    notice = tell(make_user())
    with pytest.raises(NotFound):
        notification_mark_read(notification=notice, by=make_user(), now=NOW)
    notice.refresh_from_db()
    assert notice.read_at is None
    assert notification_mark_read(notification=notice, by=allowed("change_notification"), now=NOW).read_at == NOW


@pytest.mark.usefixtures("_mail")
@pytest.mark.django_db(transaction=True)
def test_notify_call_creates_a_notification_of_its_session():
    session = make_session(owner=make_user(email="a@example.org"), current_phase=Phase.DELIVERY)
    result = guarded_tool_call(session, ToolIntent.NOTIFY, {"title": "2 findings", "body": "1 document"}, now=NOW)
    notice = Notification.objects.get()
    assert result.data == {"notification_id": str(notice.public_id)}
    assert (notice.kind, notice.owner, notice.session, notice.title) == ("agent", session.owner, session, "2 findings")
    assert OutboxMessage.objects.get().notification == notice


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("result", "finding", "kind"),
    [
        ("", False, "agent"),
        ("ok", False, "run_completed"),
        ("ok", True, "run_findings"),
        ("findings", True, "run_findings"),
        ("partial", False, "run_stopped"),
        ("failed", False, "run_stopped"),
    ],
)
def test_run_with_a_result_tells_of_that(result, finding, kind):
    session = make_session(current_phase=Phase.DELIVERY, metadata={"result": result} if result else {})
    if finding:
        Finding.objects.create(session=session, title="Ethics review: 1 flagged")
    guarded_tool_call(session, ToolIntent.NOTIFY, {"title": "t"}, now=NOW)
    assert Notification.objects.get().kind == kind


def test_run_that_completed_quietly_is_told_of_if_asked_for():
    owner = make_user()
    channel = make_channel(owner)
    session = make_session("completed", owner=owner, terminal_reason="completed", completed_at=NOW)
    given = {"reason": TerminalReason.COMPLETED, "unread": None, "now": NOW}
    notify_end(session, **given, is_notified=False)
    assert not Notification.objects.exists()
    channel_update(channel=channel, choices={"successes": "now"}, by=owner, now=NOW)
    notify_end(session, **given, is_notified=False)
    notify_end(session, **given, is_notified=True)
    assert [notice.kind for notice in Notification.objects.all()] == ["run_completed"]
    assert OutboxMessage.objects.count() == 1
