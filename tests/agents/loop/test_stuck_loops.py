"""Loops that go in circles, fail alike, talk to themselves, or are woken by a signal that flaps."""

from datetime import timedelta
from itertools import pairwise

import pytest

from agents.conf import clock
from agents.enums import Status, TerminalReason
from agents.policy.guardrails import CALL_YIELD, SAME_ERROR_AGAIN
from agents.providers.scripted import Step
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, prompt, says, sleeps

pytestmark = pytest.mark.django_db

TALK = Step("Let me think about that.")


def look(place):
    return says(("look", {"place": place}), ("yield", {"mode": "continue"}))


def test_alternating_calls_fail_the_loop_as_stuck(agent, drive):
    loop = drive(agent())
    with script(*[look("a"), look("b")] * 4):
        loop.for_(minutes=10)
    assert loop.row.terminal_reason == TerminalReason.STUCK_LOOP
    assert "in circles" in loop.row.error
    assert len(loop.turns()) == 7


def test_same_error_with_other_arguments_is_told_and_then_fails_the_loop(agent, drive):
    loop = drive(agent("autonomy: {enabled: true, max_tool_rounds: 50}"))
    with script(*(says(("set_state", {"name": f"field{number}", "value": 1})) for number in range(9))) as model:
        loop.for_(minutes=10)
    assert loop.row.terminal_reason == TerminalReason.STUCK_LOOP
    assert "same error" in loop.row.error
    assert len(model.requests) == 7
    assert SAME_ERROR_AGAIN.text not in prompt(model.requests[2])
    assert SAME_ERROR_AGAIN.text in prompt(model.requests[3])


def test_loop_that_only_talks_is_told_so_and_sleeps_longer_each_time(agent, drive):
    loop = drive(agent("autonomy: {enabled: true, idle_timeout: 0}"))
    with script(*[TALK] * 7, sleeps(60)) as model:
        loop.for_(minutes=10)
    assert CALL_YIELD.text not in prompt(model.requests[1])
    assert CALL_YIELD.text in prompt(model.requests[2])
    assert loop.guardrails() == ["monologue"] * 3
    begun = [turn.started_at for turn in loop.turns()]
    assert [later - earlier for earlier, later in pairwise(begun[4:8])] == [
        timedelta(seconds=seconds) for seconds in (60, 120, 240)
    ]
    assert loop.turns()[7].yielded == "sleep"


def test_signal_that_flaps_does_not_wake_each_time_and_is_not_lost(agent, drive, time):
    loop = drive(agent())
    woken = []
    with script(sleeps(86_400, wake=["flap"])):
        loop.task()
        for number in range(5):
            loop.alert("flap", str(number))
            if loop.row.status == Status.QUEUED:
                woken.append(number)
                loop.task()
            time.shift(timedelta(seconds=5))
        assert woken == [0, 1, 2]
        row = loop.row
        assert row.status == Status.SLEEPING
        assert row.next_wake_at - clock() == timedelta(seconds=60 - 15), "a minute after the last wake, at 10 seconds"
        loop.sleep_out()
        loop.task()
    assert [alert["name"] for alert in loop.turns()[-1].seen["alerts"]] == ["flap", "flap"]


def test_flapping_alert_in_a_turn_does_not_keep_the_loop_awake(agent, drive, time):
    loop = drive(agent())
    rings = sleeps(600, wake=["flap"], before_reply=lambda: loop.alert("flap"))
    with script(GO_ON, rings):
        statuses = [loop.task() for _ in range(5)]
    assert statuses == [Status.QUEUED] * 4 + [Status.SLEEPING]
    assert loop.row.next_wake_at == clock() + timedelta(seconds=60)


def test_messages_of_people_always_wake(agent, drive):
    loop = drive(agent())
    with script(sleeps(600)):
        loop.task()
        for _ in range(4):
            loop.alert("chat_message")
            assert loop.row.status == Status.QUEUED
            loop.task()
