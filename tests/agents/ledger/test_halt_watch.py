"""Which calls in flight are told to stop."""

import threading
from unittest.mock import patch

import pytest

from agents.enums import HaltState, Status, TerminalReason
from agents.ledger.halt_watch import HaltWatch, _stopped
from tests.factories import make_session
from tests.flows.processes import until

pytestmark = pytest.mark.django_db


def told_to_stop(**row):
    session = make_session(status=Status.RUNNING, fencing=3, **row)
    return bool(list(_stopped([(session.pk, 3)])))


def test_call_of_a_run_that_goes_on_is_left_alone():
    assert not told_to_stop()


@pytest.mark.parametrize("reason", [TerminalReason.EXTERNAL_HALT, TerminalReason.STUCK_LOOP])
def test_call_of_a_halted_run_is_stopped(reason):
    assert told_to_stop(halt_state=HaltState.HALTED, terminal_reason=reason)


def test_call_that_was_paid_for_before_the_cap_was_reached_may_end():
    assert not told_to_stop(halt_state=HaltState.HALTED, terminal_reason=TerminalReason.COST_CAP_REACHED)


def test_call_of_a_run_that_cannot_be_seen_is_left_to_the_brakes():
    assert list(_stopped([(123456, 3)])) == []


def test_call_of_a_run_that_another_worker_took_over_is_stopped():
    session = make_session(status=Status.RUNNING, fencing=4)
    assert list(_stopped([(session.pk, 3)])) == [(session.pk, 3)]


def test_calls_are_watched_again_after_a_moment_in_which_no_thread_could_be_started():
    watch, seen = HaltWatch(), []
    session = make_session(status=Status.RUNNING, fencing=3)
    with patch.object(watch, "_read", seen.extend):
        none = patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread"))
        with none, pytest.raises(RuntimeError), watch.watching(session):
            pass
        with watch.watching(session):
            until(lambda: seen)

    assert seen[0] == (session.pk, 3)
    assert not watch._calls
