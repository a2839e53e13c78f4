"""Waits between tries: exact, doubled, bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy.schedule import backoff

LONGEST = 300.0


@pytest.mark.parametrize(
    ("first", "waits"),
    [
        (5, [5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300]),
        (1, [1, 2, 4, 8]),
        (0.05, [0.05, 0.1, 0.2, 0.4]),
        (200, [200, 300, 300, 300]),
        (300, [300] * 4),
        (3600, [3600] * 50),
    ],
)
def test_waits_double_up_to_the_longest_and_never_below_the_first(first, waits):
    assert [backoff(n, first=first, longest=LONGEST) for n in range(1, len(waits) + 1)] == waits


def test_no_failure_waits_the_first_time():
    assert backoff(0, first=5, longest=LONGEST) == 5


@given(st.integers(1, 10**9), st.floats(0.01, 10**6))
def test_wait_is_bounded_and_never_shrinks(failures, first):
    wait = backoff(failures, first=first, longest=LONGEST)

    assert first <= wait <= max(LONGEST, first)
    assert backoff(failures + 1, first=first, longest=LONGEST) >= wait
