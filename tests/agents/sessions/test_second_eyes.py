"""The second pair of eyes: whom a call binds, how many must say yes, and that every surface asks the same function."""

import io
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from agents.ask.entry import ask
from agents.ask.proposals import confirm, propose
from agents.conf import clock
from agents.enums import ApprovalStatus, Level, Mode, NoticeKind, Outcome, Status, ToolIntent, WaitingOn
from agents.exceptions import InvalidTransition, LqopsError, NotAllowed, NotFound, TicketRefused
from agents.guard import guarded_tool_call
from agents.guard.calls import fitting
from agents.knowledge.playbooks import skill_switch
from agents.models import (
    AgentEvent,
    AgentSession,
    Approval,
    ApprovalVote,
    Delegation,
    Notification,
    SkillSetting,
    StandingApproval,
)
from agents.people.access import actor_of, person_of
from agents.people.delegations import delegation_create, delegation_end
from agents.policy.run_spec import RunSpec
from agents.roster.loops import loop_revive
from agents.sessions import questions
from agents.sessions.approvals import (
    approval_approve,
    approval_approve_edited,
    approval_reject,
    approvals_expire,
    standing_create,
)
from agents.sessions.halts import session_halt
from agents.sessions.questions import approvals_escalate, approvals_remind
from agents.sessions.reads import started_by
from agents.sessions.second_eyes import bound_people, tally, with_decisions
from agents.triggers.firing import trigger_fire
from agents.triggers.inputs import input_retry, inputs_fire
from audit.models import AuditEvent
from tests.agents.admin.rows import make_approval, make_playbook, make_skill
from tests.agents.api.conftest import client_of
from tests.agents.ask.rows import make_question
from tests.agents.autonomy import make_autonomous, make_going
from tests.agents.conftest import Probe, tool
from tests.factories import NOW, make_agent, make_session, make_trigger, make_unread_input, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _four_eyes(settings):
    settings.LQOPS_FOUR_EYES = True


def decider(**fields):
    """A member of staff who sees every page and may decide."""
    user = make_user(is_staff=True, **fields)
    user.groups.add(Group.objects.get(name="approver"))
    return user


def onlooker(**fields):
    """A member of staff who sees every page and decides nothing in their own right."""
    user = make_user(is_staff=True, **fields)
    user.groups.add(Group.objects.get(name="viewer"))
    return user


def waiting(**fields):
    return make_session(Status.WAITING, waiting_on=WaitingOn.APPROVAL, **fields)


def call(level=Level.PRIVILEGED, session=None, **fields):
    return make_approval(session or waiting(), level=level, **fields)


def named(owner, delegate):
    """A delegation, as a row: whatever its people may."""
    until = clock() + timedelta(days=1)
    return Delegation.objects.create(owner=owner, delegate=delegate, until=until, created_at=clock())


def say_yes(approval, by, **more):
    return approval_approve(approval.pk, by=by, digest=approval.digest, now=clock(), **more)


# --- The abuses, each of which fails on each surface ---


def by_parent(bad):
    parent = make_session(metadata={"asked_by": actor_of(bad)})
    grandchild_of = make_session(metadata={"asked_by": started_by(parent)})
    return call(session=waiting(metadata={"asked_by": started_by(grandchild_of)}))


def by_skill(bad):
    make_skill(changed_by=bad)
    return call(session=waiting(params={"skill": "summarise"}))


def by_setting(bad):
    SkillSetting.objects.create(name="send_letter", updated_by=bad)
    return call()


def by_answer(bad):
    session = waiting()
    make_question(session, status="answered", answered_by=bad, answered_at=clock(), answer="Pay me.")
    return call(session=session)


def second_time(bad):
    approval = call()
    say_yes(approval, bad)
    return approval


def after_the_delegate(bad):
    """Somebody has said yes in this person's right."""
    approval, other = call(), onlooker()
    named(bad, other)
    say_yes(approval, other)
    return approval


def for_bound(bad):
    bad.groups.set([Group.objects.get(name="viewer")])
    owner = decider()
    named(owner, bad)
    return call(session=waiting(owner=owner))


def bound_delegate(bad):
    bad.groups.set([Group.objects.get(name="viewer")])
    named(decider(), bad)
    return call(session=waiting(owner=bad))


