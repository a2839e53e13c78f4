"""Pausing and resuming: of one session, of an agent, of a trigger, of all work."""

from datetime import timedelta
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Permission
from django.db import OperationalError

from agents.enums import AgentState, HaltState, Level, Mode, Outcome, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import InvalidTransition, NotAllowed, NotFound, SessionHalted, SessionPaused, ToolNotGranted
from agents.guard import guard, guarded_tool_call
from agents.guard.calls import plan_call
from agents.guard.guard import guarded_group
from agents.models import AgentSession, Approval, Finding, Halt, Installation, Pause, ToolCall
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sensors.rows import loops_going
from agents.sessions import pauses
from agents.sessions.ending import session_finish
from agents.sessions.halts import halt_all_work, halted_work_end, release_all_work, session_halt
from agents.sessions.leases import idle_sweep, lease_claim, lease_claim_now, lease_next, sleepers_wake
from agents.sessions.lifecycle import session_create, session_wake
from agents.sessions.pauses import (
    agent_pause,
    agent_resume,
    pause_message,
    pauses_apply,
    pauses_of,
    pauses_open,
    session_pause,
    session_resume,
    sessions_spare,
    triggers_paused,
    work_pause,
    work_paused,
    work_resume,
    work_stopped,
)
from agents.triggers import triggers
from agents.triggers.triggers import trigger_delete, trigger_pause, trigger_resume
from agents.types import Finished, Usage
from audit.models import AuditEvent
from audit.rows import digest
from tests.agents.conftest import MODEL, Probe, ask, script, tool
from tests.factories import NOW, make_agent, make_price, make_session, make_starter, make_trigger, make_user

pytestmark = pytest.mark.django_db
PAUSED = (Status.WAITING, WaitingOn.RESUME)
LATER = NOW + timedelta(hours=1)


def where(session):
    session.refresh_from_db()
    return session.status, session.waiting_on


def kinds(chain):
    return list(AuditEvent.objects.filter(chain=chain).order_by("seq").values_list("kind", flat=True))


def queued(**fields):
    return make_session(Status.QUEUED, **fields)


def operator():
    user = make_starter()
    user.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    return user


def write(session, **more):
    return guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "late"}, now=NOW, **more)


# --- One session ---


def test_a_queued_session_waits_until_it_is_resumed():
    session = queued(owner=make_starter())
    session_pause(session.pk, by=session.owner, reason="wrong file", now=NOW)
    assert where(session) == PAUSED
    assert (session.state, session.paused_at) == (AgentState.PAUSED, NOW)
    assert lease_claim(session.pk, owner="w", now=NOW) is None

    session_resume(session.pk, by=session.owner, now=LATER)
    assert where(session) == (Status.QUEUED, "")
    assert session.paused_at is None
    assert lease_claim(session.pk, owner="w", now=LATER)
    pause = Pause.objects.get()
    assert (pause.reason, pause.requested_by, pause.resumed_by) == ("wrong file", session.owner, session.owner)
    asked, resumed, _ = AuditEvent.objects.filter(chain=session.chain).order_by("seq")
    facts = {"pause_id": pause.pk, "reason_digest": digest("wrong file"), "scope": "session"}
    assert (asked.kind, asked.actor, asked.details) == (
        "autonomous_session.pause_requested",
        f"user:{session.owner_id}",
        facts,
    )
    assert (resumed.kind, resumed.details) == (
        "autonomous_session.resume_requested",
        {"pause_id": pause.pk, "scope": "session"},
    )


@pytest.mark.parametrize("remote", [True, False], ids=["remote", "local"])
def test_a_running_session_makes_no_further_call(remote):
    session = make_session()
    session_pause(session.pk, by=None, now=NOW)
    with tool(probe=Probe(), remote=remote) as probe, pytest.raises(SessionPaused):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {}, now=NOW)
    assert probe.calls == []
    assert not ToolCall.objects.exists()
    assert kinds(session.chain) == ["autonomous_session.pause_requested"]


