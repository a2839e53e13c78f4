"""When a loop that has ended starts again."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.enums import TerminalReason
from agents.policy.restarts import REVIVED, WANTED_ENDS, EndedLoop, renewal_at, restart_at

ENDED = datetime(2026, 3, 16, 9, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
R = TerminalReason


def ended(reason=R.WORKER_ERROR, *, lived=MINUTE, **more):
    return EndedLoop(reason, ENDED - lived, ENDED, **more)


def pause(loop, restart="on-failure", most=5):
    at = restart_at(loop, restart=restart, max_restarts=most)
    return None if at is None else (at - ENDED).total_seconds()


@pytest.mark.parametrize(
    ("restart", "reasons"),
    [
        ("never", set()),
        (
            "on-failure",
            {
                R.STUCK_LOOP,
                R.PROVIDER_ERROR,
                R.TOOL_NOT_GRANTED,
                R.WORKER_ERROR,
                R.WORKER_LOST,
                R.REFUSED,
                R.UNPRICED_MODEL,
            },
        ),
        ("always", set(R) - WANTED_ENDS - {R.COST_CAP_REACHED, R.BUDGET_EXCEEDED, R.COMPLETED}),
    ],
)
def test_each_policy_restarts_after_these_ends(restart, reasons):
    assert {reason for reason in R if pause(ended(reason), restart) is not None} == reasons


def test_pauses_double_up_to_an_hour_and_the_limit_ends_them():
    pauses = [pause(ended(restarts=number), most=12) for number in range(13)]
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600, None]


def test_loop_that_lived_for_an_hour_counts_its_restarts_anew():
    assert pause(ended(restarts=5)) is None
    assert pause(ended(restarts=5, lived=HOUR)) == 10


def test_loop_with_nothing_left_of_its_cap_is_not_restarted():
    assert pause(ended(has_room=False), "always") is None


def test_limit_of_zero_restarts_nothing():
    assert pause(ended(), most=0) is None


def test_renewal_covers_every_end_but_wanted_ones():
    assert {reason for reason in R if renewal_at(ended(reason)) is not None} == REVIVED
    assert renewal_at(ended(R.COMPLETED)) == ENDED
    assert renewal_at(ended(R.STUCK_LOOP)) == datetime(2026, 3, 17, tzinfo=UTC)