def last_in_a_chain(bad):
    """The one in the middle has no right of their own to hand on."""
    bad.groups.set([Group.objects.get(name="viewer")])
    between = onlooker()
    named(decider(), between)
    named(between, bad)
    return call()


def in_a_circle(bad):
    bad.groups.set([Group.objects.get(name="viewer")])
    other = onlooker()
    named(bad, other)
    named(other, bad)
    return call()


def delegate_of_a_voter(bad):
    bad.groups.set([Group.objects.get(name="viewer")])
    approval, away = call(), decider()
    say_yes(approval, away)
    named(away, bad)
    return approval


ABUSES = {
    "owner": (lambda bad: call(session=waiting(owner=bad)), "you own the run"),
    "starter": (lambda bad: call(session=waiting(metadata={"asked_by": actor_of(bad)})), "you started the run"),
    "starter by key": (
        lambda bad: call(session=waiting(metadata={"asked_by": f"{actor_of(bad)}:key:ab12"})),
        "you started the run",
    ),
    "sender": (
        lambda bad: call(session=waiting(mode=Mode.CHAT, metadata={"asked_by": actor_of(bad)})),
        "you sent the message",
    ),
    "who answered": (by_answer, "you answered a question of the run"),
    "starter of the run that led to it": (by_parent, "you started the run"),
    "editor of the agent": (
        lambda bad: call(session=waiting(agent=make_agent(edited_by=bad))),
        "you last changed the agent",
    ),
    "editor of the trigger": (
        lambda bad: call(session=waiting(trigger=make_trigger(edited_by=bad))),
        "you last changed the trigger",
    ),
    "editor of the skill": (by_skill, "you last changed the skill"),
    "who set the callable skill": (by_setting, "you last changed the skill"),
    "the same person again": (second_time, "You have said yes already"),
    "whose delegate said yes": (after_the_delegate, "somebody has for you"),
    "delegate of a bound person": (for_bound, "for whom you decide"),
    "delegate who is bound": (bound_delegate, "you own the run"),
    "last in a chain of delegations": (last_in_a_chain, "agents.resolve_approval"),
    "in a circle of delegations": (in_a_circle, "agents.resolve_approval"),
    "delegate of who said yes": (delegate_of_a_voter, "is there already"),
}


def by_function(approval, user):
    try:
        say_yes(approval, user)
    except LqopsError as error:
        return str(error)
    return ""


def by_page(approval, user):
    client = Client()
    client.force_login(user)
    given = {"decision": "approve", "digest": approval.digest, "note": ""}
    answer = client.post(reverse("admin:agents_approval_decide", args=[approval.pk]), given)
    return "" if answer.status_code == 302 else f"agents.resolve_approval {answer.content.decode()}"


def by_list(approval, user):
    client = Client()
    client.force_login(user)
    given = {f"digest_{approval.pk}": approval.digest, "note": "", "confirmed": "1"}
    answer = client.post(reverse("admin:agents_approval_act", args=[approval.pk, "approve"]), given)
    return "" if answer.status_code == 302 else f"agents.resolve_approval {answer.content.decode()}"


def by_key(approval, user):
    address = f"/api/v1/approvals/{approval.public_id}/approve"
    answer = client_of(user).post(address, {"digest": approval.digest}, format="json")
    if answer.status_code == 404:  # who decides nothing does not see it
        return "agents.resolve_approval"
    return "" if answer.status_code == 200 else answer.json()["message"]


def by_words(approval, user):
    [proposal] = proposed(approval, user) or [None]
    if proposal is None or proposal.refused:
        return f"agents.resolve_approval {proposal and proposal.refused}"
    confirm(proposal.token, by=user, now=clock())
    return ""


def proposed(approval, user):
    try:
        answer = ask(text=f"approve {approval.public_id}", by=user, now=clock())
    except NotFound:  # who decides nothing does not see it
        return []
    return [propose(wanted, by=user, now=clock()) for wanted in answer.wanted if wanted.action == "approve"]


def by_command(approval, user):
    try:
        names = {"user": user.username, "digest": approval.digest}
        call_command("approve", str(approval.public_id), stdout=io.StringIO(), **names)
    except CommandError as error:
        return str(error)
    return ""


