"""Walks go on while their workers are killed: all end with a receipt, nothing happens twice, the books balance."""

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress

import pytest
from django.db.models import Max, Sum
from django_q.models import OrmQ

from agents.enums import Outcome, Status, TerminalReason
from agents.models import AgentSession, Budget, Finding, ToolCall
from agents.policy.transitions import TERMINAL
from agents.queue import Queue
from audit.verify import verify_log
from tests.flows.cluster import Cluster, ended, running
from tests.flows.processes import children_of, is_alive, until
from tests.flows.scenes import Scene

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

IMPATIENT = {"LQOPS_TEST_LEASE_SECONDS": "2", "LQOPS_STALL_SECONDS": "4"}
PROCESSES = 4  # two workers, what feeds them, and what files their results


class Killer:
    """Kills a random process below the queue's guard every few seconds: a worker, or what feeds the workers."""

    def __init__(self, cluster, seed, seconds):
        self._cluster = cluster
        self._random = random.Random(seed)
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill)
        self.killed = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _kill(self):
        while not self._over.wait(self._seconds):
            pids = self._cluster.workers()
            if pids:
                try:
                    os.kill(self._random.choice(pids), signal.SIGKILL)
                    self.killed += 1
                except ProcessLookupError:
                    continue


def assert_nothing_is_lost_or_doubled(sessions):
    assert {session.status for session in sessions} <= TERMINAL
    for session in sessions:
        assert session.result["terminal_reason"] == session.terminal_reason
        assert (session.cost_reserved_usd, session.cost_held_usd) == (0, 0)
        calls = ToolCall.objects.filter(session=session)
        assert not calls.filter(outcome=Outcome.STARTED).exists()
        assert session.cost_total_usd == (calls.aggregate(Sum("charged_usd"))["charged_usd__sum"] or 0)
        done = Counter(calls.filter(outcome=Outcome.SUCCESS).values_list("key", flat=True))
        assert set(done.values()) <= {1}
        if session.status == Status.COMPLETED:
            assert Finding.objects.filter(session=session).count() == 3
        else:
            assert session.terminal_reason == TerminalReason.WORKER_LOST
    today = Budget.objects.filter(scope="installation")
    booked = today.aggregate(charged=Sum("charged_usd"), reserved=Sum("reserved_usd"), held=Sum("held_usd"))
    assert booked["charged"] == sum(session.cost_total_usd for session in AgentSession.objects.all())
    assert (booked["reserved"], booked["held"]) == (0, 0)
    assert verify_log().verified


@pytest.fixture(scope="module")
def cluster(django_db_setup, django_db_blocker, _model_of_the_module):
    with running(django_db_blocker, {**_model_of_the_module.environment, **IMPATIENT}) as [started]:
        yield started


def walk_under_fire(cluster, walks, *, seed, kill_every=2.0, patience=900):
    scene = Scene()
    scene.watch(max_runs_per_hour=10 * walks, pause_after=0)
    sessions = AgentSession.objects.filter(owner=scene.owner)
    until(cluster.workers)
    with Killer(cluster, seed, kill_every) as killer:
        for _ in range(walks):
            scene.attach()
            time.sleep(kill_every / 2)  # so that kills fall between and into walks
        until(lambda: killer.killed > walks / 4)
    until(lambda: sessions.exclude(status__in=TERMINAL).count() == 0, patience)
    assert sessions.count() == walks
    assert_nothing_is_lost_or_doubled(sessions)
    assert sessions.filter(status=Status.COMPLETED).count() >= walks / 2  # one that was given up proves less
    print(f"{walks} walks, {killer.killed} kills, seed {seed}: {Counter(s.terminal_reason for s in sessions)}")


def test_queue_goes_on_after_all_its_idle_processes_were_killed(cluster):
    """Nobody waits with the lock of a queue in his hands, which would keep his successors out for ever."""
    scene = Scene()
    scene.watch()
    for _ in range(3):
        until(lambda: len(cluster.workers()) == PROCESSES)
        killed = cluster.workers()
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        scene.attach()

        assert ended(AgentSession.objects.filter(owner=scene.owner).latest("pk")).status == Status.COMPLETED
        assert not set(killed) & set(cluster.workers())


def test_tasks_are_acknowledged_after_the_process_that_acknowledges_was_killed(cluster):
    """Its successor finds the queue of results free."""
    scene = Scene()
    scene.watch()
    until(lambda: len(cluster.workers()) == PROCESSES)
    monitor = sorted(cluster.workers())[-2]  # started after the workers and before the pusher
    os.kill(monitor, signal.SIGKILL)
    until(lambda: monitor not in cluster.workers() and len(cluster.workers()) == PROCESSES)
    last = OrmQ.objects.aggregate(last=Max("pk"))["last"] or 0  # tasks of processes that were killed come again later

    later = 3
    for _ in range(later):
        scene.attach()
        assert ended(AgentSession.objects.filter(owner=scene.owner).latest("pk")).status == Status.COMPLETED

    # On a busy machine an impatient supervisor may restart the cluster once more, at a task that comes again later.
    until(lambda: OrmQ.objects.filter(key=Queue.MAIN, pk__gt=last).count() < later)


def test_ten_walks_survive_a_kill_every_second(cluster):
    walk_under_fire(cluster, 10, seed=7, kill_every=1.0, patience=180)


def test_workers_end_when_supervisor_and_cluster_are_killed_together(django_db_blocker, cluster, model):
    """A cluster of its own: the one of the module is needed by others."""
    with running_alone(model) as own:
        until(lambda: len(own.workers()) == PROCESSES)
        [main] = own.mains()
        below = [*own.workers(), *children_of(main)]
        tickers = [pid for pid in children_of(own.process.pid) if pid != main]

        for pid in (own.process.pid, main):
            os.kill(pid, signal.SIGKILL)

        until(lambda: not any(is_alive(pid) for pid in (*below, *tickers)))


@contextmanager
def running_alone(model):
    own = Cluster({**model.environment, **IMPATIENT})
    try:
        yield own
    finally:
        own.process.kill()
        own.process.communicate()


@pytest.mark.stress
def test_two_hundred_walks_survive_a_kill_every_two_seconds(cluster):
    walk_under_fire(cluster, 200, seed=random.randrange(10**6))


@pytest.mark.stress
@pytest.mark.redis
def test_two_hundred_walks_survive_kills_with_redis_as_broker(django_db_blocker, redis_url, cluster, model):
    cluster.stop()
    environment = {**model.environment, **IMPATIENT, "LQOPS_REDIS_URL": redis_url}
    with running(django_db_blocker, environment) as [through_redis]:
        walk_under_fire(through_redis, 200, seed=random.randrange(10**6))