def test_a_pause_between_the_look_and_the_lock_stops_the_call():
    session = make_session()
    seen = guard.read_unlocked(session, "k")
    session_pause(session.pk, by=None, now=NOW)
    with (
        patch.object(guard, "read_unlocked", return_value=seen),
        tool(probe=Probe()) as probe,
        pytest.raises(SessionPaused),
    ):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {}, key="k", now=NOW)
    assert probe.calls == []


def test_a_call_that_passes_at_once_is_stopped_as_well():
    make_price(MODEL)
    session = make_session()
    with script(Step("fine", usage=Usage(1, 1))) as model:
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="first").ok
        session_pause(session.pk, by=None, now=NOW)
        with pytest.raises(SessionPaused):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="next")
        with pytest.raises(SessionPaused):
            write(session)
    assert len(model.requests) == 1
    assert not Finding.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_calls_of_a_group_follow_the_first_of_them():
    session = make_session()
    real = guard._authorise

    def paused_meanwhile(call, **more):
        opened = real(call, **more)
        if call.key == "k1":
            session_pause(session.pk, by=None, now=NOW)
        return opened

    with tool(probe=Probe()) as probe, patch.object(guard, "_authorise", paused_meanwhile):
        plan = [plan_call(session, ToolIntent.RUN_SKILL, {"n": n}, key=f"k{n}", now=NOW) for n in (1, 2)]
        assert [result.ok for result in guarded_group(plan)] == [True, True]
        with pytest.raises(SessionPaused):
            guarded_group([plan_call(session, ToolIntent.RUN_SKILL, {"n": 3}, key="k3", now=NOW)])
    assert len(probe.calls) == 2


def test_halt_comes_before_pause_and_so_does_the_grant():
    session = make_session(current_phase="intake")
    session_pause(session.pk, by=None, now=NOW)
    with pytest.raises(ToolNotGranted):
        write(session)
    session_halt(session.pk, by=None, reason="", now=NOW)
    with pytest.raises(SessionHalted):
        write(session)


def test_nobody_is_asked_for_a_call_of_a_paused_session(approver):
    session = make_session()
    session_pause(session.pk, by=None, now=NOW)
    with tool(probe=Probe(), level=Level.PRIVILEGED), pytest.raises(SessionPaused):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {}, now=NOW)
    assert not Approval.objects.exists()


def test_the_runner_puts_a_paused_session_aside():
    session = queued()

    def engine(held):
        session_pause(held.pk, by=None, now=NOW)
        write(held)
        raise AssertionError

    assert run_session(session.pk, engine, owner="w", now=NOW)
    assert where(session) == PAUSED
    assert (session.lease_owner, session.halt_state) == ("", HaltState.RUNNING)


def test_a_session_resumed_before_it_rested_goes_back_into_the_queue():
    session = queued()

    def engine(held):
        session_pause(held.pk, by=None, now=NOW)
        try:
            write(held)
        finally:
            session_resume(held.pk, by=None, now=NOW)

    assert run_session(session.pk, engine, owner="w", now=NOW)
    assert where(session) == (Status.QUEUED, "")


def test_a_session_whose_last_call_was_made_completes_and_its_pause_ends_with_it():
    session = make_session()
    session_pause(session.pk, by=None, now=NOW)
    session_finish(session, TerminalReason.COMPLETED, now=LATER)
    assert where(session) == (Status.COMPLETED, "")
    assert (session.paused_at, Pause.objects.get().resumed_at) == (None, LATER)


def test_pausing_twice_changes_nothing():
    session = make_session()
    session_pause(session.pk, by=None, reason="first", now=NOW)
    session_pause(session.pk, by=None, reason="second", now=LATER)
    assert Pause.objects.get().reason == "first"
    assert kinds(session.chain) == ["autonomous_session.pause_requested"]