SURFACES = {
    "function": by_function,
    "page": by_page,
    "list": by_list,
    "key": by_key,
    "words": by_words,
    "command": by_command,
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("abuse", ABUSES)
def test_abuse_is_refused_on_every_surface(abuse, surface, settings):
    settings.LQOPS_QUORUM = 2
    make, reason = ABUSES[abuse]
    bad = decider()
    approval = make(bad)
    bad = type(bad).objects.get(pk=bad.pk)
    votes = ApprovalVote.objects.count()
    told = SURFACES[surface](approval, bad)
    assert told, "it was allowed"
    if abuse != "delegate who is bound" or surface != "key":
        assert reason in told
    approval.refresh_from_db()
    assert (approval.status, ApprovalVote.objects.count()) == (ApprovalStatus.PENDING, votes)
    assert not AuditEvent.objects.filter(kind="approval.approved").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("surface", SURFACES)
def test_two_others_are_enough_on_every_surface_and_the_first_yes_is_shown(surface, settings):
    settings.LQOPS_QUORUM = 2
    approval, first, second = call(), decider(username="ada"), decider()
    assert SURFACES[surface](approval, first) == ""
    approval.refresh_from_db()
    at = approval.votes.get().created_at
    assert (approval.status, str(tally(approval))) == ("pending", f"1 of 2 said yes (ada, {at:%H:%M})")
    client = Client()
    client.force_login(second)
    shown = f"1 of 2 said yes (ada, {at:%H:%M})"
    assert shown in client.get(reverse("admin:agents_approval_change", args=[approval.pk])).content.decode()
    assert shown in client.get(reverse("admin:agents_approval_changelist")).content.decode()
    row = client_of(second).get(f"/api/v1/approvals/{approval.public_id}").json()
    assert ([vote["user"] for vote in row["yeses"]], row["yeses_needed"], row["refusal"]) == (["ada"], 2, "")
    out = io.StringIO()
    call_command("approvals", stdout=out)
    call_command("approve", str(approval.public_id), user=second.username, stdout=out)
    assert out.getvalue().count(shown) == 2
    assert shown in "\n".join(proposed(approval, second)[0].details)
    assert shown in ask(text="list pending approvals", by=second, now=clock()).text
    assert SURFACES[surface](approval, second) == ""
    approval.refresh_from_db()
    assert (approval.status, approval.resolved_by) == ("approved", second)
    assert str(tally(approval)).startswith(f"2 of 2 said yes (ada, {at:%H:%M}; {second}, ")
    rows = AuditEvent.objects.filter(kind__in=["approval.yes", "approval.approved"]).order_by("pk")
    facts = [(row.kind, person_of(row.actor), row.details["digest"], row.details["yes"]) for row in rows]
    digest = approval.digest
    assert facts == [("approval.yes", first.pk, digest, 1), ("approval.approved", second.pk, digest, 2)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("surface", SURFACES)
def test_delegate_decides_on_every_surface_for_somebody_who_is_away(surface):
    approval, away, delegate = call(), decider(), onlooker()
    named(away, delegate)
    assert SURFACES[surface](approval, delegate) == ""
    approval.refresh_from_db()
    vote = approval.votes.get()
    assert (approval.status, vote.user, vote.holder) == ("approved", delegate, away)
    event = AuditEvent.objects.get(kind="approval.approved")
    assert (person_of(event.actor), event.details["for_user"]) == (delegate.pk, away.pk)


def test_surfaces_say_why_a_person_cannot_approve_and_offer_the_no():
    owner = decider()
    approval = call(session=waiting(owner=owner))
    client = Client()
    client.force_login(owner)
    page = client.get(reverse("admin:agents_approval_change", args=[approval.pk])).content.decode()
    assert "You cannot approve this call." in page
    assert 'value="deny"' in page
    assert 'value="approve"' not in page
    assert "and you own the run" in client.get(reverse("admin:agents_approval_changelist")).content.decode()
    assert "you own the run" in client_of(owner).get("/api/v1/approvals").json()["results"][0]["refusal"]
    assert "and you own the run" in proposed(approval, owner)[0].refused
    out = io.StringIO()
    call_command("approve", str(approval.public_id), user=owner.username, stdout=out)
    assert f"{owner} cannot approve it. To them: A PRIVILEGED call" in out.getvalue()
    assert (
        client.post(
            reverse("admin:agents_approval_decide", args=[approval.pk]),
            {"decision": "deny", "digest": approval.digest, "note": ""},
        ).status_code
        == 302
    )
    approval.refresh_from_db()
    assert approval.status == ApprovalStatus.REJECTED


# --- The level, and whom a call binds ---


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("since", [Level.SAFE, Level.RESTRICTED, Level.PRIVILEGED])
def test_four_eyes_hold_from_the_level_that_is_set(level, since, settings):
    settings.LQOPS_FOUR_EYES_FROM = since
    owner = decider()
    approval = call(level, waiting(owner=owner))
    if level.rank >= since.rank:
        with pytest.raises(NotAllowed, match=f"A {level} call needs a second pair of eyes"):
            say_yes(approval, owner)
    else:
        assert say_yes(approval, owner).status == ApprovalStatus.APPROVED


def test_with_four_eyes_off_nobody_is_bound_but_a_quorum_still_counts_people(settings):
    settings.LQOPS_FOUR_EYES, settings.LQOPS_QUORUM = False, 2
    owner = decider()
    approval = call(session=waiting(owner=owner))
    assert say_yes(approval, owner).status == ApprovalStatus.PENDING
    assert say_yes(approval, decider()).status == ApprovalStatus.APPROVED


def test_the_first_reason_of_a_person_is_told_and_everybody_has_one():
    people = [make_user() for _ in range(4)]
    owner, starter, agents, triggers = people
    session = waiting(
        owner=owner,
        agent=make_agent(edited_by=agents),
        trigger=make_trigger(edited_by=triggers),
        metadata={"asked_by": actor_of(starter)},
        params={"skill": make_skill(changed_by=owner).name},
    )
    key = (session.pk, "send_letter")
    words = ["you own the run", "you started the run", "you last changed the agent", "you last changed the trigger"]
    assert bound_people([key])[key] == dict(zip([user.pk for user in people], words, strict=True))


def test_a_list_is_judged_by_a_fixed_number_of_statements(django_assert_num_queries):
    user = type(decider()).objects.get(pk=decider().pk)
    user.has_perm("agents.resolve_approval")

    def judge(number):
        rows = [call(session=waiting(agent=make_agent(edited_by=user))) for _ in range(number)]
        with django_assert_num_queries(7):
            with_decisions(rows, by=user, now=clock())
        assert all("you last changed the agent" in row.refusal for row in rows)

    judge(1)
    judge(4)


def test_a_session_whose_starter_is_gone_binds_the_others():
    session = waiting(metadata={"asked_by": "session:00000000-0000-4000-8000-000000000000"})
    assert bound_people([(session.pk, "x")])[session.pk, "x"] == {session.owner_id: "you own the run"}


@pytest.mark.parametrize(
    ("actor", "person"), [("user:7", 7), ("user:7:key:ab", 7), ("system", None), ("user:x", None), ("", None)]
)
def test_the_person_of_an_actor(actor, person):
    assert person_of(actor) == person


def test_switching_a_skill_is_a_change_of_it():
    skill, by = make_skill(), make_user(is_superuser=True)
    assert skill_switch(skill, enabled=False, by=by, now=NOW).changed_by == by


def test_whoever_has_an_input_read_again_has_started_the_run():
    owner = make_user()
    trigger = make_trigger(owner=owner, playbook=make_playbook(owner))
    row, operator = make_unread_input(trigger=trigger), make_user(is_superuser=True)
    input_retry(unread_input=row, by=operator, now=NOW)
    assert inputs_fire(now=NOW) == 1
    started = AgentSession.objects.order_by("-pk").first()
    assert started.metadata["asked_by"] == actor_of(operator)


def test_a_run_that_an_event_of_another_run_started_is_bound_by_who_started_that():
    owner, starter = make_user(), make_user()
    trigger = make_trigger(owner=owner, playbook=make_playbook(owner))
    parent = make_session(owner=owner, metadata={"asked_by": actor_of(starter)})
    fired = trigger_fire(trigger=trigger, slot="event:1", inputs=RunSpec(query="late fees"), parent=parent, now=NOW)
    call_ = (fired.session.pk, "send_letter")
    assert bound_people([call_])[call_][starter.pk] == "you started the run"


def test_a_renewed_loop_was_started_by_who_started_the_first():
    starter = make_user()
    session = make_going(make_autonomous()).loop
    AgentSession.objects.filter(pk=session.pk).update(
        metadata={"asked_by": actor_of(starter)}, status="completed", terminal_reason="completed", completed_at=NOW
    )
    session.refresh_from_db()
    session.agent.wanted = True
    session.agent.save()
    assert loop_revive(last=session, now=NOW).metadata["asked_by"] == actor_of(starter)


# --- Quorum ---


def test_one_no_denies_whatever_was_said_before(settings):
    settings.LQOPS_QUORUM = 3
    approval = call()
    say_yes(approval, decider())
    say_yes(approval, decider())
    approval_reject(approval.pk, by=decider(), digest=approval.digest, now=clock())
    with pytest.raises(InvalidTransition):
        say_yes(approval, decider())


def test_who_said_yes_may_still_say_no(settings):
    settings.LQOPS_QUORUM = 2
    approval, by = call(), decider()
    say_yes(approval, by)
    decided = approval_reject(approval.pk, by=by, digest=approval.digest, now=clock())
    assert decided.status == ApprovalStatus.REJECTED


def test_below_the_level_one_yes_is_enough(settings):
    settings.LQOPS_QUORUM = 2
    assert say_yes(call(Level.RESTRICTED), decider()).status == ApprovalStatus.APPROVED


def test_an_edit_resets_the_yeses_and_each_decider_shows_the_digest_of_the_call(settings):
    settings.LQOPS_QUORUM = 2
    approval = call(intent=ToolIntent.NOTIFY, arguments={"title": "a", "body": "b"})
    first, second, asked = decider(), decider(), approval.digest
    say_yes(approval, first)
    changed = {"by": second, "fits": fitting, "now": clock()}
    edited = approval_approve_edited(approval.pk, digest=asked, arguments={"title": "a", "body": "c"}, **changed)
    assert (edited.status, [vote.user for vote in tally(edited).yeses]) == (ApprovalStatus.PENDING, [second])
    with pytest.raises(TicketRefused):
        approval_approve(approval.pk, by=first, digest=asked, now=clock())
    with pytest.raises(NotAllowed, match="said yes already"):
        approval_approve_edited(approval.pk, digest=edited.digest, arguments={"title": "a", "body": "d"}, **changed)
    back = {"title": "a", "body": "b"}
    third = {**changed, "by": decider()}
    again = approval_approve_edited(approval.pk, digest=edited.digest, arguments=back, **third)
    assert (again.original_digest, again.original_arguments, again.arguments) == (asked, back, back)
    assert len(tally(again).yeses) == 1  # the first yes to these arguments stays gone
    assert say_yes(again, first).status == ApprovalStatus.APPROVED
    rows = AuditEvent.objects.filter(kind="approval.yes").order_by("pk")
    assert [row.details.get("old_digest") for row in rows] == [None, asked, edited.digest]


def test_the_call_goes_only_when_enough_have_said_yes_and_once(settings):
    settings.LQOPS_QUORUM = 2
    first, second, session = decider(), decider(), make_session()

    def send():
        return guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=NOW)

    with tool(probe=Probe(), level=Level.PRIVILEGED) as probe:
        assert send().outcome == Outcome.APPROVAL_PENDING
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=first, digest=ticket.digest, now=NOW)
        assert (send().outcome, probe.calls) == (Outcome.APPROVAL_PENDING, [])
        approval_approve(ticket.pk, by=second, digest=ticket.digest, now=NOW)
        assert send().ok
        assert send().replayed
    assert len(probe.calls) == 1


