"""Stuck detection beyond identical steps, monologues, and the hysteresis of wakes."""

import json
from itertools import pairwise

import pytest

from agents.policy.guardrails import (
    FREE_WAKES,
    LONGEST_WAKE_PAUSE,
    MOST_SAME_ERRORS,
    MOST_SILENT_TURNS,
    SAME_ERRORS_TOLD,
    WAKES_FORGOTTEN,
    Counters,
    GuardrailsConfig,
    Wakes,
    is_stuck,
    monologue_pause,
    observe_errors,
    observe_tool_calls,
    observe_turn,
    says_same_error,
    stuck_error,
)

DEFAULTS = GuardrailsConfig()


def stuck_after(names, config=DEFAULTS):
    """The number of steps after which it is stuck; None if it never is."""
    counters = Counters()
    for number, name in enumerate(names, start=1):
        counters = Counters.from_json(json.loads(json.dumps(counters.to_json())))
        counters = observe_tool_calls(counters, [(name, {})])
        if is_stuck(counters, config):
            return number
    return None


@pytest.mark.parametrize(
    ("steps", "after"),
    [
        ("AAAA", 4),
        ("ABABAB", None),
        ("ABABABA", 7),
        ("XABABABA", 8),
        ("ABABACABABAB", None),
        ("ABCABCABC", None),
        ("ABCABCABCA", 10),
        ("AABAABAABA", 10),
        ("ABCDABCDABCDABCD", None),
    ],
)
def test_alternation_is_stuck_when_the_circle_begins_once_too_often(steps, after):
    assert stuck_after(steps) == after


def test_limit_of_repetitions_holds_for_circles_too():
    assert stuck_after("ABABABABAB", GuardrailsConfig(max_repeated_tool_steps=4)) == 9
    assert stuck_after("AB", GuardrailsConfig(max_repeated_tool_steps=0)) == 1


def test_sleep_ends_a_circle():
    counters = Counters()
    for name in "ABABAB":
        counters = observe_tool_calls(counters, [(name, {})])
    assert is_stuck(observe_tool_calls(counters, [("A", {})]), DEFAULTS)
    assert not is_stuck(observe_tool_calls(counters.awake(), [("A", {})]), DEFAULTS)


def erring(*steps):
    counters = Counters()
    for errors in steps:
        counters = observe_errors(counters, errors)
    return counters


def test_same_error_again_and_again_is_told_once_and_then_stuck():
    states = [erring(*[[f"no such row {n}"] for n in range(number)]) for number in range(1, MOST_SAME_ERRORS + 1)]
    assert [says_same_error(state) for state in states].index(True) + 1 == SAME_ERRORS_TOLD
    assert sum(map(says_same_error, states)) == 1
    assert [is_stuck(state, DEFAULTS) for state in states] == [False] * (MOST_SAME_ERRORS - 1) + [True]
    assert not is_stuck(states[-1].awake(), DEFAULTS)


@pytest.mark.parametrize("between", [[None], ["other"], ["no", None], ["no", "other"]])
def test_success_or_another_error_ends_the_count(between):
    assert erring(["no"], ["no"], between, ["no"]).same_errors == 1


def test_step_without_calls_does_not_count():
    assert erring(["no"], [], ["no"]).same_errors == 2


def test_reason_of_being_stuck_is_named():
    circle = Counters(recent=tuple("ABABABA"))
    assert "same error" in stuck_error(DEFAULTS, Counters(same_errors=MOST_SAME_ERRORS))
    assert "in circles" in stuck_error(DEFAULTS, circle)
    assert "the same tool calls" in stuck_error(DEFAULTS, Counters())


def test_turns_that_call_nothing_are_paused_longer_each_time():
    counters, pauses = Counters(), []
    for _ in range(MOST_SILENT_TURNS + 8):
        counters = observe_turn(counters, has_calls=False)
        pauses.append(monologue_pause(counters))
    assert pauses[: MOST_SILENT_TURNS + 2] == [0] * (MOST_SILENT_TURNS - 1) + [60, 120, 240]
    assert pauses[-1] == 3_600
    assert counters.awake().silent_turns == counters.silent_turns
    assert monologue_pause(observe_turn(counters, has_calls=True)) == 0


def test_flapping_signal_wakes_less_and_less_often():
    wakes, now, times = Wakes(), 0.0, []
    for now in range(0, 7_200, 10):
        if wakes.allowed_at(now) <= now:
            wakes = Wakes.from_json(json.loads(json.dumps(wakes.woke(now).to_json())))
            times.append(now)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[:FREE_WAKES] == [10, 10, 60]
    assert gaps[-1] == LONGEST_WAKE_PAUSE
    assert wakes.allowed_at(now + WAKES_FORGOTTEN) == now + WAKES_FORGOTTEN
    assert wakes.woke(now + WAKES_FORGOTTEN).count == 1


def test_clock_that_went_back_does_not_keep_an_alert_from_waking():
    assert Wakes(9, 1_000.0).allowed_at(10.0) == 10.0


@pytest.mark.parametrize("kept", [None, [], ["1", 2], [1], {"count": 1}])
def test_malformed_wakes_count_as_none(kept):
    assert Wakes.from_json(kept) == Wakes()
