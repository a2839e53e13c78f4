"""send_email: one mail to one plain address, after a person allowed it."""

from smtplib import SMTPDataError, SMTPRecipientsRefused, SMTPServerDisconnected

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend

from agents.builtin_skills.outside import send_email
from agents.enums import ApprovalStatus, Outcome, Phase, Status, ToolIntent
from agents.exceptions import Invalid, OutcomeUnknown
from agents.guard import guarded_tool_call
from agents.guard.tools import BadParams
from agents.models import Approval, ToolCall
from agents.skills.skill import BadArguments
from tests.agents.skills.test_skill import CONTEXT
from tests.factories import NOW, make_agent, make_session
from tests.table import every_row


@pytest.fixture(autouse=True)
def _mail_server(settings):
    settings.EMAIL_HOST = "mail.example.org"
    settings.DEFAULT_FROM_EMAIL = "lqops <robot@example.org>"


def send(**given):
    return send_email.run(CONTEXT, **{"to": "someone@example.com", "subject": "Hello", "body": "Text\n", **given})


def test_mail_goes_to_one_address_as_plain_text():
    told = send()

    [sent] = mail.outbox
    assert (sent.to, sent.cc, sent.bcc, sent.from_email) == (
        ["someone@example.com"],
        [],
        [],
        "lqops <robot@example.org>",
    )
    assert (sent.subject, sent.body) == ("Hello", "Text\n")
    assert sent.extra_headers["Auto-Submitted"] == "auto-generated"
    assert told == {"sent_to": "someone@example.com", "message_id": sent.extra_headers["Message-ID"]}
    assert sent.message()["Message-ID"] == told["message_id"]


def test_repeated_call_has_the_same_message_id():
    assert send()["message_id"] == send()["message_id"]
    assert send()["message_id"].endswith("@example.org>")


@every_row(
    "to",
    [
        "",
        "someone",
        "someone@",
        "someone@host",
        "a@example.com,b@example.com",
        "a@example.com; b@example.com",
        "a@example.com\nBcc: b@example.com",
        "Some One <a@example.com>",
        "a@b@example.com",
        "a@[127.0.0.1]",
        '"a b"@example.com',
        "https://example.com/",
        "mailto:a@example.com",
    ],
)
def test_ambiguous_address_is_refused(to):
    with pytest.raises(Invalid, match="one plain address"):
        send(to=to)
    assert mail.outbox == []


def test_subject_is_one_line():
    send(subject="Hello\r\nBcc: b@example.com\u2028there\u202e")

    [sent] = mail.outbox
    assert sent.subject == "Hello Bcc: b@example.com there"
    assert sent.recipients() == ["someone@example.com"]


@every_row("given", [{"subject": ""}, {"body": ""}, {"subject": "x" * 161}, {"to": ["a@example.com"]}])
def test_arguments_are_bounded(given):
    with pytest.raises(BadArguments):
        send(**given)


def test_no_mail_without_a_mail_server(settings):
    settings.EMAIL_HOST = ""

    with pytest.raises(Invalid, match="no mail server is configured"):
        send()
    assert mail.outbox == []


@pytest.mark.django_db
def test_no_approval_without_a_mail_server(settings):
    settings.EMAIL_HOST = ""
    session = make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="semi"))
    params = {"skill": "send_email", "arguments": {"to": "someone@example.com", "subject": "Hello", "body": "Text"}}

    with pytest.raises(BadParams, match=r"no mail server is configured \(LQOPS_SMTP_HOST\)"):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key="step:1:0", now=NOW)
    assert not Approval.objects.exists()


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (SMTPDataError(554, b"no"), Invalid, "was not sent.*SMTPDataError"),
        (SMTPRecipientsRefused({"someone@example.com": (550, b"no")}), Invalid, "was not sent"),
        (ConnectionRefusedError(), Invalid, "was not sent"),
        (SMTPServerDisconnected("gone"), OutcomeUnknown, "may have been sent"),
        (TimeoutError(), OutcomeUnknown, "may have been sent"),
    ],
)
def test_refused_mail_differs_from_unknown_outcome(monkeypatch, error, raised, said):
    def fail(self, messages):
        raise error

    monkeypatch.setattr(EmailBackend, "send_messages", fail)

    with pytest.raises(raised, match=said):
        send()


@pytest.mark.django_db(transaction=True)
def test_mail_is_sent_once_after_approval(approver):
    session = make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="semi"))
    params = {
        "skill": "send_email",
        "arguments": {"to": "someone@example.com", "subject": "Hello", "body": "Text"},
    }

    def ask():
        return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key="step:1:0", now=NOW)

    assert ask().outcome == Outcome.APPROVAL_PENDING
    assert mail.outbox == []
    Approval.objects.update(status=ApprovalStatus.APPROVED, resolved_at=NOW, resolved_by=approver)
    assert ask().ok
    assert ask().replayed
    assert len(mail.outbox) == 1
    assert ToolCall.objects.get().repeatable is False