@pytest.mark.parametrize("change", ["bound", "inactive", "no right", "not in the role"])
def test_a_yes_stops_counting_when_its_person_could_not_say_it_any_more(change, settings):
    settings.LQOPS_QUORUM = 2
    agent = make_agent()
    approval, first = call(session=waiting(agent=agent)), decider()
    say_yes(approval, first)
    if change == "bound":
        agent.edited_by = first
        agent.save()
    elif change == "inactive":
        type(first).objects.filter(pk=first.pk).update(is_active=False)
    elif change == "no right":
        first.groups.clear()
    else:
        settings.LQOPS_QUORUM_ROLE = "board"
    member = decider()
    member.groups.add(Group.objects.get_or_create(name="board")[0])
    assert say_yes(approval, member).status == ApprovalStatus.PENDING


def test_a_yes_to_other_arguments_does_not_count(settings):
    settings.LQOPS_QUORUM = 2
    approval, first = call(), decider()
    ApprovalVote.objects.create(approval=approval, user=first, holder=first, digest="0" * 64)
    assert tally(approval).yeses == ()
    assert say_yes(approval, decider()).status == ApprovalStatus.PENDING


def test_who_decides_nothing_is_told_which_permission_is_missing():
    approval = call()
    with_decisions([approval], by=make_user(), now=clock())
    assert "agents.resolve_approval is missing" in approval.refusal


