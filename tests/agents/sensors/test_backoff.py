"""When a sensor looks again: exact waits, an exact circuit, and a pace that does not drift."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.sensors.signals import CIRCUIT, LONGEST_INTERVAL, is_to_be_told, next_due, wait_after


def test_failures_at_an_interval_of_five_seconds_wait_as_promised():
    assert [wait_after(n, 5) for n in range(1, 12)] == [5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300]


@pytest.mark.parametrize(
    ("interval", "waits"),
    [(1, [1, 2, 4, 8]), (0.05, [0.05, 0.1, 0.2, 0.4]), (200, [200, 300, 300, 300]), (300, [300] * 4)],
)
def test_waits_double_up_to_five_minutes(interval, waits):
    assert [wait_after(n, interval) for n in range(1, 5)] == waits


def test_source_that_is_asked_once_an_hour_is_not_asked_more_often_when_it_fails():
    assert {wait_after(n, 3600) for n in range(1, 50)} == {3600}


def test_no_failure_waits_the_interval():
    assert wait_after(0, 5) == 5


@given(st.integers(1, 10**9), st.floats(0.01, 10**6))
def test_wait_is_bounded_and_never_shrinks(failures, interval):
    wait = wait_after(failures, interval)

    assert interval <= wait <= max(LONGEST_INTERVAL, interval)
    assert wait_after(failures + 1, interval) >= wait


def test_somebody_is_told_once_in_a_row_of_failures():
    assert [n for n in range(1000) if is_to_be_told(n)] == [CIRCUIT] == [10]


def test_pace_is_kept_however_long_a_look_takes():
    due, looks = 100.0, []
    for took in (0.1, 0.9, 2.0, 0.3, 4.9, 0.0):
        looks.append(due)
        due = next_due(due, due + took, 5)

    assert looks == [100, 105, 110, 115, 120, 125]


def test_looks_that_were_missed_are_not_made_up_for():
    assert next_due(100, 117, 5) == 117