def test_halting_a_paused_session_ends_it():
    session = queued()
    session_pause(session.pk, by=None, now=NOW)
    session_halt(session.pk, by=None, reason="", now=LATER)
    assert where(session) == (Status.HALTED, "")
    with pytest.raises(InvalidTransition, match="is not paused"):
        session_resume(session.pk, by=None, now=LATER)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW}, "is over"),
        ({"halt_state": HaltState.HALT_REQUESTED}, "A halt is final"),
    ],
)
def test_a_session_that_ends_cannot_be_paused(fields, why):
    session = make_session(**fields)
    with pytest.raises(InvalidTransition, match=why):
        session_pause(session.pk, by=None, now=NOW)
    assert not Pause.objects.exists()


def test_only_those_who_may_change_it_pause_it_and_who_may_start_runs_resume_it():
    session = queued()
    with pytest.raises(NotFound):
        session_pause(session.pk, by=make_user(), now=NOW)
    session_pause(session.pk, by=session.owner, now=NOW)
    with pytest.raises(NotFound):
        session_resume(session.pk, by=make_starter(), now=NOW)
    with pytest.raises(NotAllowed):
        session_resume(session.pk, by=session.owner, now=NOW)
    assert where(session) == PAUSED


# --- Sessions at rest ---


@pytest.mark.parametrize(
    "rest",
    [
        {"status": Status.SLEEPING, "next_wake_at": NOW},
        {"status": Status.WAITING, "waiting_on": WaitingOn.APPROVAL},
        {"status": Status.WAITING, "waiting_on": WaitingOn.INPUT},
    ],
)
def test_a_session_at_rest_stays_there_and_is_put_aside_when_it_is_woken(rest):
    session = make_session(**rest)
    session_pause(session.pk, by=None, now=NOW)
    assert where(session) == (rest["status"], rest.get("waiting_on", ""))
    assert session_wake(session.pk, now=NOW)
    assert lease_next(owner="w", now=NOW) is None
    assert where(session) == PAUSED
    session_resume(session.pk, by=None, now=LATER)
    assert where(session) == (Status.QUEUED, "")


def test_a_session_that_is_resumed_while_it_sleeps_sleeps_on():
    session = make_session(Status.SLEEPING, next_wake_at=LATER)
    session_pause(session.pk, by=None, now=NOW)
    session_resume(session.pk, by=None, now=NOW)
    assert where(session) == (Status.SLEEPING, "")
    assert sleepers_wake(LATER) == 1


def test_the_watchdog_leaves_a_paused_session_alone():
    session = queued()
    session_pause(session.pk, by=None, now=NOW)
    assert idle_sweep(NOW + timedelta(days=30)) == 0
    assert where(session) == PAUSED


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_lost_session_is_recovered_before_it_is_put_aside(repeatable):
    session = make_session(lease_owner="dead", lease_until=NOW)
    ToolCall.objects.create(
        session=session, key="k", intent=ToolIntent.RUN_SKILL, phase="turn", arguments={}, digest="d",
        asked_digest="d", fencing=session.fencing, started_at=NOW, repeatable=repeatable,
    )  # fmt: skip
    session_pause(session.pk, by=None, now=NOW)
    assert lease_next(owner="w", now=LATER) is None
    assert where(session) == (PAUSED if repeatable else (Status.WAITING, WaitingOn.OPERATOR))
    assert ToolCall.objects.get().outcome == (Outcome.WORKER_LOST if repeatable else Outcome.UNKNOWN)
    assert (session.fencing, session.recoveries) == (1, 1)


# --- Agents ---