def test_only_people_of_the_role_say_yes_and_anybody_who_decides_says_no(settings):
    settings.LQOPS_QUORUM_ROLE = "board"
    board = Group.objects.create(name="board")
    outside, member, delegate = decider(), decider(), onlooker()
    member.groups.add(board)
    approval = call()
    with pytest.raises(NotAllowed, match="people of the role board"):
        say_yes(approval, outside)
    assert say_yes(call(Level.RESTRICTED), outside).status == ApprovalStatus.APPROVED
    named(member, delegate)
    assert say_yes(approval, delegate).status == ApprovalStatus.APPROVED
    denied = call()
    assert approval_reject(denied.pk, by=outside, digest=denied.digest, now=clock()).status == "rejected"


def test_calls_that_need_several_yeses_are_approved_one_by_one(settings):
    settings.LQOPS_QUORUM, settings.LQOPS_FOUR_EYES_FROM = 2, Level.RESTRICTED
    approval = call(Level.RESTRICTED)
    with pytest.raises(NotAllowed, match="one by one"):
        standing_create(approval.pk, by=decider(), digest=approval.digest, now=clock())


def test_a_standing_approval_does_not_cover_calls_that_came_to_bind_its_maker(settings):
    settings.LQOPS_FOUR_EYES_FROM = Level.RESTRICTED
    maker, agent = decider(), make_agent()
    session = make_session(agent=agent)

    def send(number):
        return guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key=f"turn:{number}", now=NOW)

    with tool(probe=Probe(), level=Level.RESTRICTED) as probe:
        send(1)
        ticket = Approval.objects.get()
        standing_create(ticket.pk, by=maker, digest=ticket.digest, now=NOW)
        assert send(1).ok
        assert send(2).ok
        agent.edited_by = maker
        agent.save()
        assert send(3).outcome == Outcome.APPROVAL_PENDING
    assert (len(probe.calls), StandingApproval.objects.get().uses_left) == (2, 19)
    covered = Approval.objects.get(call_key="turn:2")
    assert (tally(covered).needed, str(tally(covered))) == (1, "")


