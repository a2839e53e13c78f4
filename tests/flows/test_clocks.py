"""Hosts whose clocks differ: leases go by the clock of the database, and a clock that is far off claims nothing."""

import time

import pytest
from django.db import connection

from agents.conf import clock
from agents.enums import Status
from agents.models import AgentSession
from audit.models import AuditEvent
from tests.factories import make_session, make_user
from tests.flows.processes import Worker, until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite serves one host, by its own clock"),
]

LEASE = 3.0
AHEAD = 90.0


@pytest.fixture(autouse=True)
def _short_leases(settings):
    settings.LQOPS_MAX_RUNNING_PER_USER = 20


def worker(owner, ahead=0.0, **how):
    process = Worker("take_turns", owner=owner, ahead=ahead, lease=LEASE, **how)
    process.wait_for("ready")
    return process


def queue_runs(number):
    return [make_session(Status.QUEUED, owner=make_user(), enqueued_at=clock()).pk for _ in range(number)]


def ended(runs):
    return AgentSession.objects.filter(pk__in=runs, status=Status.COMPLETED).count()


def takeovers():
    return AuditEvent.objects.filter(kind="autonomous_session.resumed", details__cause="takeover").count()


@pytest.mark.parametrize("ahead", [AHEAD, pytest.param(-AHEAD, marks=pytest.mark.long)])
def test_host_with_another_time_takes_no_run_from_live_workers(ahead):
    """It claims here although its clock is off: the time of leases is right without that limit."""
    runs = queue_runs(6)
    workers = [worker("right"), worker("shifted", ahead, ignore_limit=True)]

    until(lambda: ended(runs) == len(runs))
    for one in workers:
        one.tell("stop")
    worked = [one.result() for one in workers]

    assert takeovers() == 0
    assert sum(worked) == len(runs)
    assert min(worked) >= 1, "both have worked, beside each other"


@pytest.mark.parametrize("ahead", [AHEAD, pytest.param(-AHEAD, marks=pytest.mark.long)])
def test_host_whose_clock_is_off_claims_nothing_while_the_others_work(ahead):
    runs = queue_runs(4)
    workers = [worker("shifted", ahead), worker("right")]

    until(lambda: ended(runs) == len(runs))
    for one in workers:
        one.tell("stop")

    assert [one.result() for one in workers] == [0, len(runs)]
    assert takeovers() == 0


@pytest.mark.parametrize("ahead", [AHEAD, *(pytest.param(one, marks=pytest.mark.long) for one in (0.0, -AHEAD))])
def test_run_of_a_dead_worker_is_taken_over_when_its_lease_is_over(ahead):
    (run,) = queue_runs(1)
    dying = worker("dying", ahead, ignore_limit=True, dies=True)
    dying.wait_for("holding")
    dying.kill()
    died_at = time.monotonic()
    heir = worker("heir", -ahead, ignore_limit=True)

    until(lambda: takeovers() == 1)
    seconds = time.monotonic() - died_at
    until(lambda: ended([run]) == 1)
    heir.tell("stop")

    assert heir.result() == 1
    assert LEASE / 2 < seconds < 2.5 * LEASE + 5  # a busy machine starts processes late
