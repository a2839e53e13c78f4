"""Active hours: in a zone, over midnight, and where clocks are set."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy.schedule import Hours

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"]


def at(zone, *when):
    return datetime(*when, tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize(
    ("clock", "holds"),
    [("07:59", False), ("08:00", True), ("22:59", True), ("23:00", False), ("00:00", False)],
)
def test_start_is_in_and_end_is_out(clock, holds):
    hour, minute = map(int, clock.split(":"))
    assert Hours.of("08:00", "23:00", "UTC").hold(at("UTC", 2026, 3, 16, hour, minute)) is holds


@pytest.mark.parametrize(("hour", "holds"), [(21, False), (22, True), (0, True), (5, True), (6, False), (12, False)])
def test_hours_go_over_midnight(hour, holds):
    assert Hours.of("22:00", "06:00", "UTC").hold(at("UTC", 2026, 3, 16, hour)) is holds


def test_next_start_is_tomorrow_when_today_s_is_over():
    hours = Hours.of("08:00", "23:00", "UTC")
    assert hours.next_start(at("UTC", 2026, 3, 16, 23)) == at("UTC", 2026, 3, 17, 8)
    assert hours.next_start(at("UTC", 2026, 3, 16, 3)) == at("UTC", 2026, 3, 16, 8)


def test_the_zone_s_clock_decides():
    hours = Hours.of("08:00", "23:00", "America/New_York")
    assert not hours.hold(at("UTC", 2026, 1, 16, 12, 59))
    assert hours.hold(at("UTC", 2026, 1, 16, 13))
    assert hours.next_start(at("UTC", 2026, 7, 16, 4)) == at("UTC", 2026, 7, 16, 12)


@pytest.mark.parametrize(
    ("start", "now", "begins"),
    [
        (
            "02:30",
            (2026, 3, 29, 0, 0),
            (2026, 3, 29, 1, 0),
        ),  # there is no 02:30 in Berlin: at 03:00
        ("03:00", (2026, 3, 29, 0, 0), (2026, 3, 29, 1, 0)),
        ("02:30", (2026, 10, 25, 0, 0), (2026, 10, 25, 0, 30)),  # it comes twice
        ("02:30", (2026, 10, 25, 1, 10), (2026, 10, 25, 1, 30)),
    ],
)
def test_clocks_that_are_set(start, now, begins):
    hours = Hours.of(start, "12:00", "Europe/Berlin")
    assert hours.next_start(at("UTC", *now)) == at("UTC", *begins)


moments = st.integers(0, 365 * 86_400).map(lambda seconds: at("UTC", 2026, 1, 1) + timedelta(seconds=seconds))
clocks = st.tuples(st.integers(0, 23), st.integers(0, 59)).map(lambda pair: f"{pair[0]:02}:{pair[1]:02}")


@given(start=clocks, end=clocks, zone=st.sampled_from(ZONES), now=moments)
def test_they_begin_at_the_first_moment_after_a_pause_at_which_they_hold(start, end, zone, now):
    hours = Hours.of(start, end, zone)
    if start == end or hours.hold(now):
        return
    begins = hours.next_start(now)
    assert begins > now
    assert hours.hold(begins)
    steps = int((begins - now) / timedelta(minutes=7))
    assert not any(hours.hold(now + timedelta(minutes=7 * step)) for step in range(steps))
    assert not hours.hold(begins - timedelta(seconds=1))