def test_the_database_keeps_one_yes_for_each_person_and_each_right():
    approval, first, second = call(), decider(), decider()
    given = {"approval": approval, "digest": approval.digest}
    ApprovalVote.objects.create(user=first, holder=first, **given)
    for user, holder in ((first, second), (second, first)):
        with pytest.raises(IntegrityError), transaction.atomic():
            ApprovalVote.objects.create(user=user, holder=holder, **given)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("needed", [1, 2, 3])
def test_of_racing_yeses_just_enough_count_and_the_call_is_approved_once(needed, settings):
    settings.LQOPS_QUORUM = needed
    permission = Permission.objects.get(codename="resolve_approval")
    people = [make_user() for _ in range(4)]
    for person in people:
        person.user_permissions.add(permission)
    session = waiting()
    approval = call(session=session)
    start = Barrier(len(people))

    def one(person):
        try:
            start.wait(timeout=60)
            return str(say_yes(approval, person).status)
        except InvalidTransition:
            return "too late"
        finally:
            connection.close()

    with ThreadPoolExecutor(len(people)) as pool:
        told = sorted(pool.map(one, people))
    late = ["too late"] * (len(people) - needed)
    assert told == sorted(["approved", *["pending"] * (needed - 1), *late])
    assert ApprovalVote.objects.count() == needed
    assert AuditEvent.objects.filter(kind="approval.approved").count() == 1
    assert AuditEvent.objects.filter(kind="approval.yes").count() == needed - 1


