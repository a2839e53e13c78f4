"""Approval tickets: one digest, one use, decided by somebody who may."""

from datetime import timedelta
from decimal import Decimal

import pytest

from agents.enums import (
    ApprovalMode,
    ApprovalStatus,
    Level,
    NoticeKind,
    Outcome,
    Risk,
    Status,
    TerminalReason,
    ToolIntent,
    WaitingOn,
)
from agents.exceptions import CostCapReached, Invalid, InvalidTransition, NotAllowed, TicketRefused
from agents.guard import guarded_tool_call
from agents.guard.calls import fitting
from agents.guard.intents import override, request_of
from agents.guard.tools import Tool
from agents.models import Agent, AgentEvent, AgentSession, ApiKey, Approval, Notification, StandingApproval
from agents.people.access import acting_by
from agents.sessions import approvals
from agents.sessions.approvals import (
    approval_approve,
    approval_approve_edited,
    approval_reject,
    approvals_expire,
    standing_create,
)
from agents.sessions.halts import session_halt
from agents.types import Capability
from audit.kinds import usernames
from audit.models import AuditEvent
from tests.agents.conftest import Probe, ask, tool
from tests.factories import NOW, make_agent, make_price, make_session, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def letter():
    """A RESTRICTED tool behind run_skill."""
    with tool(probe=Probe(), level=Level.RESTRICTED) as probe:
        yield probe


def send(session, *, key="turn:1", now=NOW, **arguments):
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, arguments or {"to": "Ada"}, key=key, now=now)


def approval_kinds(session):
    rows = AuditEvent.objects.filter(chain=session.chain, kind__startswith="approval.").order_by("seq")
    return [row.kind for row in rows]


def test_a_restricted_call_waits_and_runs_once_after_a_yes(approver, letter):
    session = make_session()
    asked = send(session)
    assert (asked.outcome, letter.calls) == (Outcome.APPROVAL_PENDING, [])
    assert send(session).data == asked.data  # asking again does not ask twice
    ticket = Approval.objects.get()
    assert (ticket.resolved_by, ticket.resolved_at) == (None, None)
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW, note="fine")
    assert send(session).ok
    assert send(session).replayed
    assert len(letter.calls) == 1
    ticket.refresh_from_db()
    assert (ticket.consumed_at, ticket.resolved_by, ticket.note) == (NOW, approver, "fine")
    assert approval_kinds(session) == ["approval.requested", "approval.approved", "approval.consumed"]


@pytest.mark.parametrize("waiting_on", [WaitingOn.INPUT, WaitingOn.OPERATOR])
def test_a_run_that_waits_for_something_else_is_not_woken_by_a_yes(approver, letter, waiting_on):
    session = make_session()
    send(session)
    AgentSession.objects.update(status=Status.WAITING, waiting_on=waiting_on)
    ticket = Approval.objects.get()

    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)

    session.refresh_from_db()
    assert (session.status, session.waiting_on) == (Status.WAITING, waiting_on)


def test_those_who_may_decide_are_told_when_a_call_waits_and_nobody_else_is(approver, letter):
    session = make_session()
    send(session)
    notice = Notification.objects.get()
    assert (notice.owner, notice.kind, notice.session) == (approver, NoticeKind.APPROVAL_WAITING, session)
    assert "Ada" not in notice.title + notice.body


def unread_about_approvals(session):
    rows = Notification.objects.filter(session=session, kind=NoticeKind.APPROVAL_WAITING, read_at__isnull=True)
    return rows.count()


def test_notifications_of_decided_approvals_are_read_when_none_of_the_run_is_pending(approver, letter):
    session = make_session()
    send(session)
    send(session, key="turn:2", to="Bob")
    first, second = Approval.objects.order_by("pk")
    assert unread_about_approvals(session) == 2
    approval_approve(first.pk, by=approver, digest=first.digest, now=NOW)
    assert unread_about_approvals(session) == 2
    approval_reject(second.pk, by=approver, digest=second.digest, now=NOW)
    assert unread_about_approvals(session) == 0


