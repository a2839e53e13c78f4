"""Agents that sleep cost nothing: what a tick takes, holds and keeps does not depend on how many there are."""

import gc
import statistics
import time
import tracemalloc
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ

from agents.conf import clock
from agents.enums import Mode, Phase, Status
from agents.models import Agent, AgentSession
from agents.sessions.leases import next_sleeper, sleepers_wake
from agents.ticker import Ticker
from agents.triggers.handing_on import children_attend
from tests.agents.loop.scripted_replies import START
from tests.factories import make_user
from tests.flows.processes import until

DAY = timedelta(days=1)
DUE = 10
TEXT = f"instructions: |\n{'  Say when something runs low.' * 30}\nautonomy: {{enabled: true}}\n"


def asleep(number, wake_at, *, text=TEXT, since=START):
    """So many agents, each with a loop that sleeps until then."""
    owner, first = make_user(), Agent.objects.count()
    agents = Agent.objects.bulk_create(
        Agent(owner=owner, name=f"sleeper-{first + n}", definition=text, definition_version=1) for n in range(number)
    )
    times = {"created_at": since, "last_activity_at": since, "next_wake_at": wake_at}
    kind = {"status": Status.SLEEPING, "mode": Mode.LOOP, "current_phase": Phase.TURN}
    return AgentSession.objects.bulk_create(
        AgentSession(owner=owner, agent=agent, max_cost_usd=1, **kind, **times) for agent in agents
    )


@pytest.fixture
def ticker():
    """One whose clock stands still: after its first tick it does what every tick does."""
    made = Ticker(monotonic=lambda: 0.0)
    made.tick(START)
    yield made
    made.leave()


def work_of(ticker, woken=0):
    """The seconds of work that a tick takes which finds so many that are due."""
    began = time.process_time()
    done = ticker.tick(START)
    took = time.process_time() - began
    assert done == ({"wake sleepers": woken} if woken else {})
    return took


def tick(ticker):
    """Its statements, and its seconds of work."""
    asleep(DUE, START)
    with CaptureQueriesContext(connection) as seen:
        took = work_of(ticker, DUE)
    return len(seen), took


def figures(ticker, rounds):
    taken = [tick(ticker) for _ in range(rounds)]
    return statistics.median(statements for statements, _ in taken), min(seconds for _, seconds in taken)


@pytest.mark.long
@pytest.mark.django_db
def test_a_tick_asks_as_much_with_many_sleepers_as_with_few(ticker):
    asleep(10, START + DAY)
    few, _ = tick(ticker)
    asleep(100, START + DAY)
    many, _ = tick(ticker)

    assert many == few


@pytest.mark.stress
@pytest.mark.django_db
def test_a_tick_takes_as_long_with_ten_thousand_sleepers_as_with_few(ticker):
    number = 10_000
    asleep(10, START + DAY)
    few = figures(ticker, rounds=7)
    asleep(number, START + DAY)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    many = figures(ticker, rounds=7)
    finding = min(work_of(ticker) for _ in range(7))
    told = f"{1_000 * many[1]:.1f} ms beside {number} sleepers, {1_000 * few[1]:.1f} beside 10"
    print(f"{connection.vendor}: a tick that wakes {DUE} takes {told}; one that wakes none {1_000 * finding:.1f}")

    assert many[0] == few[0]
    assert many[1] < 2 * few[1] + 0.005
    assert finding < 0.05


def plan_of(statement):
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {statement}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("find", "index"),
    [(sleepers_wake, "session_asleep"), (next_sleeper, "session_asleep"), (children_attend, "session_lent")],
)
def test_indexes_with_a_condition_are_used_without_statistics(find, index):
    """On SQLite nothing gathers them. PostgreSQL does it all the time."""
    with CaptureQueriesContext(connection) as seen:
        find(START)
    plans = [plan_of(query["sql"]) for query in seen]
    assert plans
    assert connection.vendor == "postgresql" or all(index in plan and "TEMP B-TREE" not in plan for plan in plans)


@pytest.mark.django_db
@pytest.mark.parametrize("number", [400, pytest.param(10_000, marks=pytest.mark.stress)])
def test_those_that_are_due_are_found_by_an_index_and_the_rest_hold_no_worker(number):
    asleep(number, START + DAY)
    asleep(DUE, START)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with CaptureQueriesContext(connection) as seen:
        assert sleepers_wake(START) == DUE
    assert "session_asleep" in plan_of(seen[0]["sql"])
    assert OrmQ.objects.count() == DUE
    assert AgentSession.objects.exclude(lease_owner="").count() == 0


@pytest.mark.long
@pytest.mark.django_db
@pytest.mark.parametrize(("number", "ticks"), [(200, 20), pytest.param(10_000, 200, marks=pytest.mark.stress)])
def test_ticks_keep_nothing(number, ticks):
    asleep(number, START + DAY)
    ticker = Ticker()
    for _ in range(10):
        ticker.tick(START)
    tracemalloc.start()
    try:
        ticker.tick(START)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(ticks):
            ticker.tick(START)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        ticker.leave()
    print(f"{connection.vendor}: {ticks} ticks beside {number} sleepers keep {grown} bytes")
    assert grown < 5_000 * ticks


@pytest.mark.stress
@pytest.mark.django_db(transaction=True)
def test_one_due_each_second_starts_within_two_seconds_beside_ten_thousand_that_sleep(cluster):
    """Through the real ticker and workers. Each of them ends at once, for its day is over."""
    asleep(10_000, clock() + DAY)
    begin = clock() + timedelta(seconds=3)
    text = TEXT.replace("enabled: true", "enabled: true, renew: daily")
    due = [asleep(1, begin + timedelta(seconds=n), text=text, since=clock() - DAY)[0] for n in range(60)]
    rows = AgentSession.objects.filter(pk__in=[session.pk for session in due])
    until(lambda: not rows.filter(started_at__isnull=True).exists())
    late = sorted(
        (at - session.next_wake_at).total_seconds()
        for session, at in zip(due, rows.order_by("pk").values_list("started_at", flat=True), strict=True)
    )
    print(f"{connection.vendor}: p95 {late[int(0.95 * len(late))]:.2f} s, most {late[-1]:.2f} s")

    assert late[int(0.95 * len(late))] <= 2
    assert AgentSession.objects.filter(status=Status.SLEEPING).count() == 10_000