@pytest.mark.django_db(transaction=True)
def test_of_one_person_who_says_yes_twice_at_once_one_yes_counts(settings):
    settings.LQOPS_QUORUM = 2
    person = make_user()
    person.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    approval, start = call(), Barrier(2)

    def one(_):
        try:
            start.wait(timeout=60)
            return str(say_yes(approval, person).status)
        except NotAllowed:
            return "refused"
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(one, range(2))) == ["pending", "refused"]
    assert ApprovalVote.objects.count() == 1


# --- Whom to tell: reminders, escalation, ends ---


def told(kind=NoticeKind.APPROVAL_WAITING):
    return set(Notification.objects.filter(kind=kind).values_list("owner_id", flat=True))


def test_delegates_are_told_and_those_who_said_yes_are_not_reminded(settings):
    settings.LQOPS_QUORUM = 2
    said, away, delegate, bound = decider(), decider(), onlooker(), decider()
    for_nobody = onlooker()
    named(away, delegate)
    named(bound, for_nobody)
    approval = call(session=waiting(owner=bound))
    say_yes(approval, said)
    assert approvals_remind(clock() + timedelta(minutes=20)) == 1
    assert told() == {away.pk, delegate.pk, bound.pk}
    assert "1 of 2 said yes" in Notification.objects.first().body


def test_an_approval_that_waits_too_long_is_escalated_once(settings):
    settings.LQOPS_ESCALATE_TO, settings.LQOPS_ESCALATE_AFTER = "board", timedelta(minutes=30)
    board = Group.objects.create(name="board")
    member, gone = make_user(), make_user(is_active=False)
    board.user_set.add(member, gone)
    approval, decided = call(), call(status=ApprovalStatus.APPROVED)
    at = approval.created_at
    sent = [approvals_escalate(at + timedelta(minutes=minutes)) for minutes in (0, 29, 30, 31, 59)]
    assert sent == [0, 0, 1, 0, 0]
    assert told(NoticeKind.APPROVAL_ESCALATED) == {member.pk}
    notice = Notification.objects.get()
    assert notice.title == "Nobody has decided yet: send_letter"
    [event] = AuditEvent.objects.filter(kind="approval.escalated")
    assert (event.actor, event.details["role"], event.details["people"]) == ("system", "board", 1)
    decided.refresh_from_db()
    assert decided.escalated_at is None


def test_without_a_role_nothing_is_escalated_and_what_has_expired_is_not(settings):
    approval = call()
    late = approval.created_at + timedelta(minutes=61)
    assert approvals_escalate(late) == 0
    settings.LQOPS_ESCALATE_TO, settings.LQOPS_ESCALATE_AFTER = "board", timedelta(minutes=30)
    assert approvals_escalate(late) == 0


def test_of_two_that_look_at_once_one_escalates(settings):
    settings.LQOPS_ESCALATE_TO, settings.LQOPS_ESCALATE_AFTER = "board", timedelta(minutes=30)
    approval = call()
    late = approval.created_at + timedelta(minutes=31)
    assert approvals_escalate(late) == 1
    assert questions._escalate(approval, late) is False


def test_expired_denied_and_cancelled_stay_different(settings):
    """In status, for the run, in the audit log and in the activity."""
    by = decider()
    ends = {
        "denied": lambda ticket: approval_reject(ticket.pk, by=by, digest=ticket.digest, now=NOW),
        "expired": lambda ticket: approvals_expire(NOW + timedelta(hours=24)),
        "cancelled": lambda ticket: session_halt(ticket.session_id, by=None, reason="", now=NOW),
    }
    found = {}
    for name, end in ends.items():
        session = make_session()

        def send(session=session):
            return guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=NOW)

        with tool(probe=Probe(), level=Level.PRIVILEGED):
            send()
            ticket = Approval.objects.get(session=session)
            if name == "cancelled":
                AgentSession.objects.filter(pk=session.pk).update(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
            end(ticket)
            ticket.refresh_from_db()
            text = "" if name == "cancelled" else send().error
        event = AuditEvent.objects.filter(chain=session.chain, kind__startswith="approval.").order_by("-seq").first()
        activity = AgentEvent.objects.filter(kind="approval:resolved").order_by("-pk").first()
        found[name] = (ticket.status_text, event.kind, activity.data["decision"], text)
    assert found == {
        "denied": ("denied", "approval.rejected", "rejected", "A person did not allow this call: denied"),
        "expired": (
            "expired",
            "approval.expired",
            "expired",
            "The approval of this call expired: nobody decided, or the call was not made, in time.",
        ),
        "cancelled": ("cancelled", "approval.cancelled", "cancelled", ""),
    }
    client = Client()
    client.force_login(by)
    pages = [
        client.get(reverse("admin:agents_approval_change", args=[row.pk])).content.decode()
        for row in Approval.objects.order_by("pk")
    ]
    heads = ("<dt>Decided</dt>", "<dt>Expired</dt>", "<dt>Cancelled</dt>")
    assert [[head in page for head in heads] for page in pages] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


def test_a_cancelled_ticket_says_so_to_the_run():
    decider()
    session = make_session()
    with tool(probe=Probe(), level=Level.PRIVILEGED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=NOW)
        Approval.objects.update(status=ApprovalStatus.CANCELLED)
        refused = guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="turn:1", now=NOW)
    assert refused.error == "The approval of this call was cancelled before it was used."