def test_a_paused_agent_keeps_its_runs_from_going_on_and_those_that_start():
    agent = make_agent(owner=make_starter())
    running, waiting = make_session(agent=agent), queued(agent=agent)
    other = queued()
    paused = agent_pause(agent=agent, by=agent.owner, reason="review", now=NOW)
    assert (paused.already, paused.sessions) == (False, 2)
    with pytest.raises(SessionPaused):
        write(running)
    assert (where(waiting), where(other)) == (PAUSED, (Status.QUEUED, ""))
    new = session_create(owner=agent.owner, agent=agent, now=LATER)
    assert lease_claim(new.pk, owner="w", now=LATER) is None
    assert where(new) == PAUSED

    agent_resume(agent=agent, by=agent.owner, now=LATER)
    assert {where(waiting), where(new)} == {(Status.QUEUED, "")}
    assert write(running).ok
    assert kinds("system").count("agent.paused") == kinds("system").count("agent.resumed") == 1
    resumed = AuditEvent.objects.get(chain=new.chain, kind="autonomous_session.resume_requested")
    assert (resumed.actor, resumed.details["scope"]) == (f"user:{agent.owner_id}", "agent")


def test_pausing_an_agent_twice_changes_nothing_and_it_is_resumed_once():
    agent = make_agent()
    first = agent_pause(agent=agent, by=None, reason="first", now=NOW)
    second = agent_pause(agent=agent, by=None, reason="second", now=LATER)
    assert (second.pause, second.already) == (first.pause, True)
    agent_resume(agent=agent, by=None, now=LATER)
    with pytest.raises(InvalidTransition, match="is not paused"):
        agent_resume(agent=agent, by=None, now=LATER)
    with pytest.raises(NotFound):
        agent_pause(agent=agent, by=make_user(), now=NOW)


def test_a_run_stays_paused_until_every_pause_that_covers_it_has_ended():
    agent = make_agent()
    session = queued(agent=agent)
    session_pause(session.pk, by=None, reason="mine", now=NOW)
    agent_pause(agent=agent, by=None, reason="theirs", now=NOW)
    assert [pause.reason for pause in pauses_of(session)] == ["mine", "theirs"]
    session_resume(session.pk, by=None, now=LATER)
    assert where(session) == PAUSED
    with pytest.raises(InvalidTransition, match=f"Agent {agent.name} is paused by somebody unnamed since .*: theirs"):
        session_resume(session.pk, by=None, now=LATER)
    agent_resume(agent=agent, by=None, now=LATER)
    assert where(session) == (Status.QUEUED, "")


def test_sensors_rest_with_their_loop():
    agent = make_agent()
    loop = make_session(Status.SLEEPING, agent=agent, mode=Mode.LOOP, owner=agent.owner, next_wake_at=LATER)
    assert list(loops_going()) == [loop]
    agent_pause(agent=agent, by=None, now=NOW)
    assert not loops_going().exists()


# --- Triggers ---


def test_a_trigger_is_paused_with_the_runs_that_it_has():
    trigger = make_trigger()
    before = queued(trigger=trigger, owner=trigger.owner)
    trigger_pause(trigger=trigger, by=None, now=NOW, with_runs=True)
    by_hand = queued(trigger=trigger, owner=trigger.owner, created_at=LATER)
    pauses_apply(LATER)
    assert (where(before), where(by_hand)) == (PAUSED, (Status.QUEUED, ""))
    event = AuditEvent.objects.get(kind="autonomous_trigger.paused")
    assert event.details["with_runs"] is True
    assert pause_message(Pause.objects.get()).startswith("Trigger trigger is paused by ")

    with patch.object(triggers, "require_complete"):
        trigger_resume(trigger=trigger, by=None, now=LATER)
    assert where(before) == (Status.QUEUED, "")


def test_second_pause_of_a_trigger_covers_newer_runs():
    trigger = make_trigger()
    older = queued(trigger=trigger, owner=trigger.owner)
    trigger_pause(trigger=trigger, by=None, now=NOW, with_runs=True)
    newer = queued(trigger=trigger, owner=trigger.owner, created_at=NOW + timedelta(minutes=1))
    pauses_apply(LATER)
    assert (where(older), where(newer)[0]) == (PAUSED, Status.QUEUED)

    trigger_pause(trigger=trigger, by=None, now=LATER, with_runs=True)

    assert (where(older), where(newer)) == (PAUSED, PAUSED)
    assert Pause.objects.open().count() == 1


