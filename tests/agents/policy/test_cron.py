"""Cron fields in time zones: what is accepted, when it is due, and what was missed."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.exceptions import Invalid
from agents.policy.schedule import MOST_COUNTED, missed_since, next_after, validate

MINUTE = timedelta(minutes=1)


def at(text):
    return datetime.fromisoformat(f"{text}+00:00")


def following(expression, zone, after, number):
    found, moment = [], at(after)
    for _ in range(number):
        moment = next_after(expression, zone, moment)
        found.append(f"{moment:%Y-%m-%dT%H:%M}")
    return found


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "0 6 * * 1",
        "*/15 9-17 * * 1-5",
        "0,30 8,20 1,15 * *",
        "0 0 29 2 *",
        "0 0 31 1-12 *",
        "5 4 * * 7",
        "5 4 * * SUN",
        "0 0 1 JAN *",
        "0 0 L * *",
        "0 0 * 2 1#5",
        "0 0 30 2 1",  # either: the Mondays of February
        "  0   6 * * 1 ",
    ],
)
def test_an_expression_that_can_be_due_is_accepted(expression):
    validate(expression, "UTC")


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("@daily", "1 fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * 32 * *", "day-of-month"),
        ("* * * 13 *", "cannot be read: bad month"),
        ("* * 30 13 *", "cannot be read: bad month"),
        ("* * * * 8", "day-of-week"),
        ("5-1 * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("a b c d e", "minute"),
        ("1, * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("0 0 30 2 *", "cannot be read: bad day-of-month"),
        ("0 0 31 4,6,9,11 *", "cannot be read: bad day-of-month"),
        ("0 0 */31 * 1#3", "no day"),
        ("1" * 121, "120"),
    ],
)
def test_an_expression_that_is_never_due_is_refused_and_told_why(expression, says):
    with pytest.raises(Invalid, match=says):
        validate(expression, "UTC")


@pytest.mark.parametrize(
    "zone", ["", "Mars/Olympus", "europe/paris", "../etc/passwd", "/etc/localtime", "Europe", "a\0b"]
)
def test_a_zone_that_nobody_knows_is_refused(zone):
    with pytest.raises(Invalid, match="time zone"):
        validate("0 6 * * *", zone)


@given(st.text(alphabet="0123456789*/,-#LW SUNMOJA", max_size=40))
def test_whatever_is_written_is_accepted_or_refused_and_nothing_else(expression):
    try:
        validate(expression, "Europe/Paris")
    except Invalid:
        return
    assert next_after(expression, "Europe/Paris", at("2026-01-01T00:00")) > at("2026-01-01T00:00")


@pytest.mark.parametrize(
    ("expression", "after", "due"),
    [
        ("0 6 * * *", "2026-03-14T05:59", ["2026-03-14T06:00", "2026-03-15T06:00"]),
        ("0 6 * * *", "2026-03-14T06:00", ["2026-03-15T06:00"]),
        ("*/20 * * * *", "2026-03-14T09:26", ["2026-03-14T09:40", "2026-03-14T10:00"]),
        ("0 6 * * 7", "2026-03-14T00:00", ["2026-03-15T06:00", "2026-03-22T06:00"]),
        ("0 6 * * 0", "2026-03-14T00:00", ["2026-03-15T06:00"]),
        ("0 0 13 * 5", "2026-03-14T00:00", ["2026-03-20T00:00", "2026-03-27T00:00", "2026-04-03T00:00"]),
        ("0 0 1 * 1", "2026-03-28T00:00", ["2026-03-30T00:00", "2026-04-01T00:00", "2026-04-06T00:00"]),
        ("0 0 29 2 *", "2026-03-14T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 31 * *", "2026-03-14T00:00", ["2026-03-31T00:00", "2026-05-31T00:00"]),
        ("0 0-23 15 * *", "2026-03-14T00:00", ["2026-03-15T00:00", "2026-03-15T01:00"]),
        ("30 9-11/2 * * 1-5", "2026-03-14T00:00", ["2026-03-16T09:30", "2026-03-16T11:30", "2026-03-17T09:30"]),
    ],
)
def test_due_times_in_utc(expression, after, due):
    assert following(expression, "UTC", after, len(due)) == due


@pytest.mark.parametrize(
    ("expression", "zone", "after", "due"),
    [
        # Paris, 29 March 2026: 02:00 to 03:00 does not exist. What falls into it is due once, when it ends.
        ("30 2 * * *", "Europe/Paris", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("*/15 2 * * *", "Europe/Paris", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        (
            "0 */2 * * *",
            "Europe/Paris",
            "2026-03-28T22:30",
            ["2026-03-28T23:00", "2026-03-29T01:00", "2026-03-29T02:00"],
        ),
        ("0 6 * * *", "Europe/Paris", "2026-03-28T00:00", ["2026-03-28T05:00", "2026-03-29T04:00"]),
        ("30 * * * *", "Europe/Paris", "2026-03-29T00:00", ["2026-03-29T00:30", "2026-03-29T01:30"]),
        # Paris, 25 October 2026: 02:00 to 03:00 comes twice. It counts once, the first time.
        ("30 2 * * *", "Europe/Paris", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("30 2 * * *", "Europe/Paris", "2026-10-25T00:30", ["2026-10-26T01:30"]),
        ("30 2 * * *", "Europe/Paris", "2026-10-25T01:10", ["2026-10-26T01:30"]),
        (
            "*/30 2 * * *",
            "Europe/Paris",
            "2026-10-24T12:00",
            ["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-26T01:00"],
        ),
        ("0 */2 * * *", "Europe/Paris", "2026-10-24T23:00", ["2026-10-25T00:00", "2026-10-25T03:00"]),
        ("0 6 * * *", "Europe/Paris", "2026-10-24T12:00", ["2026-10-25T05:00", "2026-10-26T05:00"]),
        # An hourly schedule runs every real hour, however the hours are written.
        ("0 * * * *", "Europe/Paris", "2026-10-24T23:30", ["2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00"]),
        ("0 0-23 * * *", "Europe/Paris", "2026-10-24T23:30", ["2026-10-25T00:00", "2026-10-25T01:00"]),
        # New York: 8 March and 1 November 2026.
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00", ["2026-03-08T07:00", "2026-03-09T06:30"]),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["2026-11-01T05:30", "2026-11-02T06:30"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T06:15", ["2026-11-02T06:30"]),
        ("0 9 * * 1-5", "America/New_York", "2026-03-06T15:00", ["2026-03-09T13:00"]),
    ],
)
def test_a_local_time_that_a_clock_change_skips_or_repeats_is_due_once(expression, zone, after, due):
    assert following(expression, zone, after, len(due)) == due


@given(
    start=st.integers(0, 365 * 24 * 60).map(lambda minutes: datetime(2026, 1, 1, tzinfo=UTC) + minutes * MINUTE),
    expression=st.sampled_from(["30 2 * * *", "*/15 2 * * *", "0 */3 * * *", "15 1,2,3 * * *"]),
    zone=st.sampled_from(["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "UTC"]),
)
def test_a_local_time_is_never_due_twice_wherever_one_starts_to_look(start, expression, zone):
    first = next_after(expression, zone, start)
    assert first > start
    assert next_after(expression, zone, first - timedelta(seconds=1)) == first
    days = [next_after(expression, zone, first)]
    for _ in range(8):
        days.append(next_after(expression, zone, days[-1]))
    local = [moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for moment in days]
    assert local == sorted(set(local))


@pytest.mark.parametrize(
    ("expression", "after", "now", "missed"),
    [
        ("0 6 * * *", "2026-03-14T05:00", "2026-03-14T05:59", (None, 0)),
        ("0 6 * * *", "2026-03-14T05:59", "2026-03-14T06:00", ("2026-03-14T06:00", 1)),
        ("0 6 * * *", "2026-03-07T05:59", "2026-03-14T06:30", ("2026-03-14T06:00", 8)),
        ("*/5 * * * *", "2026-03-14T00:00", "2026-03-14T01:03", ("2026-03-14T01:00", 12)),
        ("0 0 29 2 *", "2019-01-01T00:00", "2026-03-14T00:00", ("2024-02-29T00:00", 2)),
        ("* * 1 * *", "2026-02-01T00:00", "2026-03-31T23:59", ("2026-03-01T23:59", MOST_COUNTED)),
        ("* * * * *", "2016-01-01T00:00", "2026-03-14T09:26", ("2026-03-14T09:26", MOST_COUNTED)),
    ],
)
def test_what_was_missed_is_the_last_time_and_a_bounded_count(expression, after, now, missed):
    last, count = missed_since(expression, "UTC", after=at(after), now=at(now))
    assert (f"{last:%Y-%m-%dT%H:%M}" if last else None, count) == missed


def test_a_repeated_hour_counts_as_one_missed_time():
    missed = missed_since("30 2 * * *", "Europe/Paris", after=at("2026-10-24T12:00"), now=at("2026-10-25T12:00"))
    assert missed == (at("2026-10-25T00:30"), 1)
