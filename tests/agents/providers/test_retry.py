"""The schedule of retries."""

import random

from agents.providers.base import (
    LONGEST_WAIT_SECONDS,
    MOST_FORMS,
    Fault,
    ProviderError,
    Tries,
    fault_of_status,
    next_wait,
)
from tests.table import every_row


class Fixed(random.Random):
    """Draws a fixed place between the two ends."""

    def __init__(self, place):
        super().__init__()
        self.place = place

    def uniform(self, a, b):
        return a + (b - a) * self.place


def waits(fault, place=0.5, **more):
    tries, found = Tries(most=4), []
    while True:
        error = ProviderError("x", fault=fault, **more)
        tries = tries.after(error)
        wait = next_wait(error, tries, Fixed(place))
        if wait is None:
            return found
        found.append(wait)


def test_recoverable_faults_double_their_wait():
    assert waits(Fault.SERVER) == [1, 2, 4]
    assert waits(Fault.TIMEOUT, place=0) == [0.5, 1, 2]
    assert waits(Fault.CONNECTION, place=1) == [1.5, 3, 6]


def test_rate_limits_wait_longer_each_time():
    assert waits(Fault.RATE_LIMITED) == [30, 60, 90]
    assert waits(Fault.RATE_LIMITED, place=0) == [24, 48, 72]


def test_retry_after_is_respected_and_bounded():
    assert waits(Fault.RATE_LIMITED, place=0, retry_after=7) == [7, 7, 7]
    assert waits(Fault.SERVER, place=0, retry_after=1e9)[0] == LONGEST_WAIT_SECONDS


def test_objections_to_the_form_are_answered_at_once_and_bounded():
    assert waits(Fault.FORM) == [0.0] * MOST_FORMS


@every_row("fault", [Fault.AUTH, Fault.INVALID_REQUEST, Fault.NOT_SERVED, Fault.CANCELLED])
def test_final_faults_are_final(fault):
    assert waits(fault) == []


def test_rate_limits_have_a_count_of_their_own():
    tries = Tries(most=2)
    for fault in (Fault.RATE_LIMITED, Fault.SERVER):
        error = ProviderError("x", fault=fault)
        tries = tries.after(error)
        assert next_wait(error, tries, Fixed(0.5)) is not None
    assert next_wait(error, tries.after(error), Fixed(0.5)) is None


@every_row(
    ("status", "fault"), [(408, Fault.TIMEOUT), (409, Fault.SERVER), (425, Fault.SERVER), (418, Fault.INVALID_REQUEST)]
)
def test_every_status_has_a_fault(status, fault):
    assert fault_of_status(status) == fault
