"""A host compares its clock with that of the database: leases go by the database's, and one far off claims nothing."""

from datetime import timedelta

import pytest
from django.db import connection
from django_q.models import OrmQ

from agents import database_clock
from agents.conf import clock
from agents.database_clock import both_clocks, difference_text, may_claim_lately, shared, time_to_claim
from agents.enums import Status
from agents.exceptions import InvalidTransition
from agents.management.supervisor import SensorProgress
from agents.models import AgentSession, Host, Lease, Sensor
from agents.queue import TaskName, enqueue
from agents.sensors.rows import leases_renew as sensor_leases_renew
from agents.sensors.rows import sensors_lease
from agents.sessions.control_room import health
from agents.sessions.faults import host_faults, host_here, host_report
from agents.sessions.leases import lease_claim, lease_claim_now, lease_next, leases_renew
from agents.ticker import LEASE, NAME, StandIn, Ticker
from tests.agents.autonomy import make_going
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)


@pytest.fixture
def off(monkeypatch, settings):
    """`off(seconds)` puts the clock of this host so far ahead of the database's. A lease is 20 seconds long."""
    settings.LQOPS_LEASE_SECONDS = 20
    now = clock()
    monkeypatch.setattr(database_clock, "clock", lambda: now)
    monkeypatch.setattr(database_clock._Lately, "looked_at", float("-inf"))
    monkeypatch.setattr(database_clock._Lately, "said_at", float("-inf"))

    def shift(seconds):
        monkeypatch.setattr(database_clock, "_ask", lambda: now - timedelta(seconds=seconds))

    shift(0)
    return shift


def waiting():
    return make_session(Status.QUEUED, enqueued_at=NOW)


# --- Where a claim stops ---


@pytest.mark.parametrize(
    ("seconds", "claims"),
    [(0, True), (4.999, True), (5, False), (90, False), (-4.999, True), (-5, False), (-90, False)],
)
def test_claims_stop_at_a_quarter_of_a_lease(off, seconds, claims):
    off(seconds)
    first, second = waiting(), waiting()

    assert (lease_claim(first.pk, owner="w", now=NOW) is not None) == claims
    assert (lease_next(owner="w", now=NOW) is not None) == claims
    assert AgentSession.objects.filter(status=Status.RUNNING).count() == (2 if claims else 0)
    assert second.pk


def test_log_says_why_nothing_is_claimed_once_a_minute(off, caplog):
    off(90)
    for _ in range(3):
        assert time_to_claim(NOW) is None

    assert caplog.text.count("claims no work") == 1
    assert "its clock is 90.0 s ahead of the database's; the limit is 5.0 s. Set the clock (NTP)" in caplog.text


def test_run_that_somebody_waits_for_is_refused_with_the_reason(off):
    run = waiting()
    off(-90)
    with pytest.raises(InvalidTransition, match=r"its clock is 90\.0 s behind the database's"):
        lease_claim_now(run, owner="w", now=NOW)


def test_queue_keeps_its_tasks_while_the_clock_is_off(off):
    off(90)
    assert not may_claim_lately()
    off(0)
    assert not may_claim_lately(), "it looks again after some seconds"
    database_clock._Lately.looked_at = float("-inf")
    assert may_claim_lately()


def test_supervisor_restarts_no_worker_because_it_claims_nothing(off):
    make_going()
    Sensor.objects.update(wanted=True)
    assert SensorProgress(2)._is_stuck()
    off(90)
    assert not SensorProgress(2)._is_stuck()


# --- Times that hosts compare are those of the database ---


@pytest.mark.parametrize("seconds", [4, -4])
def test_leases_are_given_and_renewed_by_the_time_of_the_database(off, seconds):
    off(seconds)
    run = waiting()
    of_database = NOW - timedelta(seconds=seconds)

    held = lease_claim(run.pk, owner="w", now=NOW)
    assert held.lease_until == of_database + 20 * SECOND
    leases_renew([(held.pk, held.fencing)], now=NOW + SECOND)
    assert AgentSession.objects.get(pk=run.pk).lease_until == of_database + 21 * SECOND


def test_host_that_is_ahead_takes_nothing_from_a_live_worker(off):
    off(0)
    run = waiting()
    assert lease_claim(run.pk, owner="live", now=NOW)
    off(4)
    assert lease_next(owner="other", now=NOW + 23 * SECOND) is None
    assert lease_next(owner="other", now=NOW + 24 * SECOND).pk == run.pk


