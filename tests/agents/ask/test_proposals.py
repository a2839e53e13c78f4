"""Proposed actions: what a button does, once, for one person, if nothing that was shown has changed."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User

from agents.ask.naming import Wanted
from agents.ask.proposals import ACTIONS, CALL_CHARS, LIFETIME, confirm, propose, wanted_on
from agents.enums import HaltState
from agents.exceptions import Invalid, InvalidTransition, LqopsError, NotFound
from agents.models import Agent, AgentSession, Approval, Halt, Trigger
from agents.sessions.pauses import agent_pause
from audit.models import AuditEvent
from tests.agents.ask.scene import asked, make_scene, waiting_call
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene():
    return make_scene()


def button(scene, text):
    """The token of the one action that a request proposes."""
    [wanted] = asked(scene, text).wanted
    return propose(wanted, by=scene.owner, now=NOW).token


def press(scene, token):
    return confirm(token, by=User.objects.get(pk=scene.owner.pk), now=NOW)


def test_approving_needs_the_button_and_records_the_person(scene):
    token = button(scene, "approve {a}")
    assert Approval.objects.get(pk=scene.approval.pk).status == "pending"
    press(scene, token)
    approval = Approval.objects.get(pk=scene.approval.pk)
    assert (approval.status, approval.resolved_by) == ("approved", scene.owner)


def test_denying_needs_the_button(scene):
    press(scene, button(scene, "deny {a}"))
    assert Approval.objects.get(pk=scene.approval.pk).status == "rejected"


def test_call_that_changed_since_it_was_shown_is_not_approved(scene):
    token = button(scene, "approve {a}")
    Approval.objects.filter(pk=scene.approval.pk).update(arguments={"to": "other@example.org"}, digest="f" * 64)
    with pytest.raises(InvalidTransition, match="has changed"):
        press(scene, token)
    assert Approval.objects.get(pk=scene.approval.pk).status == "pending"


def test_call_too_long_to_show_cannot_be_approved_here_but_denied(scene):
    long = waiting_call(scene.owner, arguments={"body": "x" * CALL_CHARS})
    refused = propose(wanted_on("approve", "approval", long), by=scene.owner, now=NOW)
    assert (refused.token, "too many to show" in refused.refused) == ("", True)
    assert propose(wanted_on("deny", "approval", long), by=scene.owner, now=NOW).token


def test_deciding_needs_the_permission(scene):
    scene.owner.user_permissions.remove(Permission.objects.get(codename="resolve_approval"))
    by = User.objects.get(pk=scene.owner.pk)
    assert propose(wanted_on("approve", "approval", scene.approval), by=by, now=NOW).token == ""


def test_permission_is_checked_again_when_it_is_confirmed(scene):
    token = button(scene, "approve {a}")
    scene.owner.user_permissions.clear()
    with pytest.raises(LqopsError):
        press(scene, token)
    assert Approval.objects.get(pk=scene.approval.pk).status == "pending"


def test_token_is_for_one_person_and_one_hour(scene, monkeypatch):
    token = button(scene, "pause Clerk")
    with pytest.raises(Invalid, match="not a token"):
        confirm(token, by=make_user(), now=NOW)
    with pytest.raises(Invalid, match="not a token"):
        press(scene, token + "x")
    monkeypatch.setattr("agents.ask.proposals.LIFETIME", timedelta(seconds=-1))
    with pytest.raises(InvalidTransition, match="valid for"):
        press(scene, token)
    assert timedelta(hours=1) == LIFETIME
    assert Agent.objects.get(pk=scene.agent.pk).enabled


def test_run_is_started_once_however_often_the_button_is_pressed(scene):
    token = button(scene, "run Weekly scan")
    session = press(scene, token).session
    with pytest.raises(InvalidTransition, match="confirmed before"):
        press(scene, token)
    assert list(AgentSession.objects.filter(trigger=scene.trigger)) == [session]
    assert AuditEvent.objects.filter(kind="ask.confirmed", actor=f"user:{scene.owner.pk}").count() == 1


def test_button_at_one_place_is_not_offered_again_after_its_use(scene):
    wanted = wanted_on("run", "trigger", scene.trigger)
    press(scene, propose(wanted, by=scene.owner, now=NOW, place="here").token)
    assert "confirmed before" in propose(wanted, by=scene.owner, now=NOW, place="here").refused


def test_playbook_runs_on_what_was_named(scene):
    session = press(scene, button(scene, "run Lease on Leases")).session
    assert (session.params["playbook"], session.params["collection"]) == (
        str(scene.playbook.public_id),
        str(scene.collection.public_id),
    )


def test_agent_is_paused_and_resumed_by_buttons(scene):
    press(scene, button(scene, "pause Clerk"))
    assert scene.agent.pauses.open().exists()
    press(scene, button(scene, "resume Clerk"))
    assert not scene.agent.pauses.open().exists()
    assert press(scene, button(scene, "resume Clerk")).text == "Agent Clerk works again."


def test_disabled_agent_is_enabled_when_it_is_resumed(scene):
    Agent.objects.update(enabled=False)
    press(scene, button(scene, "resume Clerk"))
    assert Agent.objects.get(pk=scene.agent.pk).enabled


def test_run_is_paused_and_resumed_by_buttons(scene):
    press(scene, button(scene, "pause {s}"))
    assert AgentSession.objects.get(pk=scene.session.pk).paused_at
    AgentSession.objects.filter(pk=scene.session.pk).update(agent=scene.agent)
    agent_pause(agent=scene.agent, by=None, now=NOW)
    assert press(scene, button(scene, "resume {s}")).text.startswith("Its own pause ended. Agent Clerk is paused")


def test_trigger_is_paused_and_resumed_by_buttons(scene):
    press(scene, button(scene, "pause Weekly scan"))
    assert Trigger.objects.get(pk=scene.trigger.pk).paused_at
    press(scene, button(scene, "resume Weekly scan"))
    assert Trigger.objects.get(pk=scene.trigger.pk).paused_at is None


def test_run_is_halted_by_the_button(scene):
    press(scene, button(scene, "halt {s}"))
    assert AgentSession.objects.get(pk=scene.session.pk).halt_state == HaltState.HALT_REQUESTED


def test_runs_of_an_agent_are_halted_by_the_button(scene):
    run = make_session(owner=scene.owner, agent=scene.agent)
    press(scene, button(scene, "halt Clerk"))
    run.refresh_from_db()
    assert run.halt_state == HaltState.HALT_REQUESTED


def test_own_runs_are_halted_by_everybody_and_all_work_by_those_who_may(scene):
    other = make_session()
    press(scene, propose(Wanted("halt_own"), by=scene.owner, now=NOW).token)
    scene.session.refresh_from_db()
    other.refresh_from_db()
    assert (scene.session.halt_state, other.halt_state) == (HaltState.HALT_REQUESTED, HaltState.RUNNING)
    every = propose(Wanted("halt_all"), by=scene.owner, now=NOW)
    assert (every.token, "agents.halt_everything" in every.refused) == ("", True)
    scene.owner.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    by = User.objects.get(pk=scene.owner.pk)
    confirm(propose(Wanted("halt_all", "", {"text": "stop it all"}), by=by, now=NOW).token, by=by, now=NOW)
    assert Halt.objects.get(scope="organisation").reason == "Asked for: stop it all"


def test_schedule_and_agent_are_drafted_switched_off(scene):
    press(scene, button(scene, "every 6 hours run playbook Lease on collection Leases"))
    assert not Trigger.objects.get(cron="0 */6 * * *").enabled
    press(scene, button(scene, "Create an agent called Post Clerk that sorts my mail"))
    assert not Agent.objects.get(name="Post Clerk").enabled


def test_goal_is_a_run_after_the_button(scene):
    session = press(
        scene, propose(Wanted("goal", "", {"goal": "Compare leases"}), by=scene.owner, now=NOW).token
    ).session
    assert session.params["goal"] == "Compare leases"


def test_row_of_somebody_else_is_not_found(scene):
    for kind, row in (("agent", make_agent()), ("run", make_session())):
        with pytest.raises(NotFound):
            propose(wanted_on("halt", kind, row), by=scene.owner, now=NOW)


def test_whoever_may_not_start_gets_no_button_for_it(scene):
    by = make_user()
    agent = make_agent(owner=by, enabled=False)
    assert "operators" in propose(wanted_on("resume", "agent", agent), by=by, now=NOW).refused


def test_unknown_action_is_refused(scene):
    with pytest.raises(Invalid, match="no action"):
        propose(Wanted("delete", f"agent:{scene.agent.public_id}"), by=scene.owner, now=NOW)


def test_every_action_names_its_button_and_its_effect():
    assert all(action.label and action.text for action in ACTIONS.values())
