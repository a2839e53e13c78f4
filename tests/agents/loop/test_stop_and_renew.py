"""What ends a loop for good or until the next day: stops, definitions, owners; and the text of a turn."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from agents.conf import clock
from agents.enums import EventKind, Mode, Status, TerminalReason, TurnState
from agents.exceptions import NotAllowed
from agents.loop.reads import loop_current
from agents.loop.turns import KEPT, turns_delete_old
from agents.models import Agent, AgentSession, Alert, Trigger, Turn
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.roster.agents import agent_autonomous_sessions, agent_start, agent_stop
from agents.roster.files import definition_write
from agents.roster.loops import loop_next_start, loops_revive
from agents.sensors.rows import loops_going
from agents.sessions.leases import sleepers_wake
from agents.types import Usage
from audit.models import AuditEvent
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, SHUT_DOWN, says, sleeps
from tests.factories import make_trigger

pytestmark = pytest.mark.django_db

DAILY = "autonomy: {enabled: true, renew: daily}"
MIDNIGHT = datetime(2026, 3, 17, tzinfo=UTC)
SLOW_DOWN = Step(error=ProviderError("slow down", fault=Fault.RATE_LIMITED, contacted=True))


def stop(agent):
    return agent_stop(agent=agent, by=agent.owner, now=clock())


def define(agent, text):
    return definition_write(agent=agent, text=text, by=None, now=clock())


# --- Renewal ---


@pytest.fixture
def spent(agent, drive):
    """An agent that is renewed daily and has spent today's cap."""
    watcher = agent(f"max_cost_usd: 0.006\n{DAILY}")
    loop = drive(watcher)
    with script(GO_ON):
        assert loop.for_(hours=1).terminal_reason == TerminalReason.COST_CAP_REACHED
    return watcher


def test_agent_waiting_for_the_new_day_can_be_stopped(spent, time):
    assert loop_next_start(spent)
    assert stop(spent) is True
    time.move_to(MIDNIGHT + timedelta(minutes=1))

    assert not loop_next_start(spent)
    assert loops_revive(clock()) == 0
    assert loop_current(spent.pk) is None
    assert stop(spent) is False
    assert AuditEvent.objects.filter(kind="agent.stopped").count() == 1


def test_agent_that_was_not_stopped_is_renewed(spent, time):
    time.move_to(MIDNIGHT + timedelta(minutes=1))
    assert loops_revive(clock()) == 1
    assert not loop_next_start(spent)


def test_stop_between_day_end_and_renewal_prevents_it(agent, drive, time):
    watcher = agent(DAILY)
    loop = drive(watcher)
    with script(sleeps(20 * 3_600)):
        loop.task()
        time.move_to(MIDNIGHT + timedelta(seconds=1))
        sleepers_wake(clock())
        assert loop.task() == Status.COMPLETED
    stop(watcher)

    assert loops_revive(clock()) == 0
    assert loop_current(watcher.pk) is None


def test_agent_switched_off_and_on_is_not_renewed(spent, time):
    define(spent, f"enabled: false\nmax_cost_usd: 0.01\n{DAILY}")
    define(spent, f"enabled: true\nmax_cost_usd: 0.01\n{DAILY}")
    time.move_to(MIDNIGHT + timedelta(minutes=1))
    assert loops_revive(clock()) == 0


def test_agent_that_shut_down_is_not_renewed(agent, drive):
    watcher = agent(DAILY)
    loop = drive(watcher)
    with script(SHUT_DOWN):
        loop.task()
    assert not loop_next_start(watcher)


# --- Definitions without a loop or heartbeat ---


