"""Recurring times in words, their cron, and what cron cannot keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.ask.strategies import when_of
from agents.policy import schedule


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("every minute", "* * * * *"),
        ("Every 30 minutes", "*/30 * * * *"),
        ("each hour", "0 * * * *"),
        ("every day at 7", "0 7 * * *"),
        ("daily at 7.45 pm", "45 19 * * *"),
        ("every morning", "0 6 * * *"),
        ("each evening", "0 18 * * *"),
        ("nightly", "0 0 * * *"),
        ("every night at 11pm", "0 23 * * *"),
        ("weekly", "0 6 * * 1"),
        ("every week at noon", "0 12 * * 1"),
        ("monthly", "0 6 1 * *"),
        ("once a month at midnight", "0 0 1 * *"),
        ("once an hour", "0 * * * *"),
        ("every weekday at 8:15", "15 8 * * 1-5"),
        ("on weekdays", "0 6 * * 1-5"),
        ("on Mondays", "0 6 * * 1"),
        ("every Monday and Thursday at 12am", "0 0 * * 1,4"),
        ("at 12 pm every sunday", "0 12 * * 0"),
    ],
)
def test_recurring_time_has_a_cron(text, expected):
    when = when_of(f"Please do it {text}")
    assert (when.cron, when.error) == (expected, "")
    schedule.validate(when.cron, "UTC")
    assert set(when.words.casefold().split()) == set(text.casefold().split())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("every 7 minutes", "choose one of 1, 2, 3"),
        ("every 0 minutes", "choose one of"),
        ("every 60 minutes", "choose one of"),
        ("every 5 hours", "choose one of 1, 2, 3, 4, 6, 8, 12"),
        ("every 2 weeks", "choose one of 1"),
        ("every 3 hours at 9", "time of day"),
        ("every day at 25:00", "no time of day"),
        ("every day at 13 pm", "no time of day"),
    ],
)
def test_time_that_cron_cannot_keep_is_an_error(text, why):
    when = when_of(text)
    assert when.cron == ""
    assert why in when.error


@pytest.mark.parametrize("text", ["tomorrow at 9", "in an hour", "everything", "the day after", "on Monday", ""])
def test_time_that_does_not_recur_is_no_schedule(text):
    assert when_of(text) is None


@given(
    number=st.integers(0, 9_999),
    unit=st.sampled_from(["minute", "hour", "day", "week", "month", "weekday"]),
    hour=st.integers(0, 99),
)
def test_every_cron_is_valid_for_a_schedule(number, unit, hour):
    for text in (f"every {number} {unit}s", f"every {unit} at {hour}", f"once a {unit} at {hour}:30"):
        when = when_of(text)
        assert bool(when.cron) != bool(when.error)
        if when.cron:
            schedule.validate(when.cron, "UTC")
