"""Conditions on readings: limits with hysteresis, durations, changes, patterns, absence."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy.conditions import Condition, judge, judge_time, pattern_problem, waits_for_time
from tests.benchmarks.conditions import processor_seconds
from tests.effort import takes_at_most

NOW = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)


def dec(value):
    return Decimal(str(value))


def fired(condition, *readings, each=False, seconds=1):
    """Judge readings one after the other, and return those on which the signal fires."""
    conditions = condition if isinstance(condition, tuple) else (condition,)
    state, found = {}, []
    for number, reading in enumerate(readings):
        judged = judge(conditions, state, [reading], now=NOW + timedelta(seconds=number * seconds), each=each)
        state = json.loads(json.dumps(judged.state))  # as it is stored
        found += judged.fired
    return found


def test_signal_fires_when_it_becomes_true_and_again_after_it_was_false():
    assert fired(Condition(above=dec(80)), 79, 81, 95, 80, 82) == [81, 82]
    assert fired(Condition(below=dec(10)), 9, 8, 10, 9) == [9, 9]
    assert fired(Condition(between=(dec(1), dec(2))), 0, 1, 2, 3, 1.5) == [1, 1.5]


def test_value_around_its_limit_fires_once_with_hysteresis():
    swings = [81, 79, 81, 76, 82, 75, 81]
    assert fired(Condition(above=dec(80)), *swings) == [81, 81, 82, 81]
    assert fired(Condition(above=dec(80), clear=dec(75)), *swings) == [81, 81]
    assert fired(Condition(below=dec(10), clear=dec(20)), 9, 11, 9, 19, 20, 9) == [9, 9]
    assert fired(Condition(between=(dec(4), dec(6)), clear=(dec(2), dec(8))), 5, 7, 5, 3, 5, 9, 5) == [5, 5]


def test_condition_has_to_hold_for_its_duration():
    held = Condition(above=dec(80), hold=3)
    assert fired(held, 81, 82, 83, 84, 85) == [84]
    assert fired(held, 81, 82, 70, 83, 84, 85, 86) == [86], "a break starts the time again"


def test_duration_goes_on_while_the_source_reports_nothing_new():
    held = (Condition(above=dec(80), hold=60),)
    state = judge(held, {}, [81], now=NOW, each=False).state
    assert judge_time(held, state, now=NOW + timedelta(seconds=59))[0] is False
    fires, state = judge_time(held, state, now=NOW + timedelta(seconds=60))
    assert fires is True
    assert judge_time(held, state, now=NOW + timedelta(seconds=61))[0] is False, "once"


def test_every_change_fires_and_the_first_value_is_none():
    assert fired(Condition(changed=True), 1, 1, 2, 3, 3, 1) == [2, 3, 1]
    readings = [{"a": [1, 2], "t": 1}, {"t": 2, "a": [1, 2]}, {"a": [2, 1], "t": 3}, {"t": 4}]
    assert fired(Condition(path="a", changed=True), *readings) == readings[2:]


def test_items_are_judged_one_by_one():
    lines = ["ERROR one", "ok", "ERROR two", "ERROR three"]
    pattern = (Condition(matches="^ERROR"),)
    judged = judge(pattern, {}, lines, now=NOW, each=True)
    assert list(judged.fired) == [lines[0], lines[2], lines[3]]
    assert list(judge(pattern, {}, lines, now=NOW, each=False).fired) == [lines[0], lines[2]]


def test_all_conditions_of_a_signal_have_to_be_met():
    both = (Condition(path="n", above=dec(5)), Condition(path="kind", matches="^real$"))
    readings = [{"n": 6, "kind": "test"}, {"n": 6, "kind": "real"}, {"n": 4, "kind": "real"}]
    assert fired(both, *readings) == [readings[1]]


def test_absence_is_noticed_without_a_reading_and_reported_once():
    absent = (Condition(matches="alive", absent_for=60),)
    state = judge_time(absent, {}, now=NOW)[1]
    assert waits_for_time(absent, state)
    state = judge(absent, state, ["alive"], now=NOW + timedelta(seconds=50), each=False).state
    state = judge(absent, state, ["other"], now=NOW + timedelta(seconds=100), each=False).state
    assert judge_time(absent, state, now=NOW + timedelta(seconds=109))[0] is False
    fires, state = judge_time(absent, state, now=NOW + timedelta(seconds=110))
    assert fires is True
    assert not waits_for_time(absent, state)
    state = judge(absent, state, ["alive"], now=NOW + timedelta(seconds=200), each=False).state
    assert judge_time(absent, state, now=NOW + timedelta(seconds=260))[0] is True, "it can be absent again"


def test_part_that_is_missing_or_null_is_absent():
    absent = Condition(path="beat", absent_for=2)
    assert fired(absent, {"beat": 1}, {}, {"beat": None}, {}) == [{"beat": None}]


@pytest.mark.parametrize("value", ["31.5", 31.5, 31, Decimal("31.5")])
def test_numbers_are_compared_also_as_text(value):
    assert fired(Condition(path="n", above=dec(30)), {"n": value}) == [{"n": value}]


@pytest.mark.parametrize("value", [True, None, "high", "", [1], {"a": 1}, "NaN", "Infinity", float("nan"), "9" * 50])
def test_value_that_is_no_number_is_not_judged_and_changes_nothing(value):
    condition = (Condition(path="n", above=dec(30)),)
    met = judge(condition, {}, [{"n": 31}], now=NOW, each=False)
    judged = judge(condition, met.state, [{"n": value}, {}], now=NOW, each=False)

    assert (judged.fired, judged.unjudged, judged.state) == ((), 2, met.state)
    assert judged.problem == "there is nothing at n"
    assert "is not a number" in judge(condition, {}, [{"n": value}], now=NOW, each=False).problem


def test_clock_that_is_set_back_neither_fires_nor_waits_longer():
    held = (Condition(above=dec(80), hold=60),)
    state = judge(held, {}, [81], now=NOW, each=False).state
    back = NOW - timedelta(days=1)
    judged = judge(held, state, [81], now=back, each=False)
    assert judged.fired == ()
    assert judge(held, judged.state, [81], now=back + timedelta(seconds=60), each=False).fired == (81,)


def test_runaway_pattern_takes_no_longer_than_any_other():
    def both():
        assert fired(Condition(matches=r"^(a+)+$"), "a" * 60_000 + "b") == []
        assert fired(Condition(matches=r"(x+x+)+y"), "x" * 60_000) == []

    assert takes_at_most(1, both)


@pytest.mark.parametrize("pattern", ["(", "a{1000}{1000}", r"\1", "(?=a)", "x" * 501, "(?P<a", "((a{100}){100}){100}"])
def test_pattern_that_cannot_be_used_is_named(pattern):
    assert pattern_problem(pattern)


def test_text_with_half_characters_is_searched():
    assert fired(Condition(matches="b$"), "a\ud800b") == ["a\ud800b"]


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(20, 80), st.integers(0, 20))
def test_with_hysteresis_two_firings_have_a_clearing_between_them(values, above, width):
    condition = Condition(above=dec(above), clear=dec(above - width))
    found = fired(condition, *values)
    is_on, expected = False, []
    for value in values:
        if not is_on and value > above:
            is_on = True
            expected.append(value)
        elif is_on and value <= above - width:
            is_on = False
    assert found == expected


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)))
def test_any_reading_can_be_judged(reading):
    for condition in (
        Condition(above=dec(1)),
        Condition(changed=True),
        Condition(matches="a"),
        Condition(absent_for=5),
    ):
        judge((condition,), {}, [reading, reading], now=NOW, each=False)


def test_conditions_are_written_in_words():
    assert str(Condition(path="a.b", above=dec(80), hold=60)) == "a.b above 80 for 60 seconds"
    assert str(Condition(between=(dec(1), dec(2)))) == "the reading between 1 and 2"
    assert str(Condition(changed=True)) == "the reading changed"
    assert str(Condition(matches="x", absent_for=5)) == "the reading matches x absent for 5 seconds"


def test_500_conditions_take_little_time_and_no_more_with_time():
    processor_seconds(500, 2)  # compiles the patterns
    early, late = processor_seconds(500, 5), processor_seconds(500, 20)

    assert late < 0.25, "a quarter of a second a second would be a lot on a loaded machine"
    assert late < 4 * early + 0.02, "the time of a reading does not grow with their number"
