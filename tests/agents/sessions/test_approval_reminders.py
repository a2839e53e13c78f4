"""Approvers are reminded of a question that still waits: twice in its life, everybody who may decide, nobody else."""

from datetime import timedelta
from uuid import uuid4

import pytest

from agents.enums import ApprovalStatus, NoticeKind, Status, WaitingOn
from agents.models import Approval, Notification
from agents.sessions import approvals, lifecycle, questions
from agents.sessions.approvals import approvals_expire
from agents.sessions.halts import session_halt
from agents.sessions.questions import approvals_remind
from audit.models import AuditEvent
from tests.agents.people.rows import allowed
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db


def after(percent):
    return NOW + timedelta(hours=percent)


@pytest.fixture
def approval():
    """A pending ticket with a life of a hundred hours: an hour is a percent."""
    session = make_session(Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    return Approval.objects.create(
        session=session, call_key="turn:1", intent="run_skill", action="send_letter", version="1", phase="turn",
        level="RESTRICTED", description="send_letter", arguments={"to": "a canary"}, digest="d" * 64, signature="s",
        created_at=NOW, expires_at=after(100),
    )  # fmt: skip


def told():
    return list(Notification.objects.order_by("pk").values_list("owner_id", flat=True))


def test_reminders_come_after_a_quarter_and_after_three_quarters_and_no_more(approval):
    approver = allowed("resolve_approval")
    sent = [approvals_remind(after(percent)) for percent in (0, 24, 25, 26, 74, 75, 76, 99)]
    assert sent == [0, 0, 1, 0, 0, 1, 0, 0]
    assert told() == [approver.pk, approver.pk]
    approval.refresh_from_db()
    assert approval.reminders_sent == 2
    rows = AuditEvent.objects.filter(kind="approval.reminded").order_by("seq")
    assert [(row.chain, row.actor, row.details["reminder"]) for row in rows] == [
        (approval.session.chain, "system", 1),
        (approval.session.chain, "system", 2),
    ]
    assert rows[0].details["approval_id"] == str(approval.public_id)


def test_after_a_long_absence_one_reminder_stands_for_both(approval):
    approver = allowed("resolve_approval")
    assert [approvals_remind(after(80)), approvals_remind(after(90))] == [1, 0]
    assert told() == [approver.pk]


def test_everybody_who_may_decide_is_told_and_nobody_else(approval):
    expected = [allowed("resolve_approval"), make_user(is_superuser=True)]
    allowed("change_approval")
    gone = allowed("resolve_approval")
    gone.is_active = False
    gone.save()
    approvals_remind(after(30))
    assert told() == [user.pk for user in expected]
    notice = Notification.objects.first()
    assert (notice.kind, notice.session, notice.read_at) == (NoticeKind.APPROVAL_WAITING, approval.session, None)
    assert notice.title == "A call waits for approval: send_letter"
    until = f"{approval.expires_at:%-d %B, %H:%M} UTC"
    assert notice.body == f"Level RESTRICTED. Without a decision by {until} it expires unused."
    assert notice.page == f"/admin/agents/approval/by-id/{approval.public_id}/"


def test_what_the_call_holds_is_not_told(approval):
    allowed("resolve_approval")
    approvals_remind(after(30))
    assert "canary" not in str(list(Notification.objects.values()))


@pytest.mark.parametrize("status", sorted({*ApprovalStatus} - {ApprovalStatus.PENDING}))
def test_what_is_decided_is_not_reminded_of(approval, status):
    allowed("resolve_approval")
    Approval.objects.update(status=status)
    assert (approvals_remind(after(30)), told()) == (0, [])


def test_what_has_expired_is_not_reminded_of(approval):
    allowed("resolve_approval")
    assert approvals_remind(after(100)) == 0
    approvals_expire(after(100))
    approval.refresh_from_db()
    assert approval.status == ApprovalStatus.EXPIRED


def test_a_halt_cancels_what_waits_and_its_reminders(approval):
    allowed("resolve_approval")
    session_halt(approval.session_id, by=None, reason="", now=after(1))
    approval.refresh_from_db()
    assert (approval.status, approvals_remind(after(30))) == (ApprovalStatus.CANCELLED, 0)
    assert not AuditEvent.objects.filter(kind="approval.reminded").exists()


def test_of_two_that_look_at_once_one_reminds(approval, monkeypatch):
    approver = allowed("resolve_approval")
    real = lifecycle.session_lock

    def slower(pk):
        monkeypatch.setattr(lifecycle, "session_lock", real)
        assert approvals_remind(after(30)) == 1  # the other one was first
        return real(pk)

    monkeypatch.setattr(lifecycle, "session_lock", slower)
    assert approvals_remind(after(30)) == 0
    assert told() == [approver.pk]


def failing_for(row, real):
    """The function, but for this ticket, for which it fails."""

    def fail_or_go_on(approval, *more, **named):
        if approval.pk == row.pk:
            raise RuntimeError("no")
        return real(approval, *more, **named)

    return fail_or_go_on


@pytest.mark.parametrize(
    ("module", "name", "sweep", "percent"),
    [(questions, "notify_approvers", approvals_remind, 25), (approvals, "_record", approvals_expire, 100)],
)
def test_a_ticket_that_fails_keeps_no_other_waiting(approval, monkeypatch, caplog, module, name, sweep, percent):
    allowed("resolve_approval")
    other = Approval.objects.get(pk=approval.pk)
    other.pk, other.public_id, other.call_key = None, uuid4(), "turn:2"
    other.save(force_insert=True)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, failing_for(approval, getattr(module, name)))
        assert sweep(after(percent)) == 1
    assert "it is tried again" in caplog.text
    assert sweep(after(percent)) == 1