def test_everything_that_is_paused_is_listed_newest_first():
    agent, first, second = make_agent(), make_trigger(), make_trigger()
    session = queued()
    agent_pause(agent=agent, by=None, reason="expensive", now=NOW)
    session_pause(session.pk, by=None, now=NOW)
    trigger_pause(trigger=first, by=None, now=NOW)
    trigger_pause(trigger=second, by=None, now=LATER, with_runs=True)
    resumed = queued()
    session_pause(resumed.pk, by=None, now=NOW)
    session_resume(resumed.pk, by=None, now=LATER)

    assert [(pause.session, pause.agent) for pause in pauses_open(10)] == [(session, None), (None, agent)]
    assert len(pauses_open(1)) == 1
    assert [(row, pause is not None) for row, pause, _ in triggers_paused(10)] == [(second, True), (first, False)]


def test_the_runs_of_a_deleted_trigger_go_on():
    trigger = make_trigger()
    session = queued(trigger=trigger, owner=trigger.owner)
    trigger_pause(trigger=trigger, by=None, now=NOW, with_runs=True)
    trigger_delete(trigger=trigger, by=None, now=NOW)
    assert pauses_apply(NOW) == 1
    assert where(session) == (Status.QUEUED, "")


def test_a_trigger_paused_alone_lets_its_runs_go_on_and_they_can_be_paused_later():
    trigger = make_trigger()
    session = queued(trigger=trigger, owner=trigger.owner)
    trigger_pause(trigger=trigger, by=None, now=NOW)
    assert where(session) == (Status.QUEUED, "")
    trigger_pause(trigger=trigger, by=None, now=LATER, with_runs=True)
    assert where(session) == PAUSED
    assert AuditEvent.objects.filter(kind="autonomous_trigger.paused").count() == 1


# --- All work ---


def test_one_statement_tells_that_nothing_is_halted_or_paused(django_assert_num_queries):
    with django_assert_num_queries(1):
        assert work_stopped() == (None, None)

    pause = work_pause(by=operator(), reason="incident", now=NOW).pause
    assert work_stopped() == (None, pause)
    halt = halt_all_work(by=None, reason="", now=NOW).halt
    assert work_stopped() == (halt, pause)
    work_resume(by=operator(), now=LATER)
    assert work_stopped() == (halt, None)


def test_pausing_all_work_holds_everything_up_and_ends_nothing():
    user = operator()
    running, waiting, asleep = make_session(), queued(), make_session(Status.SLEEPING, next_wake_at=NOW)
    paused = work_pause(by=user, reason="incident", now=NOW)
    assert (paused.already, paused.sessions, work_paused()) == (False, 3, paused.pause)
    assert pause_message(paused.pause) == f"All work is paused by {user} since {NOW:%Y-%m-%d %H:%M} UTC: incident."
    with pytest.raises(SessionPaused):
        write(running)
    new = session_create(owner=user, now=NOW)
    with pytest.raises(InvalidTransition, match=r"All work is paused by .* Resume it first"):
        lease_claim_now(new, owner="w", now=NOW)
    assert work_pause(by=user, reason="", now=LATER).already

    work_resume(by=user, now=LATER)
    assert work_paused() is None
    assert {where(waiting), where(new)} == {(Status.QUEUED, "")}
    assert where(asleep) == (Status.SLEEPING, "")
    assert write(running).ok
    assert [kind for kind in kinds("system") if kind.startswith("organisation.")] == [
        "organisation.paused",
        "organisation.resumed",
    ]
    with pytest.raises(InvalidTransition, match="nothing to resume"):
        work_resume(by=None, now=LATER)