@pytest.mark.parametrize("seconds", [4, -4, 90])
def test_sensors_are_leased_by_the_time_of_the_database(off, seconds):
    make_going()
    Sensor.objects.update(wanted=True)
    off(seconds)
    leased = sensors_lease(owner="s", now=NOW)
    if seconds == 90:
        assert leased == []
        return
    of_database = NOW - timedelta(seconds=seconds)
    assert {row.lease_until for row in leased} == {of_database + 20 * SECOND}
    sensor_leases_renew(owner="s", now=NOW + SECOND)
    assert {row.lease_until for row in Sensor.objects.filter(lease_owner="s")} == {of_database + 21 * SECOND}


@pytest.mark.parametrize("seconds", [4, -4])
def test_ticker_holds_its_lease_and_does_its_duties_by_the_time_of_the_database(off, seconds):
    off(seconds)
    Ticker().tick(NOW)
    lease = Lease.objects.get(name=NAME)
    of_database = NOW - timedelta(seconds=seconds)
    assert (lease.until, lease.done_at) == (of_database + LEASE, of_database)


def test_ticker_of_a_host_whose_clock_is_off_gives_way_and_reports_the_host(off):
    ticker = Ticker()
    assert ticker.tick(NOW) is not None
    off(90)
    ticker._next.clear()
    assert ticker.tick(NOW + SECOND) is None
    assert Lease.objects.get(name=NAME).owner == ""
    assert Host.objects.get().clock_ahead_ms == 90_000
    off(0)
    assert ticker.tick(NOW + 2 * SECOND) is not None


def test_ticker_between_two_looks_goes_by_the_difference_that_it_found(off):
    ticker = Ticker()
    off(4)
    ticker.tick(NOW)
    sleeper = make_session(Status.SLEEPING, next_wake_at=NOW)
    ticker.tick_on_time(NOW + 3 * SECOND)
    assert AgentSession.objects.get(pk=sleeper.pk).status == Status.SLEEPING
    ticker.tick_on_time(NOW + 4 * SECOND)
    assert AgentSession.objects.get(pk=sleeper.pk).status == Status.QUEUED


def test_tasks_are_visible_by_the_time_of_the_database(off):
    off(4)
    enqueue(TaskName.RUN_SESSION, 0)
    assert OrmQ.objects.get().lock <= clock() - 3 * SECOND


def test_stand_in_and_health_look_by_the_time_of_the_database(off):
    off(4)
    run = make_session(Status.RUNNING, lease_until=NOW)
    assert health(NOW + 3 * SECOND).lost == 0
    assert health(NOW + 4 * SECOND).lost == 1
    StandIn().check(NOW)
    assert Host.objects.get().seen_at == NOW - 4 * SECOND
    assert run.pk


# --- Health ---


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, ""),
        (1.999, ""),
        (2, "2.0 s ahead of the database's: set it (NTP)."),
        (-2, "2.0 s behind the database's: set it (NTP)."),
        (90, "90.0 s ahead of the database's: set it (NTP). It claims no work until its clock is right."),
    ],
)
def test_difference_of_two_seconds_is_red(off, seconds, text):
    off(seconds)
    host_report(NOW)
    host = Host.objects.get()
    found = [said for code, said in host_faults([host]) if code == f"clock:{host.name}"]
    assert [said.partition(" is ")[2] for said in found] == ([text] if text else [])
    assert host_here(NOW).clock_ahead_ms == int(seconds * 1000)


# --- The comparison ---


def test_time_that_the_answer_takes_is_no_difference(monkeypatch):
    times = iter([NOW, NOW + 10 * SECOND] * 3)
    monkeypatch.setattr(database_clock, "clock", lambda: next(times))
    for answered, ahead in ((NOW + 5 * SECOND, 0), (NOW - SECOND, 1), (NOW + 12 * SECOND, -2)):
        monkeypatch.setattr(database_clock, "_ask", lambda answered=answered: answered)
        assert both_clocks().ahead == timedelta(seconds=ahead)


def test_database_is_asked_for_its_clock():
    asked = ASK()
    assert abs(asked - clock()) < timedelta(seconds=5)
    if connection.vendor == "postgresql":
        before = asked
        assert ASK() > before, "also inside of a transaction it goes on"
    assert shared(NOW) == NOW
    assert difference_text(timedelta(seconds=3)) == "3.0 s ahead of"


ASK = database_clock._ask  # as it was before the tests had the clock of the host in its place
