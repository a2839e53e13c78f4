"""The pace of a loop after a turn: pure decisions."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.enums import TerminalReason
from agents.loop.pacing import (
    GATE_LEAST,
    Move,
    Pace,
    Triggered,
    Yielded,
    YieldMode,
    add_idle_time,
    after_failure,
    after_skip,
    idle_limit_reached,
    limit_consecutive_turns,
    next_day,
    next_hour,
    next_move,
    sleep_at_least,
    wake_at_midnight,
)
from agents.types import Asleep, Finished, SliceOver

NOW = datetime(2026, 3, 16, 10, 20, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def act(pace, yielded, *, wake_on_chat=True):
    return next_move(pace, yielded, wake_on_chat=wake_on_chat, now=NOW)


def seconds(move):
    return (move.until - NOW) // SECOND


def test_continue_goes_on_and_counts():
    move = act(Pace(consecutive=2, sleep_seconds=30), Yielded())
    assert (move.end, move.pace.consecutive, move.pace.sleep_seconds) == (SliceOver(), 3, 0)


def test_sleep_sets_the_wake_time_and_resets_the_counts():
    move = act(Pace(consecutive=7, errors=2, skips=3), Yielded(YieldMode.SLEEP, 30, ("anomaly", "anomaly")))
    assert move.end == Asleep(NOW + 30 * SECOND)
    assert (move.pace.consecutive, move.pace.errors, move.pace.skips, move.pace.slept) == (0, 0, 0, True)
    assert move.wakes == ("anomaly", "chat_message")
    assert act(Pace(), Yielded(YieldMode.SLEEP, 30, ("a",)), wake_on_chat=False).wakes == ("a",)


def test_shutdown_ends():
    assert act(Pace(), Yielded(YieldMode.SHUTDOWN)).end == Finished(TerminalReason.AGENT_SHUTDOWN)


def test_consecutive_turn_limit_forces_a_sleep():
    move = limit_consecutive_turns(Move(SliceOver(), Pace(consecutive=3)), limit=3, now=NOW)
    [found] = move.triggered
    assert (seconds(move), move.pace.consecutive, move.pace.slept) == (60, 0, True)
    assert (found.name, found.numbers) == ("max_consecutive_turns", {"turns": 3, "limit": 3, "sleep_seconds": 60})
    below = Move(SliceOver(), Pace(consecutive=2))
    assert limit_consecutive_turns(below, limit=3, now=NOW) == below
    sleeping = Move(Asleep(NOW), Pace(consecutive=3))
    assert limit_consecutive_turns(sleeping, limit=3, now=NOW) == sleeping


def test_skipped_wakes_repeat_the_agent_s_sleep_and_double():
    pace, lengths = Pace(sleep_seconds=30, consecutive=4), []
    for _ in range(6):
        move = after_skip(pace, now=NOW)
        pace = move.pace
        lengths.append(seconds(move))
    assert lengths == [30, 60, 120, 240, 300, 300]
    assert pace.consecutive == 4


def test_skip_without_a_sleep_waits_the_minimum():
    assert seconds(after_skip(Pace(), now=NOW)) == GATE_LEAST


@given(sleep=st.integers(0, 100_000), skips=st.integers(0, 40))
def test_skip_never_shortens_the_agent_s_sleep(sleep, skips):
    length = seconds(after_skip(Pace(sleep_seconds=sleep, skips=skips), now=NOW))
    assert max(sleep, GATE_LEAST) <= length <= max(sleep, 300)


def failures(*reasons, pace=None):
    """The moves after turns that failed for these reasons, one after the other."""
    moves = []
    for reason in reasons:
        moves.append(after_failure(moves[-1].pace if moves else pace or Pace(), reason, now=NOW))
    return moves


def test_failed_turns_back_off_and_five_end_the_loop():
    moves = failures(*[TerminalReason.WORKER_ERROR] * 5)
    assert [seconds(move) for move in moves[:4]] == [5, 10, 20, 40]
    assert moves[4].end == Finished(TerminalReason.WORKER_ERROR)


def test_failures_of_the_model_never_end_the_loop():
    moves = failures(*[TerminalReason.PROVIDER_ERROR] * 30)
    assert [seconds(move) for move in moves[:5]] == [5, 10, 20, 40, 80]
    assert {seconds(move) for move in moves[10:]} == {3_600}


def test_failures_of_the_model_do_not_count_to_those_that_end_the_loop():
    model, other = TerminalReason.PROVIDER_ERROR, TerminalReason.REFUSED
    moves = failures(*[model] * 20, *[other] * 4, model, other)
    assert all(isinstance(move.end, Asleep) for move in moves[:-1])
    assert moves[-1].end == Finished(other)


@pytest.mark.parametrize(
    ("end", "then"),
    [
        (SliceOver(), Asleep(NOW + 60 * SECOND)),
        (Asleep(NOW + SECOND), Asleep(NOW + 60 * SECOND)),
        (Asleep(NOW + 90 * SECOND), Asleep(NOW + 90 * SECOND)),
        (Finished(), Finished()),
    ],
)
def test_guardrail_pause_only_lengthens_a_sleep(end, then):
    move = sleep_at_least(Move(end, Pace(), ("a",)), NOW + 60 * SECOND, Triggered("budget"))
    assert (move.end, move.triggered) == (then, (Triggered("budget"),))


def test_hours_and_days_are_those_of_the_clock():
    assert next_hour(NOW) == datetime(2026, 3, 16, 11, tzinfo=UTC)
    assert next_day(NOW) == datetime(2026, 3, 17, tzinfo=UTC)


def test_sleep_over_midnight_is_cut_and_remembered():
    long = Asleep(NOW + timedelta(hours=20))
    move = wake_at_midnight(Move(long, Pace()), now=NOW)
    assert move.end == Asleep(next_day(NOW))
    assert move.pace.sleep_until == long.wake_at.isoformat()
    assert wake_at_midnight(Move(SliceOver(), Pace()), now=NOW).end == SliceOver()


def test_idle_time_adds_up_and_an_action_ends_it():
    pace = add_idle_time(Pace(idle_ms=590_000), since=NOW - 10 * SECOND, last_action_at=None, now=NOW)
    assert idle_limit_reached(pace, limit=600).numbers == {"idle_seconds": 600, "limit": 600}
    assert idle_limit_reached(pace, limit=0) is None
    acted = add_idle_time(pace, since=NOW - 10 * SECOND, last_action_at=NOW - 3 * SECOND, now=NOW)
    assert acted.idle_ms == 3_000
    assert idle_limit_reached(acted, limit=600) is None


@given(
    st.builds(
        Pace,
        consecutive=st.integers(0, 99),
        slept=st.booleans(),
        wakes=st.lists(st.text(max_size=9), max_size=3).map(tuple),
        hour=st.text(max_size=9),
    )
)
def test_pace_is_kept_as_json(pace):
    assert Pace.from_json(pace.to_json()) == pace


@pytest.mark.parametrize("kept", [None, [], {"consecutive": "3", "slept": 1, "wakes": None, "other": 5}])
def test_unknown_or_mistyped_pace_values_are_ignored(kept):
    assert Pace.from_json(kept) == Pace()