def test_definition_without_autonomy_stops_a_sleeping_loop(agent, drive):
    watcher = agent()
    loop = drive(watcher)
    with script(sleeps(86_000)):
        loop.task()
    define(watcher, "autonomy: {enabled: false}")

    assert (loop.row.status, loop.row.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert AuditEvent.objects.filter(kind="agent.stopped").count() == 1


def test_definition_without_heartbeat_ends_only_the_heartbeat(agent, drive):
    text = "autonomy: {enabled: true}"
    watcher = agent(f"{text}\nheartbeat: {{interval: 60, prompt: Look around.}}")
    before = agent_start(agent=watcher, by=None, now=clock())
    define(watcher, text)

    assert agent_autonomous_sessions(watcher).heartbeat is None
    assert agent_autonomous_sessions(watcher).loop == before.loop


def test_definition_that_keeps_both_ends_nothing(agent, drive):
    text = "autonomy: {enabled: true}\nheartbeat: {interval: 60, prompt: Look around.}"
    watcher = agent(text)
    before = agent_start(agent=watcher, by=None, now=clock())
    define(watcher, f"{text}\ndescription: Watches.")

    assert agent_autonomous_sessions(watcher) == before


# --- Deactivated owners ---


def leave(agent):
    User.objects.filter(pk=agent.owner_id).update(is_active=False)


def test_loop_of_a_deactivated_owner_ends_without_a_turn(agent, drive):
    watcher = agent()
    loop = drive(watcher)
    with script(sleeps(10)):
        loop.task()
    leave(watcher)
    with script(GO_ON) as model:
        row = loop.for_(minutes=5)

    assert row.terminal_reason == TerminalReason.OPTED_OUT
    assert not model.requests
    assert not loops_going().exists()


def test_nothing_starts_for_a_deactivated_owner(spent, time):
    leave(spent)
    time.move_to(MIDNIGHT + timedelta(minutes=1))
    assert loops_revive(clock()) == 0
    with pytest.raises(NotAllowed):
        agent_start(agent=spent, by=None, now=clock())
    assert not AgentSession.objects.active().filter(mode=Mode.LOOP).exists()
    assert not Trigger.objects.live().filter(pk=make_trigger(owner=spent.owner).pk).exists()


# --- The definition of a turn ---


def test_new_definition_applies_from_the_next_turn(agent, drive):
    watcher = agent()
    narrow = "skills: [look]\nautonomy: {enabled: true, max_actions_per_minute: 1}"
    wide = "skills: [look, press]\nautonomy: {enabled: true, max_actions_per_minute: 99}"
    Agent.objects.filter(pk=watcher.pk).update(definition=narrow)
    watcher.refresh_from_db()
    loop = drive(watcher)
    with script(says(("look", {})), SLOW_DOWN, GO_ON, sleeps(5)) as model:
        assert loop.task() == Status.WAITING
        define(watcher, wide)
        loop.sleep_out()
        loop.task()
        loop.task()
    offered = [{tool["function"]["name"] for tool in request.tools} for request in model.requests]

    assert [names & {"look", "press"} for names in offered] == [{"look"}, {"look"}, {"look"}, {"look", "press"}]
    assert [turn.seen["definition"] for turn in loop.turns()] == [1, 2]
    assert [turn.definition for turn in loop.turns()] == ["", ""]


def test_aborted_turn_keeps_no_definition(agent, drive):
    watcher = agent()
    loop = drive(watcher)
    with script(says(("look", {})), SLOW_DOWN):
        loop.task()
    assert loop.turns()[0].definition == watcher.definition
    stop(watcher)
    assert (loop.turns()[0].state, loop.turns()[0].definition) == (TurnState.FAILED, "")


# --- Forced sleeps ---


@pytest.mark.parametrize(
    ("limits", "guardrail"),
    [
        ("token_budget_per_hour: 40", "token_budget_per_hour"),
        ('active_hours: {start: "08:00", end: "09:01"}', "active_hours"),
    ],
)
def test_turn_count_restarts_after_a_forced_sleep(agent, drive, time, limits, guardrail):
    loop = drive(agent(f"autonomy: {{enabled: true, max_consecutive_turns: 3, {limits}}}"))
    with script(says(("yield", {"mode": "continue"}), usage=Usage(10, 10))):
        loop.task()
        loop.task()
        time.shift(timedelta(minutes=2))
        if loop.row.status == Status.QUEUED:
            loop.task()
        assert loop.guardrails() == [guardrail]
        assert loop.row.metadata["loop"]["consecutive"] == 0
        loop.sleep_out()
        loop.task()
    assert loop.guardrails() == [guardrail]


# --- Deleting old rows ---


def test_old_turns_and_cleared_alerts_are_deleted(agent, drive, time):
    loop = drive(agent())
    loop.alert("seen")
    with script(sleeps(5)):
        loop.task()
        loop.sleep_out()
        loop.task()
    loop.alert("waits")
    time.shift(KEPT - timedelta(minutes=1))
    assert turns_delete_old(clock()) == 0
    time.shift(timedelta(minutes=2))
    turns_delete_old(clock())

    assert [turn.number for turn in Turn.objects.all()] == [2]
    assert [alert.name for alert in Alert.objects.all()] == ["waits"]
    assert len(loop.events(EventKind.TURN_COMPLETED)) == 2
