"""Loops through simulated days: active hours, clock changes, budgets, the gate, and renewals."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from agents.conf import clock
from agents.enums import Status, TerminalReason, TurnState
from agents.loop.pacing import day_of
from agents.loop.reads import loop_current
from agents.models import AgentSession, GateDay
from agents.roster.loops import loop_stop, loops_revive
from agents.types import Usage
from tests.agents.conftest import script
from tests.agents.loop.conftest import Driven
from tests.agents.loop.scripted_replies import GO_ON, says, sleeps

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
DAILY = "autonomy: {enabled: true, renew: daily}"


def through(loop, until):
    """Run the loop, and those that follow it, as workers and the ticker would."""
    agent_id = loop.session.agent_id
    while True:
        row = loop.until(until)
        if row.status in {Status.SLEEPING, Status.WAITING}:
            return loop
        if not loops_revive(clock()):
            loop.time.move_to(min(day_of(clock()) + 24 * HOUR, until))
            if not loops_revive(clock()):
                return loop
        loop = Driven(loop_current(agent_id), loop.time)


@pytest.mark.long
def test_active_hours_over_a_day_with_a_clock_change(agent, drive, time):
    time.move_to(datetime(2026, 3, 28, 20, tzinfo=UTC))  # the day before Berlin's clocks are set forward
    text = 'zone: Europe/Berlin\nautonomy: {enabled: true, active_hours: {start: "08:00", end: "22:00"}}'
    loop = drive(agent(text))
    with script(sleeps(6 * 3_600 + 1_800)):
        loop.for_(hours=34)
    berlin = ZoneInfo("Europe/Berlin")
    hours = [turn.started_at.astimezone(berlin) for turn in loop.turns()]
    assert [hour.strftime("%d %H:%M") for hour in hours] == [
        "28 21:00",
        "29 08:00",
        "29 14:30",
        "29 21:00",
        "30 08:00",
    ]
    assert [turn.started_at.hour for turn in loop.turns() if turn.started_at.astimezone(berlin).hour == 8] == [6, 6]
    assert loop.guardrails() == ["active_hours"] * 2


@pytest.mark.long
def test_a_day_with_a_gate(agent, drive, small, time):
    text = """
        autonomy: {enabled: true, precheck_model: small-model}
        hot_state: {fields: {rsi: {type: number}}}
    """
    loop = drive(agent(text))
    began = clock()
    with small("no", "yes", "no"), script(sleeps(3_600)) as model:
        for hour in range(24):
            loop.see("rsi", hour // 6)  # it changes four times
            loop.until(began + hour * HOUR)
    states = [turn.state for turn in loop.turns()]
    assert (states.count(TurnState.DONE), states.count(TurnState.SKIPPED)) == (2, 22)
    assert len(model.requests) == 2, "the first, and the one that the small model asked for"
    first, second = GateDay.objects.order_by("day")
    assert (first.asked, first.unchanged, first.immaterial) == (2 + 3, 9, 4)
    assert (second.asked, second.unchanged, second.immaterial) == (9, 0, 9), "what changed stays changed till a turn"
    assert first.saved_usd + second.saved_usd >= 22 * loop.turns()[0].cost_usd


@pytest.mark.long
def test_hourly_token_budget_holds_each_hour_and_over_midnight(agent, drive, time):
    time.move_to(datetime(2026, 3, 16, 21, tzinfo=UTC))
    loop = drive(agent("autonomy: {enabled: true, token_budget_per_hour: 100, max_consecutive_turns: 1000}"))
    with script(says(("yield", {"mode": "continue"}), usage=Usage(90, 10))):
        loop.for_(hours=5, minutes=59)
    by_hour = {}
    for turn in loop.turns():
        by_hour[turn.started_at.hour] = by_hour.get(turn.started_at.hour, 0) + turn.tokens
    assert by_hour == dict.fromkeys([21, 22, 23, 0, 1, 2], 100)


# --- Renewals ---


def test_new_day_starts_a_new_session_with_a_full_cap(agent, drive, time):
    time.move_to(datetime(2026, 3, 16, 22, tzinfo=UTC))
    first = drive(agent(DAILY + "\nhot_state: {fields: {cash: {type: number}}}"))
    first.see("cash", 5)
    with script(sleeps(10 * 3_600, wake=["anomaly"])):
        loop = through(first, datetime(2026, 3, 18, 1, tzinfo=UTC))
    rows = list(AgentSession.objects.order_by("pk"))
    assert [row.created_at.isoformat() for row in rows] == [
        "2026-03-16T22:00:00+00:00",
        "2026-03-17T00:00:00+00:00",
        "2026-03-18T00:00:00+00:00",
    ]
    assert [row.terminal_reason for row in rows] == [TerminalReason.COMPLETED, TerminalReason.COMPLETED, None]
    assert [row.restarted_from_id for row in rows] == [None, rows[0].pk, rows[1].pk]
    assert rows[2].cost_total_usd < rows[1].cost_total_usd
    assert loop.session == rows[2]


def test_sleep_over_midnight_continues_with_pending_alerts(agent, drive, time):
    time.move_to(datetime(2026, 3, 16, 23, tzinfo=UTC))
    first = drive(agent(DAILY))
    with script(sleeps(4 * 3_600, wake=["anomaly"])) as model:
        first.task()
        assert first.row.next_wake_at == datetime(2026, 3, 17, tzinfo=UTC)
        first.alert("weather")
        first.sleep_out()
        assert first.task() == Status.COMPLETED
        assert loops_revive(clock()) == 1
        assert len(model.requests) == 1
    second = Driven(loop_current(first.session.agent_id), time)
    assert (second.row.status, second.row.next_wake_at) == (Status.SLEEPING, datetime(2026, 3, 17, 3, tzinfo=UTC))
    assert list(second.session.alerts.pending().values_list("name", flat=True)) == ["weather"]
    second.alert("anomaly")
    assert second.row.status == Status.QUEUED


def test_loop_at_its_cap_is_renewed_the_next_day(agent, drive, time):
    first = drive(agent("max_cost_usd: 0.006\n" + DAILY))
    with script(GO_ON):
        first.for_(hours=1)
    assert first.row.terminal_reason == TerminalReason.COST_CAP_REACHED
    time.move_to(datetime(2026, 3, 16, 23, 59, tzinfo=UTC))
    assert loops_revive(clock()) == 0
    time.move_to(datetime(2026, 3, 17, tzinfo=UTC))
    assert loops_revive(clock()) == 1
    assert loops_revive(clock()) == 0
    assert loop_current(first.session.agent_id).restarted_from == first.row


@pytest.mark.parametrize("how", ["stopped", "not daily", "switched off"])
def test_stopped_or_disabled_loops_are_not_renewed(agent, drive, time, how):
    text = "autonomy: {enabled: true} # renew: never" if how == "not daily" else DAILY
    loop = drive(agent("max_cost_usd: 0.006\n" + text))
    if how == "stopped":
        loop_stop(agent=loop.session.agent, by=None, now=clock())
    else:
        with script(GO_ON):
            loop.for_(hours=1)
    if how == "switched off":
        type(loop.session.agent).objects.update(enabled=False)
    time.move_to(datetime(2026, 3, 18, tzinfo=UTC))
    assert loops_revive(clock()) == 0


def test_turn_waiting_over_midnight_finishes_before_the_renewal(agent, drive, time, approver):
    time.move_to(datetime(2026, 3, 16, 23, 59, tzinfo=UTC))
    loop = drive(agent("autonomy: {enabled: true, renew: daily, idle_timeout: 0}"))
    slow = says(("look", {"place": "far"}), before_reply=lambda: time.shift(3_600))
    with script(slow, sleeps(60)):
        assert loop.task() == Status.QUEUED
        assert loop.task() == Status.SLEEPING
        loop.sleep_out()
        assert loop.task() == Status.COMPLETED
    assert [turn.state for turn in loop.turns()] == ["done"]