@pytest.mark.parametrize("end", ["expires", "is halted"])
def test_notifications_of_approvals_that_nobody_decided_are_read(approver, letter, end):
    session = make_session()
    send(session)
    assert unread_about_approvals(session) == 1
    if end == "expires":
        assert approvals_expire(Approval.objects.get().expires_at) == 1
    else:
        AgentSession.objects.filter(pk=session.pk).update(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
        session_halt(session.pk, by=session.owner, reason="no", now=NOW)
    assert unread_about_approvals(session) == 0


def test_requests_and_decisions_are_activity_of_the_session(approver, letter):
    session = make_session()
    send(session)
    first = Approval.objects.get()
    approval_approve(first.pk, by=approver, digest=first.digest, now=NOW)
    send(session)
    send(session, key="turn:2", to="Grace")
    second = Approval.objects.get(status=ApprovalStatus.PENDING)
    approval_reject(second.pk, by=approver, digest=second.digest, now=NOW)
    send(session, key="turn:3", to="Eve")
    third = Approval.objects.get(status=ApprovalStatus.PENDING)
    approvals_expire(NOW + timedelta(hours=24))

    expected = []
    for ticket, decision in ((first, "approved"), (second, "rejected"), (third, "expired")):
        facts = {"approval_id": str(ticket.public_id), "action": ticket.action, "level": Level.RESTRICTED}
        expected += [("approval:requested", facts), ("approval:resolved", facts | {"decision": decision})]
    assert list(AgentEvent.objects.order_by("pk").values_list("kind", "data")) == expected


def test_a_decision_names_the_api_key_that_was_used_if_any(approver, letter):
    session = make_session()
    for key, by in (("turn:1", approver), ("turn:2", acting_by(ApiKey(user=approver, prefix="ab12")))):
        send(session, key=key)
        ticket = Approval.objects.get(status=ApprovalStatus.PENDING)
        approval_approve(ticket.pk, by=by, digest=ticket.digest, now=NOW)
    first, second = AuditEvent.objects.filter(kind="approval.approved").order_by("seq")
    assert first.actor == f"user:{approver.pk}"
    assert second.actor == f"user:{approver.pk}:key:ab12"
    assert usernames([first.actor, second.actor, "user:99", "system"]) == {
        first.actor: approver.username,
        second.actor: f"{approver.username}, by key ab12",
    }


def test_a_no_is_told_to_the_model_and_holds_for_the_rest_of_the_session(approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    approval_reject(ticket.pk, by=approver, digest=ticket.digest, now=NOW, note="not to Ada")
    denied = send(session)
    again = send(session, key="turn:2")
    assert (denied.outcome, again.outcome) == (Outcome.DENIED, Outcome.DENIED)
    assert "not to Ada" in denied.error
    assert "not to Ada" in again.error
    assert Approval.objects.count() == 1
    assert send(session, key="turn:3", to="Grace").outcome == Outcome.APPROVAL_PENDING
    assert letter.calls == []


def test_a_no_without_a_note_is_told_as_denied(approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    approval_reject(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    told = "A person did not allow this call: denied"
    assert (send(session).error, send(session, key="turn:2").error) == (told, told)


@pytest.mark.parametrize("arguments", [{}, {"too": "Ada"}, {"to": 5}, {"to": "Ada", "cc": "Eve"}])
def test_an_edit_changes_values_and_neither_names_nor_kinds(approver, letter, arguments):
    session = make_session()
    send(session, to="everybody@example.org")
    ticket = Approval.objects.get()
    with pytest.raises(Invalid, match="An edit changes the values"):
        approval_approve_edited(
            ticket.pk, by=approver, digest=ticket.digest, arguments=arguments, fits=fitting, now=NOW
        )
    ticket.refresh_from_db()
    assert ticket.status == "pending"


def test_an_approver_may_change_the_arguments_and_what_was_asked_is_kept(approver, letter):
    session = make_session()
    send(session, to="everybody@example.org")
    ticket = Approval.objects.get()
    asked = ticket.digest
    approval_approve_edited(ticket.pk, by=approver, digest=asked, arguments={"to": "Ada"}, fits=fitting, now=NOW)
    assert send(session, to="everybody@example.org").ok
    assert send(session, to="everybody@example.org").replayed
    [(_, params)] = letter.calls
    ticket.refresh_from_db()
    assert params == {"to": "Ada"}
    assert (ticket.original_arguments, ticket.original_digest) == ({"to": "everybody@example.org"}, asked)
    assert ticket.digest != asked
    assert "approval.edited" in approval_kinds(session)


def test_a_ticket_does_not_fit_a_call_that_changed_after_the_yes(approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    AgentSession.objects.update(current_phase="analysis")
    refused = send(session)
    assert (refused.outcome, refused.detail) == (Outcome.DENIED, "ticket_refused")
    with tool(probe=letter, level=Level.RESTRICTED, version="2"):
        AgentSession.objects.update(current_phase="turn")
        assert send(session).detail == "ticket_refused"
    Approval.objects.update(arguments={"to": "Mallory"})
    assert send(session).detail == "ticket_refused"
    assert letter.calls == []


def test_a_decision_must_show_the_digest_that_was_seen(approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    with pytest.raises(TicketRefused):
        approval_approve(ticket.pk, by=approver, digest="0" * 64, now=NOW)
    ticket.refresh_from_db()
    assert ticket.status == ApprovalStatus.PENDING


def test_only_who_holds_the_permission_decides(approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    for decide in (approval_approve, approval_reject):
        with pytest.raises(NotAllowed, match="resolve_approval"):
            decide(ticket.pk, by=make_user(), digest=ticket.digest, now=NOW)
    with pytest.raises(NotAllowed):
        approval_approve(ticket.pk, by=make_user(is_superuser=True, is_active=False), digest=ticket.digest, now=NOW)


def test_a_call_is_denied_when_nobody_could_approve_it(letter):
    session = make_session()
    denied = send(session)
    assert (denied.outcome, denied.detail) == (Outcome.DENIED, "no_approver")
    assert not Approval.objects.exists()


def test_what_is_decided_stays_decided(approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    for decide in (approval_approve, approval_reject):
        with pytest.raises(InvalidTransition):
            decide(ticket.pk, by=approver, digest=ticket.digest, now=NOW)


def test_four_eyes_keeps_owner_and_editor_from_approving_a_privileged_call(approver, settings):
    settings.LQOPS_FOUR_EYES = True
    owner, editor = make_user(is_superuser=True), make_user(is_superuser=True)
    session = make_session(owner=owner, agent=make_agent(owner=owner, edited_by=editor))
    with tool(probe=Probe(), level=Level.PRIVILEGED) as probe:
        send(session)
        ticket = Approval.objects.get()
        for interested in (owner, editor):
            with pytest.raises(NotAllowed, match="PRIVILEGED"):
                approval_approve(ticket.pk, by=interested, digest=ticket.digest, now=NOW)
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        assert send(session).ok
    assert len(probe.calls) == 1


@pytest.mark.parametrize("decided", [False, True])
def test_a_call_whose_level_rose_meanwhile_is_asked_about_again(approver, settings, decided):
    settings.LQOPS_FOUR_EYES = True
    owner = make_user(is_superuser=True)
    session = make_session(owner=owner)
    with tool(probe=Probe(), level=Level.RESTRICTED):
        send(session)
    first = Approval.objects.get()
    if decided:
        approval_approve(first.pk, by=owner, digest=first.digest, now=NOW)
    with tool(probe=Probe(), level=Level.PRIVILEGED) as probe:
        assert send(session).outcome == Outcome.APPROVAL_PENDING
        first.refresh_from_db()
        second = Approval.objects.get(status=ApprovalStatus.PENDING)
        assert (first.status, second.level) == (ApprovalStatus.CANCELLED, Level.PRIVILEGED)
        with pytest.raises(NotAllowed, match="PRIVILEGED"):
            approval_approve(second.pk, by=owner, digest=second.digest, now=NOW)
        approval_approve(second.pk, by=approver, digest=second.digest, now=NOW)
        assert send(session).ok
    assert len(probe.calls) == 1
    cancelled = AuditEvent.objects.get(chain=session.chain, kind="approval.cancelled")
    assert cancelled.details["cause"] == "level_raised"


def test_a_yes_holds_when_the_level_is_lowered(approver):
    session = make_session()
    with tool(probe=Probe(), level=Level.PRIVILEGED):
        send(session)
    ticket = Approval.objects.get()
    approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    with tool(probe=Probe(), level=Level.RESTRICTED):
        assert send(session).ok


def test_an_owner_may_always_say_no(settings):
    settings.LQOPS_FOUR_EYES = True
    owner = make_user(is_superuser=True)
    session = make_session(owner=owner)
    with tool(probe=Probe(), level=Level.PRIVILEGED):
        send(session)
    ticket = Approval.objects.get()
    assert approval_reject(ticket.pk, by=owner, digest=ticket.digest, now=NOW).status == ApprovalStatus.REJECTED


@pytest.mark.parametrize("decided", [False, True])
def test_a_ticket_that_is_not_used_in_time_expires_and_counts_as_a_no(decided, approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    if decided:
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    late = NOW + timedelta(hours=24)
    assert send(session, now=late).outcome == (Outcome.DENIED if decided else Outcome.APPROVAL_PENDING)
    assert approvals_expire(late) == 1
    assert approvals_expire(late) == 0
    assert approval_kinds(session)[-1] == "approval.expired"
    assert send(session, now=late).outcome == Outcome.DENIED
    with pytest.raises(InvalidTransition):
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=late)
    assert letter.calls == []


def test_a_pending_ticket_past_its_time_cannot_be_approved_even_before_the_sweep(approver, letter):
    session = make_session()
    send(session)
    ticket = Approval.objects.get()
    with pytest.raises(InvalidTransition):
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW + timedelta(hours=24))


def test_halting_the_session_cancels_what_it_asked_for(approver, letter):
    session = make_session()
    send(session)
    AgentSession.objects.update(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    session_halt(session.pk, by=approver, reason="enough", now=NOW)
    assert Approval.objects.get().status == ApprovalStatus.CANCELLED
    assert "approval.cancelled" in approval_kinds(session)


def test_the_session_goes_on_when_its_last_open_question_is_answered(approver, letter):
    session = make_session()
    send(session)
    send(session, key="turn:2", to="Grace")
    AgentSession.objects.update(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    first, second = Approval.objects.order_by("pk")
    approval_approve(first.pk, by=approver, digest=first.digest, now=NOW)
    session.refresh_from_db()
    assert session.status == Status.WAITING
    approval_reject(second.pk, by=approver, digest=second.digest, now=NOW)
    session.refresh_from_db()
    assert session.status == Status.QUEUED


def test_the_session_goes_on_when_its_last_open_question_expires(approver, letter):
    session = make_session()
    send(session)
    AgentSession.objects.update(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    approvals_expire(NOW + timedelta(hours=24))
    session.refresh_from_db()
    assert session.status == Status.QUEUED


def test_brakes_are_asked_again_when_the_ticket_is_used(approver):
    make_price("test-model")
    session = make_session()
    risky = Capability("risky", level=Level.RESTRICTED)
    probe = Probe()
    with override({ToolIntent.RUN_SKILL: Tool(probe, risky, remote=True, request=request_of)}):
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="k").outcome == Outcome.APPROVAL_PENDING
        session.refresh_from_db()
        assert session.cost_reserved_usd == 0  # waiting holds no money
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        AgentSession.objects.update(max_cost_usd=Decimal("0.001"))
        with pytest.raises(CostCapReached):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="k", now=NOW)
    session.refresh_from_db()
    assert session.terminal_reason == TerminalReason.COST_CAP_REACHED
    assert Approval.objects.get().consumed_at is None
    assert probe.calls == []


@pytest.mark.parametrize(
    ("mode", "level", "asks"),
    [
        (ApprovalMode.AUTO, Level.PRIVILEGED, True),
        (ApprovalMode.SEMI, Level.CONTROLLED, False),
        (ApprovalMode.MANUAL, Level.CONTROLLED, True),
    ],
)
def test_the_agent_s_mode_decides_who_is_asked(mode, level, asks, approver):
    session = make_session(agent=make_agent(mode=mode))
    with tool(probe=Probe(), level=level):
        assert (send(session).outcome == Outcome.APPROVAL_PENDING) == asks


def test_controlled_calls_ask_when_the_agent_was_deleted_and_not_without_one(approver):
    with tool(probe=Probe(), level=Level.CONTROLLED):
        assert send(make_session()).ok
        session = make_session(agent=make_agent(mode=ApprovalMode.AUTO))
        Agent.objects.all().delete()
        assert send(session).outcome == Outcome.APPROVAL_PENDING


def test_high_risk_asks_a_person_even_in_auto(approver):
    session = make_session(agent=make_agent(mode=ApprovalMode.AUTO))
    with tool(probe=Probe(), level=Level.SAFE):
        asked = guarded_tool_call(session, ToolIntent.RUN_SKILL, {}, risk=Risk.HIGH, simulation="It deletes all.")
    assert asked.outcome == Outcome.APPROVAL_PENDING
    ticket = Approval.objects.get()
    assert (ticket.risk_level, ticket.simulation) == (Risk.HIGH, "It deletes all.")


def test_a_flood_of_asks_is_stopped(approver, letter, monkeypatch):
    assert approvals.MAX_PENDING == 20
    monkeypatch.setattr(approvals, "MAX_PENDING", 4)
    session = make_session()
    for number in range(4):
        assert send(session, key=f"turn:{number}", to=f"reader {number}").outcome == Outcome.APPROVAL_PENDING
    flooded = send(session, key="one-more", to="everybody")
    assert (flooded.outcome, flooded.detail) == (Outcome.DENIED, "too_many_pending")
    assert Approval.objects.count() == 4


def standing(session, approver, **more):
    ticket = Approval.objects.get(status=ApprovalStatus.PENDING)
    return standing_create(ticket.pk, by=approver, digest=ticket.digest, now=NOW, **more)


def test_a_standing_approval_decides_the_like_and_nothing_else(approver, letter):
    session = make_session()
    send(session, to="Ada", text="one")
    standing(session, approver, free_arguments=("text",), uses=1)
    assert send(session, to="Ada", text="one").ok
    assert send(session, key="turn:2", to="Ada", text="two").ok
    assert send(session, key="turn:3", to="Ada", text="three").outcome == Outcome.APPROVAL_PENDING  # used up
    assert send(session, key="turn:4", to="Eve", text="two").outcome == Outcome.APPROVAL_PENDING
    assert len(letter.calls) == 2
    tickets = Approval.objects.filter(standing__isnull=False).order_by("pk")
    assert [(ticket.call_key, ticket.resolved_by, ticket.resolved_at) for ticket in tickets] == [
        ("turn:1", approver, NOW),
        ("turn:2", approver, NOW),
    ]
    created = AuditEvent.objects.get(kind="approval.standing_created")
    assert (created.details["action"], created.details["uses"]) == (tickets[0].action, 1)
    assert StandingApproval.objects.get().uses_left == 0


@pytest.mark.parametrize("ended", ["permission", "account"])
def test_a_standing_approval_covers_nothing_once_its_maker_may_not_decide(approver, letter, ended):
    make_user(is_superuser=True)  # who can be asked instead
    session = make_session()
    send(session, to="Ada")
    standing(session, approver)
    assert send(session, to="Ada").ok
    if ended == "permission":
        approver.user_permissions.clear()
    else:
        approver.is_active = False
        approver.save()
    assert send(session, key="turn:2", to="Ada").outcome == Outcome.APPROVAL_PENDING
    assert len(letter.calls) == 1


def test_a_free_argument_that_holds_an_address_asks_again(approver, letter):
    session = make_session()
    send(session, to="Ada", text="hello")
    standing(session, approver, free_arguments=("text",))
    smuggled = send(session, key="turn:2", to="Ada", text="see https://evil.example/?q=1")
    assert smuggled.outcome == Outcome.APPROVAL_PENDING


def test_a_standing_approval_cannot_be_given_for_privileged_or_free_addresses_or_for_ever(approver):
    session = make_session()
    with tool(probe=Probe(), level=Level.PRIVILEGED):
        send(session, to="Ada")
    with pytest.raises(NotAllowed, match="one by one"):
        standing(session, approver)
    Approval.objects.update(level=Level.RESTRICTED)
    with pytest.raises(NotAllowed, match="1 to 20"):
        standing(session, approver, uses=21)
    Approval.objects.update(arguments={"to": "ada@example.org"})
    with pytest.raises(NotAllowed, match="address"):
        standing(session, approver, free_arguments=("to",))


def test_a_privileged_call_never_uses_a_standing_approval(approver):
    session = make_session()
    with tool(probe=Probe(), level=Level.RESTRICTED):
        send(session, to="Ada")
        standing(session, approver)
    with tool(probe=Probe(), level=Level.PRIVILEGED):
        assert send(session, key="turn:2", to="Ada").outcome == Outcome.APPROVAL_PENDING
