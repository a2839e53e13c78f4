from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.rows import GENESIS, canonical, digest, event_hash, microseconds
from tests.table import every_row

ROW = {
    "chain": "run",
    "seq": 1,
    "kind": "autonomous_session.started",
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "actor": "user:7",
    "subject": "session:run",
    "request_id": "req-1",
    "details": {"mode": "phased"},
    "prev_hash": GENESIS,
}


def test_hash_matches_a_fixed_value():
    assert event_hash(**ROW) == "b7cddd3d904ad2fd6bb3d89d3d86d6499e0ff4f8fd5d6ea6097b19e28cf35e02"


@every_row("column", ROW)
def test_every_column_changes_the_hash(column):
    other = {
        "seq": 2,
        "at": ROW["at"] + timedelta(microseconds=1),
        "details": {"mode": "loop"},
    }.get(column, "other")
    assert event_hash(**{**ROW, column: other}) != event_hash(**ROW)


def test_order_of_details_does_not_matter():
    assert digest({"a": 1, "b": [None, True]}) == digest({"b": [None, True], "a": 1})


def test_canonical_text_is_sorted_ascii_without_spaces():
    assert canonical({"ü": 1, "a": [1, None, False]}) == '{"a":[1,null,false],"\\u00fc":1}'


def test_canonical_refuses_numbers_that_json_does_not_know():
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(float("nan"))


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_are_exact(moment):
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds(moment)) == moment


def test_same_time_in_another_zone_has_the_same_hash():
    moved = ROW["at"].astimezone(timezone(timedelta(hours=5)))
    assert event_hash(**{**ROW, "at": moved}) == event_hash(**ROW)
