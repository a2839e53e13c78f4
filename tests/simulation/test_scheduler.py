"""The scheduler under many orders of events: whatever dies or comes late, everything ends and the books balance."""

import random
from collections import Counter
from unittest.mock import patch

import pytest

from agents.sessions import leases
from tests.simulation import simulator
from tests.simulation.simulator import simulated

pytestmark = pytest.mark.django_db


def play_all(seeds):
    """Play the seeds; return what happened in them. The first that goes wrong fails, and is named."""
    happened = Counter()
    with simulated() as play:
        for seed in seeds:
            wrong, counted = play(seed)
            assert wrong == [], f"seed {seed}"
            happened += counted
    return happened


@pytest.mark.parametrize(
    ("seeds", "at_least"),
    [(3, 0), pytest.param(40, 4, marks=pytest.mark.long), pytest.param(200, 20, marks=pytest.mark.stress)],
)
def test_every_order_of_events_ends_with_every_invariant_kept(seeds, at_least):
    happened = play_all(range(seeds))
    assert min(happened["runs_over"], happened["calls_made"]) >= seeds, happened
    rarest = min(happened[name] for name in ("died_in_a_call", "refused_late", "halt_all", "resolve"))
    assert rarest >= at_least, happened


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (
            patch.object(simulator, "GOING_ON", [one for one in simulator.GOING_ON if one is not leases.sleepers_wake]),
            "sleeping",
        ),
        (patch.object(leases, "journal_recover", return_value=False), "in flight already"),
    ],
    ids=["sleepers are not woken", "open calls are not closed"],
)
def test_a_scheduler_that_forgets_is_found_out(spoilt, says):
    with spoilt, pytest.raises(AssertionError, match=rf"(?s)seed \d+.*{says}"):
        play_all(range(50))


@pytest.mark.stress
def test_two_thousand_new_orders_of_events_end_with_every_invariant_kept():
    first = random.SystemRandom().randrange(10**9)
    print(f"seeds {first} to {first + 1_999}: {dict(play_all(range(first, first + 2_000)))}")