def test_pausing_and_resuming_all_work_needs_the_permission():
    with pytest.raises(NotAllowed):
        work_pause(by=make_starter(), now=NOW)
    work_pause(by=None, now=NOW)
    with pytest.raises(NotAllowed):
        work_resume(by=make_starter(), now=NOW)


def test_a_halt_of_all_work_ends_paused_sessions():
    session = queued()
    work_pause(by=None, now=NOW)
    halt_all_work(by=None, reason="", now=LATER, spare_waiting=False)
    assert halted_work_end(LATER) == 1
    assert where(session) == (Status.HALTED, "")


def test_nothing_is_paused_that_is_being_halted():
    session = make_session()
    Installation.objects.update(halt=Halt.objects.create(scope="organisation"))
    session_halt(session.pk, by=None, reason="", now=NOW)
    work_pause(by=None, now=NOW)
    session.refresh_from_db()
    assert session.paused_at is None


# --- The halt of all work spares runs that wait for a person ---


def test_a_halt_of_all_work_pauses_what_waits_for_a_person_until_the_release():
    asks = make_session(Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    paused, ends = queued(), queued()
    session_pause(paused.pk, by=None, now=NOW)
    found = halt_all_work(by=None, reason="incident", now=NOW)
    assert (found.active, found.spared, found.ending) == (3, 2, 1)
    assert halted_work_end(NOW) == 1
    assert where(ends) == (Status.HALTED, "")
    assert (where(asks), where(paused)) == ((Status.WAITING, WaitingOn.APPROVAL), PAUSED)

    session_wake(asks.pk, now=NOW)  # somebody has decided
    assert lease_claim(asks.pk, owner="w", now=NOW) is None
    assert halted_work_end(NOW) == 0
    assert where(asks) == PAUSED
    release_all_work(by=None, now=LATER)
    assert (where(asks), where(paused)) == ((Status.QUEUED, ""), PAUSED)
    assert lease_claim(asks.pk, owner="w", now=LATER)


def test_what_comes_to_wait_for_a_person_during_the_halt_is_spared_by_the_ticker():
    session = make_session()
    halt_all_work(by=None, reason="", now=NOW)
    AgentSession.objects.filter(pk=session.pk).update(status=Status.WAITING, waiting_on=WaitingOn.INPUT)
    assert halted_work_end(NOW) == 0
    session.refresh_from_db()
    assert session.paused_at == NOW


def test_a_release_in_stages_leaves_spared_runs_paused():
    asks = make_session(Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    halt_all_work(by=None, reason="", now=NOW)
    release_all_work(by=None, now=LATER, resume_spared=False)
    asks.refresh_from_db()
    assert asks.paused_at == NOW
    session_resume(asks.pk, by=None, now=LATER)
    asks.refresh_from_db()
    assert (asks.paused_at, asks.waiting_on) == (None, WaitingOn.APPROVAL)


def test_a_spared_run_that_is_resumed_during_the_halt_goes_on_after_the_release():
    session = queued()
    session_pause(session.pk, by=None, now=NOW)
    halt_all_work(by=None, reason="", now=NOW)
    session_resume(session.pk, by=None, now=NOW)
    assert (pauses_apply(NOW), halted_work_end(NOW), where(session)) == (0, 0, PAUSED)
    release_all_work(by=None, now=LATER)
    assert where(session) == (Status.QUEUED, "")


@pytest.mark.parametrize("status", [Status.QUEUED, Status.SLEEPING])
def test_a_run_that_was_paused_before_the_halt_is_spared_whatever_it_waits_for(status):
    session = make_session(status, paused_at=NOW)
    Pause.objects.create(scope="session", session=session, requested_at=NOW)
    found = halt_all_work(by=None, reason="", now=LATER, spare_waiting=True)
    assert (found.spared, found.ending) == (1, 0)
    halted_work_end(LATER)
    release_all_work(by=None, now=LATER)
    session.refresh_from_db()
    assert (session.status, session.paused_at) == (status, NOW)


def test_a_spared_run_that_a_person_pauses_stays_paused_after_the_release():
    session = make_session(Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    halt_all_work(by=None, reason="", now=NOW, spare_waiting=True)
    session_pause(session.pk, by=None, reason="look first", now=NOW)
    release_all_work(by=None, now=LATER)
    assert [pause.reason for pause in pauses_of(session)] == ["look first"]
    session.refresh_from_db()
    assert session.paused_at is not None


def test_a_run_that_woke_before_it_could_be_spared_is_not():
    make_session(Status.WAITING, waiting_on=WaitingOn.INPUT)
    halt = Halt.objects.create(scope="organisation", spares_waiting=True)
    real = pauses.session_lock

    def woken(pk):
        session_wake(pk, now=NOW)
        return real(pk)

    with patch.object(pauses, "session_lock", woken):
        assert sessions_spare(halt, now=NOW) == 0


# --- What was left half done ---


def test_the_ticker_finishes_a_pause_and_a_resumption():
    session = queued()
    pause = Pause.objects.create(scope="organisation", requested_at=NOW, actor="command")
    assert pauses_apply(NOW) == 1
    assert where(session) == PAUSED
    assert AuditEvent.objects.get(chain=session.chain).actor == "command"
    Pause.objects.filter(pk=pause.pk).update(resumed_at=LATER)
    assert pauses_apply(LATER) == 1
    assert where(session) == (Status.QUEUED, "")
    assert pauses_apply(LATER) == 0


def test_a_mark_without_any_pause_is_taken_away():
    session = make_session(paused_at=NOW)
    assert pauses_apply(LATER) == 1
    session.refresh_from_db()
    assert session.paused_at is None
    event = AuditEvent.objects.get(chain=session.chain)
    assert (event.actor, event.details) == ("system", {})


def test_one_session_that_cannot_be_paused_keeps_no_other_from_it(caplog):
    bad, good = queued(), queued()
    real = pauses.session_lock

    def locked(pk):
        if pk == bad.pk:
            raise OperationalError("locked")
        return real(pk)

    with patch.object(pauses, "session_lock", locked):
        work_pause(by=None, now=NOW)
    assert (where(bad), where(good)) == ((Status.QUEUED, ""), PAUSED)
    assert "it is tried again" in caplog.text
    assert pauses_apply(NOW) == 1


def test_what_changed_since_it_was_found_is_left_alone():
    covered, free = make_session(), make_session(paused_at=NOW)
    session_pause(covered.pk, by=None, now=NOW)
    over = make_session(Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
    with (
        patch.object(pauses, "_to_mark", return_value=[covered.pk, over.pk, free.pk]),
        patch.object(pauses, "_to_resume", return_value=[covered.pk, over.pk]),
    ):
        assert pauses_apply(NOW) == 0
    Pause.objects.create(scope="organisation")
    with patch.object(pauses, "_to_mark", return_value=[covered.pk, over.pk]):
        assert pauses_apply(NOW) == 0
    assert AgentSession.objects.get(pk=over.pk).paused_at is None


def test_of_two_who_resume_one_is_faster():
    session = queued()
    session_pause(session.pk, by=None, now=NOW)
    stale = Pause.objects.get()
    session_resume(session.pk, by=None, now=NOW)
    with patch.object(pauses.Pause.objects.filter(pk=0).__class__, "first", return_value=stale):
        assert pauses._close(Pause.objects.all(), by=None, now=NOW) is None


def test_a_finished_engine_is_not_held_up():
    session = queued()

    def engine(held):
        session_pause(held.pk, by=None, now=NOW)
        return Finished()

    assert run_session(session.pk, engine, owner="w", now=NOW)
    assert where(session) == (Status.COMPLETED, "")
