"""Approve always, for callable skills: what a yes for the rest of a session covers, and what it never does."""

import json
from datetime import timedelta

import pytest
from django.conf import settings

from agents.admin.approvals import EditedForm, StandingForm
from agents.enums import Outcome, Phase, Risk, Status, ToolIntent
from agents.exceptions import Invalid, NotAllowed
from agents.guard import guarded_tool_call
from agents.guard.calls import fitting
from agents.models import Approval, SkillSetting, StandingApproval, ToolCall
from agents.sessions.approvals import approval_approve_edited, edited, standing_create
from audit.models import AuditEvent
from tests.factories import NOW, make_agent, make_session

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sample_skills")]
WAITS = Outcome.APPROVAL_PENDING


@pytest.fixture
def session():
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="semi"))


@pytest.fixture
def ask(session):
    def call(skill, key, *, now=NOW, risk=None, **arguments):
        params = {"skill": skill, "arguments": arguments}
        return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key, risk=risk, now=now).outcome

    return call


@pytest.fixture
def always(approver):
    """Says yes to the call that waits, and to its like."""

    def approve(**more):
        ticket = Approval.objects.get(status="pending")
        return standing_create(ticket.pk, by=approver, digest=ticket.digest, now=NOW, **more)

    return approve


def test_second_identical_call_is_not_queued_and_another_argument_is(ask, always):
    assert ask("act", "a:1", what="it") == WAITS
    standing = always()

    assert ask("act", "a:1", what="it") == Outcome.SUCCESS
    assert ask("act", "a:2", what="it") == Outcome.SUCCESS
    assert ask("act", "a:3", what="more") == WAITS
    ticket = Approval.objects.get(call_key="a:2")
    assert (ticket.standing, ticket.resolved_by, ticket.consumed_at) == (standing, standing.created_by, NOW)
    kinds = AuditEvent.objects.filter(subject=f"approval:{ticket.public_id}").order_by("pk")
    assert [row.kind.partition(".")[2] for row in kinds] == ["requested", "approved"]
    waited = AuditEvent.objects.filter(details__outcome=WAITS).order_by("pk")
    assert [row.details["approval_id"] for row in waited] == [
        str(Approval.objects.get(call_key=key).public_id) for key in ("a:1", "a:3")
    ]


def test_free_argument_of_a_skill_may_differ_and_the_others_may_not(ask, always):
    ask("deliver", "a:1", place="https://shop.example/orders", text="one")
    always(free_arguments=("text",))

    assert StandingApproval.objects.get().fixed_arguments == {
        "skill": "deliver",
        "arguments": {"place": "https://shop.example/orders"},
    }
    assert ask("deliver", "a:2", place="https://shop.example/orders", text="two") == Outcome.SUCCESS
    assert ask("deliver", "a:3", place="https://evil.example/orders", text="two") == WAITS
    assert ask("deliver", "a:4", place="https://shop.example/orders", text="to eve@evil.example") == WAITS


@pytest.mark.parametrize("place", ["https://shop.example/", "intranet"])
def test_free_address_is_never_covered(ask, always, place):
    """By what it looks like when the yes is given; by what the skill declares when it would be used."""
    ask("deliver", "a:1", place=place)
    if place == "intranet":
        always(free_arguments=("place",))
        assert ask("deliver", "a:2", place="elsewhere") == WAITS
    else:
        with pytest.raises(NotAllowed, match="address"):
            always(free_arguments=("place",))


@pytest.mark.parametrize("free", ["arguments", "skill", "nothing"])
def test_only_an_argument_of_the_skill_can_be_left_free(ask, always, free):
    ask("act", "a:1", what="it")
    with pytest.raises(Invalid, match=f"no argument {free}"):
        always(free_arguments=(free,))
    assert not StandingApproval.objects.exists()


def test_privileged_skill_is_approved_one_by_one(ask, always):
    assert ask("reign", "a:1") == WAITS
    with pytest.raises(NotAllowed, match="one by one"):
        always()


