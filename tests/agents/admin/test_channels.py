"""Pages of channels and deliveries, and the links of messages that lead to where they are settled."""

import pytest

from agents.conf import clock
from agents.enums import NoticeKind, OutboxStatus
from agents.models import Approval, Channel, Finding, Notification, OutboxMessage
from agents.people.channels import channel_secret, email_channel
from agents.people.notifications import notification_create
from tests.agents.ask.rows import make_question
from tests.factories import make_channel, make_session, make_user

from .rows import act_page, make_approval, page, sign_in, text_of

pytestmark = pytest.mark.django_db

HOOK = "https://93.184.216.34/hook?token=s3cret"  # needs no lookup
FORM = {
    "kind": "webhook",
    "name": "Team",
    "address": HOOK,
    "enabled": "on",
    "zone": "Europe/Paris",
    "quiet_from": "22:00",
    "quiet_until": "07:00",
    "digest_at": "08:30",
    **dict.fromkeys(
        [f"news_{name}" for name in ("decisions", "failures", "findings", "messages", "money", "installation")], "now"
    ),
    "news_successes": "digest",
}


def test_new_webhook_shows_its_secret_once(client):
    user = sign_in(client, "viewer")
    response = client.post(page(Channel, "add"), FORM)
    row = Channel.objects.get(kind="webhook")
    assert (row.owner, row.zone, row.choices) == (user, "Europe/Paris", {"successes": "digest"})
    assert channel_secret(row) in text_of(response)
    assert "no-store" in response["Cache-Control"]
    shown = text_of(client.get(page(Channel, "change", row.pk)))
    assert "s3cret" not in shown
    assert "whsec_" not in shown


def test_change_without_an_address_keeps_it(client):
    row = make_channel(sign_in(client, "viewer"))
    before = row.sealed_address
    client.post(page(Channel, "change", row.pk), {**FORM, "address": "", "name": "Other", "news_failures": "off"})
    row.refresh_from_db()
    assert (row.name, row.sealed_address) == ("Other", before)
    assert row.choices == {"failures": "off", "successes": "digest"}


def test_refused_address_is_named_at_its_field(client):
    sign_in(client, "viewer")
    response = client.post(page(Channel, "add"), {**FORM, "address": "http://127.0.0.1/hook"})
    assert not Channel.objects.exists()
    assert "address" in response.context["form"].errors


def test_list_begins_with_ones_own_email_and_hides_others(client):
    user = sign_in(client, "viewer")
    make_channel(name="Somebody else's")
    shown = text_of(client.get(page(Channel, "changelist")))
    assert Channel.objects.filter(owner=user, kind="email").count() == 1
    assert "Somebody else" not in shown
    assert "Somebody else" in text_of(client.get(page(Channel, "changelist"), {"whose": "everybody"}))


def test_test_says_plainly_that_nothing_arrived(client):
    row = make_channel(sign_in(client, "viewer"))
    response = client.post(act_page(row, "test"), {"confirmed": "1"}, follow=True)
    assert "The test message did not arrive" in text_of(response)


def test_somebody_elses_channel_is_changed_by_admins_alone(client):
    row = make_channel()
    sign_in(client, "operator")
    assert client.post(page(Channel, "change", row.pk), FORM).status_code == 403
    client.post(act_page(row, "delete"), {"confirmed": "1"})
    assert Channel.objects.filter(pk=row.pk).exists()
    sign_in(client, "admin")
    client.post(act_page(row, "delete"), {"confirmed": "1"})
    assert not Channel.objects.filter(pk=row.pk).exists()


def test_dead_letters_are_sent_again_from_their_list(client):
    user = sign_in(client, "viewer")
    notice = Notification.objects.create(owner=user, title="A run failed")
    row = OutboxMessage.objects.create(channel=make_channel(user), notification=notice, status="failed", error="down")
    shown = text_of(client.get(page(OutboxMessage, "changelist")))
    assert "A run failed" in shown
    assert "down" in shown
    client.post(act_page(row, "replay"), {"confirmed": "1"})
    row.refresh_from_db()
    assert row.status == OutboxStatus.PENDING


def test_email_channel_says_where_mail_goes(client, settings):
    user = sign_in(client, "viewer", email="ada@example.org")
    row = email_channel(user.pk)
    assert "No mail server is configured" in text_of(client.get(page(Channel, "change", row.pk)))
    settings.EMAIL_HOST = "mail.example.org"
    assert "Goes to ada@example.org" in text_of(client.get(page(Channel, "change", row.pk)))


# --- Links in messages ---


def go(client, notice):
    return client.get(f"/admin/agents/notification/go/{notice.public_id}/")


def told(owner, kind, **more):
    return notification_create(owner_id=owner.pk, kind=kind, title="t", body="", now=clock(), **more)


def test_link_leads_to_the_page_where_it_is_settled(client):
    user = sign_in(client, "approver")
    session = make_session(owner=user)
    approval, question = make_approval(session), make_question(session)
    finding = Finding.objects.create(session=session, title="finding")
    about = {"session_id": session.pk}
    run = f"/admin/agents/agentsession/{session.pk}/change/"
    expected = [
        (told(user, NoticeKind.APPROVAL_WAITING, **about), page(Approval, "change", approval.pk)),
        (told(user, NoticeKind.QUESTION_WAITING, **about), page(type(question), "change", question.pk)),
        (told(user, NoticeKind.RUN_STOPPED, **about), run),
        (told(user, NoticeKind.RUN_FINDINGS, **about), f"/admin/agents/finding/?q={session.chain}"),
        (told(user, NoticeKind.FINDING, finding_id=finding.pk, **about), page(Finding, "change", finding.pk)),
        (told(user, NoticeKind.FAULT, page="/admin/health/"), "/admin/health/"),
    ]
    for notice, where in expected:
        assert go(client, notice).url == where, notice.kind
        assert client.get(where).status_code == 200, where
        notice.refresh_from_db()
        assert notice.read_at is not None
    bare = told(user, NoticeKind.AGENT)
    assert go(client, bare).url == page(Notification, "change", bare.pk)


def test_link_of_a_decided_approval_leads_to_its_run(client):
    user = sign_in(client, "approver")
    session = make_session(owner=user)
    make_approval(session, status="approved")
    notice = told(user, NoticeKind.APPROVAL_WAITING, session_id=session.pk)
    assert go(client, notice).url == f"/admin/agents/agentsession/{session.pk}/change/"


def test_link_of_somebody_else_marks_nothing_as_read(client):
    sign_in(client, "operator")
    notice = told(make_user(), NoticeKind.FAULT, page="/admin/health/")
    assert go(client, notice).url == page(Notification, "change", notice.pk)
    notice.refresh_from_db()
    assert notice.read_at is None
