"""Runs that a person looks at before they tell: the wait, the yes, the no, and the silence."""

from datetime import timedelta

import pytest
from django.conf import settings

from agents.conf import clock
from agents.enums import ApprovalStatus, Status, TerminalReason, WaitingOn
from agents.models import Approval, Document, Notification, Playbook
from agents.sessions.approvals import approval_approve, approval_reject, approvals_expire
from tests.agents.walk.scene import LEASE, PHASES, model, phases, reply, run

pytestmark = pytest.mark.django_db
OWN = ("run_findings", "run_completed")  # what the run tells itself
FLAGGED = reply(privilege_concerns=["marked secret"])


@pytest.fixture
def flagged(scene, approver):
    """A run that has flagged a concern and waits."""
    with model(FLAGGED):
        session = run(scene.of_document(review_flagged=True))
    assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.APPROVAL)
    assert phases(session) == PHASES
    assert Notification.objects.filter(session=session, kind__in=OWN).count() == 0
    return session


def told(session):
    return list(session.notifications.filter(kind__in=OWN).values_list("title", flat=True))


def test_a_yes_lets_the_run_tell(flagged, approver):
    ticket = Approval.objects.get(session=flagged)
    assert "marked secret" not in str(ticket.arguments)
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=clock())
    flagged.refresh_from_db()
    assert flagged.status == Status.QUEUED
    with model() as asked:
        run(flagged)
    [title] = told(flagged)
    assert (flagged.status, title) == (Status.COMPLETED, ticket.arguments["title"])
    assert title.startswith("Run completed: 2 findings, 1 concern, lease.txt by Leases")
    assert asked.requests == []
    ticket.refresh_from_db()
    assert ticket.consumed_at is not None


def test_a_yes_holds_although_things_were_renamed_meanwhile(flagged, approver):
    ticket = Approval.objects.get(session=flagged)
    Document.objects.update(name="renamed.txt")
    Playbook.objects.update(name="Renamed")
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=clock())
    flagged.refresh_from_db()
    run(flagged)
    assert told(flagged) == [ticket.arguments["title"]]


def test_a_name_with_a_masked_secret_is_left_out_of_the_notice(scene):
    document = scene.document()
    Document.objects.filter(pk=document.pk).update(name="[redacted:secret:ab12].txt")
    with model():
        session = run(scene.session(document=str(document.public_id)))
    assert told(session) == ["Run completed: 2 findings"]


def test_a_notice_that_cannot_be_written_fails_the_run_and_is_told(flagged, approver, monkeypatch):
    def fail(**_):
        raise OSError("no room")

    ticket = Approval.objects.get(session=flagged)
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=clock())
    flagged.refresh_from_db()
    monkeypatch.setattr("agents.guard.intents.notification_create", fail)
    run(flagged)
    assert (flagged.status, flagged.terminal_reason) == (Status.FAILED, TerminalReason.WORKER_ERROR)
    assert flagged.notifications.filter(kind="run_stopped").count() == 1


def test_a_no_ends_the_run_without_a_word(flagged, approver):
    ticket = Approval.objects.get(session=flagged)
    approval_reject(ticket.pk, by=approver, digest=ticket.digest, now=clock(), note="not this one")
    flagged.refresh_from_db()
    run(flagged)
    assert (flagged.status, flagged.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED)
    assert told(flagged) == []
    assert flagged.findings.count() == 3


def test_silence_ends_the_run_without_a_word(flagged):
    approvals_expire(clock() + settings.LQOPS_APPROVAL_LIFETIME + timedelta(seconds=1))
    flagged.refresh_from_db()
    assert flagged.status == Status.QUEUED
    run(flagged)
    assert (flagged.status, told(flagged)) == (Status.COMPLETED, [])
    assert Approval.objects.get(session=flagged).status == ApprovalStatus.EXPIRED


def test_where_nobody_may_decide_nothing_is_told(scene):
    with model(FLAGGED):
        session = run(scene.of_document(review_flagged=True))
    assert (session.status, told(session), Approval.objects.count()) == (Status.COMPLETED, [], 0)


@pytest.mark.parametrize(("text", "params"), [(reply(), {"review_flagged": True}), (FLAGGED, {})])
def test_without_a_concern_or_without_the_setting_nobody_is_asked(scene, approver, text, params):
    with model(text):
        session = run(scene.of_document(LEASE, **params))
    assert (session.status, len(told(session))) == (Status.COMPLETED, 1)
    assert not Approval.objects.exists()