def test_call_of_high_risk_is_approved_one_by_one(ask, always):
    assert ask("shell", "a:1", risk=Risk.HIGH, command="rm -rf /") == WAITS
    with pytest.raises(NotAllowed, match="one by one"):
        always()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("seen", "now", "outcome"),
    [
        (Risk.LOW, Risk.LOW, Outcome.SUCCESS),
        (Risk.LOW, Risk.MEDIUM, WAITS),
        (Risk.LOW, Risk.HIGH, WAITS),
        (Risk.MEDIUM, Risk.LOW, Outcome.SUCCESS),
        (Risk.MEDIUM, Risk.MEDIUM, Outcome.SUCCESS),
        (Risk.MEDIUM, Risk.HIGH, WAITS),
        (None, None, Outcome.SUCCESS),
        (None, Risk.LOW, WAITS),
    ],
)
def test_yes_covers_no_call_of_a_higher_grade_than_the_one_that_was_seen(ask, always, seen, now, outcome):
    ask("shell", "a:1", risk=seen, command="ls")
    always(free_arguments=("command",))
    assert ask("shell", "a:2", risk=now, command="another") == outcome
    assert StandingApproval.objects.get().uses_left == (19 if outcome == Outcome.SUCCESS else 20)


def test_yes_covers_no_call_of_a_higher_level_than_the_one_that_was_seen(ask, always, session):
    session.agent.mode = "manual"
    session.agent.save()
    ask("look", "a:1", place="here")
    always()
    assert ask("look", "a:2", place="here") == Outcome.SUCCESS
    SkillSetting.objects.create(name="look", level="RESTRICTED")
    assert ask("look", "a:3", place="here") == WAITS


def test_skill_that_became_privileged_meanwhile_is_not_covered(ask, always):
    ask("act", "a:1", what="it")
    always()
    SkillSetting.objects.create(name="act", level="PRIVILEGED")
    assert ask("act", "a:2", what="it") == WAITS


def test_yes_is_used_up_and_expires(ask, always):
    ask("act", "a:1", what="it")
    with pytest.raises(NotAllowed, match="1 to 20"):
        always(uses=21)
    always(uses=2)

    assert [ask("act", f"a:{number}", what="it") for number in (2, 3, 4)] == [Outcome.SUCCESS, Outcome.SUCCESS, WAITS]
    StandingApproval.objects.update(uses_left=5)
    late = NOW + settings.LQOPS_APPROVAL_LIFETIME + timedelta(seconds=1)
    assert ask("act", "a:5", what="it", now=late) == WAITS


def test_another_session_is_asked_again(ask, always):
    ask("act", "a:1", what="it")
    always()
    other = make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="semi"))
    params = {"skill": "act", "arguments": {"what": "it"}}
    assert guarded_tool_call(other, ToolIntent.RUN_SKILL, params, key="a:2", now=NOW).outcome == WAITS


def test_page_offers_the_arguments_of_the_skill(ask, approver):
    ask("deliver", "a:1", place="intranet", text="one")
    form = StandingForm(approval=Approval.objects.get())
    assert form.fields["free_arguments"].choices == [("place", "place"), ("text", "text")]


def test_edit_changes_what_a_skill_is_given_and_never_which_skill(ask, approver):
    ask("act", "a:1", what="it")
    ticket = Approval.objects.get()
    decide = {"by": approver, "digest": ticket.digest, "fits": fitting, "now": NOW}
    with pytest.raises(Invalid, match="skill must stay act"):
        approval_approve_edited(ticket.pk, arguments={"skill": "look", "arguments": {"what": "it"}}, **decide)
    approval_approve_edited(ticket.pk, arguments={"skill": "act", "arguments": {"what": "less"}}, **decide)

    assert ask("act", "a:1", what="it") == Outcome.SUCCESS
    made = ToolCall.objects.get()
    assert (made.name, made.arguments, made.result) == (
        "act",
        {"skill": "act", "arguments": {"what": "less"}},
        "did less",
    )


def test_edit_with_which_the_skill_could_not_be_called_is_refused_and_the_call_still_waits(ask, approver):
    ask("paint", "a:1", colour="red")
    ticket = Approval.objects.get()
    impossible = {"skill": "paint", "arguments": {"colour": "loud"}}

    with pytest.raises(Invalid, match=r"cannot be made with these arguments: .*colour"):
        approval_approve_edited(
            ticket.pk, by=approver, digest=ticket.digest, arguments=impossible, fits=fitting, now=NOW
        )

    ticket.refresh_from_db()
    assert (ticket.status, ticket.arguments["arguments"]) == ("pending", {"colour": "red"})
    form = EditedForm({"digest": ticket.digest, "arguments": json.dumps(impossible), "note": ""}, approval=ticket)
    assert "cannot be made with these arguments" in form.errors["arguments"][0]


def test_edit_for_a_skill_that_was_switched_off_meanwhile_is_refused(ask, approver):
    ask("act", "a:1", what="it")
    SkillSetting.objects.create(name="act", enabled=False)
    ticket = Approval.objects.get()

    with pytest.raises(Invalid, match="not found or disabled"):
        edited(ticket, {"skill": "act", "arguments": {"what": "less"}}, fits=fitting)