def test_a_delegation_that_ended_gives_no_right():
    away, delegate, approval = decider(), onlooker(), call()
    now = clock()
    row = delegation_create(owner=away, delegate=delegate, until=now + timedelta(days=1), by=away, now=now)
    delegation_end(delegation=row, by=delegate, now=clock())
    with pytest.raises(NotAllowed, match="resolve_approval"):
        say_yes(approval, delegate)


@pytest.mark.parametrize("lost", ["permission", "account", "time"])
def test_the_right_of_a_delegate_ends_with_that_of_its_owner(lost):
    away, delegate, approval = decider(), onlooker(), call()
    named(away, delegate)
    if lost == "permission":
        away.groups.clear()
    elif lost == "account":
        type(away).objects.filter(pk=away.pk).update(is_active=False)
    else:
        Delegation.objects.update(until=clock())
    with pytest.raises(NotAllowed, match="resolve_approval"):
        say_yes(approval, delegate)


def test_a_delegate_says_no_only_where_they_could_say_yes():
    away, delegate = decider(), onlooker()
    named(away, delegate)
    theirs = call(session=waiting(owner=away))
    with pytest.raises(NotAllowed, match="for whom you decide"):
        approval_reject(theirs.pk, by=delegate, digest=theirs.digest, now=clock())
    other = call()
    decided = approval_reject(other.pk, by=delegate, digest=other.digest, now=clock())
    assert decided.status == ApprovalStatus.REJECTED
    assert AuditEvent.objects.get(kind="approval.rejected").details["for_user"] == away.pk


def test_whoever_edits_a_call_needs_somebody_else(settings):
    approval, editor, other = call(arguments={"to": "x"}), decider(), decider()
    given = {
        "approval_pk": approval.pk,
        "digest": approval.digest,
        "now": clock(),
        "fits": lambda _, arguments: arguments,
    }
    approval_approve_edited(**given, by=editor, arguments={"to": "me"})
    approval.refresh_from_db()
    assert (approval.status, str(tally(approval))[:13]) == ("pending", "1 of 2 said y")
    with pytest.raises(NotAllowed, match="You have said yes already"):
        say_yes(approval, editor)
    say_yes(approval, other)
    approval.refresh_from_db()
    assert approval.status == "approved"


def test_without_four_eyes_an_edit_is_enough(settings):
    settings.LQOPS_FOUR_EYES = False
    approval, editor = call(arguments={"to": "x"}), decider()
    given = {"digest": approval.digest, "now": clock(), "fits": lambda _, arguments: arguments}
    assert approval_approve_edited(approval.pk, **given, by=editor, arguments={"to": "me"}).status == "approved"


def test_a_yes_of_a_delegate_ends_with_the_delegation(settings):
    settings.LQOPS_QUORUM = 2
    approval, away, delegate, third = call(), decider(), onlooker(), decider()
    delegation = named(away, delegate)
    say_yes(approval, delegate)
    delegation_end(delegation=delegation, by=away, now=clock())
    say_yes(approval, third)
    approval.refresh_from_db()
    assert (approval.status, len(tally(approval).yeses)) == ("pending", 1)
