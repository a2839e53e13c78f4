"""Whole runs through the queue: how long one takes, how soon it starts, and how many end in a second.

`python -m tests.benchmarks.walks [--rounds 10] [--backlog 40]` on the database of LQOPS_DATABASE_URL, with two workers,
the offline analyst and both brokers (Redis if it answers on loopback). The reference is the same run without a queue,
in one process.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

from tests.benchmarks.guard import made

# isort: split
from django.conf import settings
from django.db import connection
from django_q.conf import Conf
from django_q.signals import pre_enqueue

from agents import runner
from agents.conf import clock
from agents.enums import Status
from agents.models import AgentSession
from agents.tasks import ENGINES
from tests.benchmarks.cluster import REDIS, redis_answers, working
from tests.benchmarks.paired import record
from tests.factories import start_run
from tests.flows.processes import until
from tests.flows.scenes import Scene

WORKERS = 2
TEXT = "The supplier's liability is unlimited. Either party may end this agreement with three months' notice. " * 20


def start(scene: Scene) -> AgentSession:
    return start_run(playbook=scene.playbook, document=scene.attach(TEXT), now=clock(), **scene.by)


def ended(sessions: Sequence[AgentSession]) -> list[AgentSession]:
    """Wait for their ends, and return them in the order of these."""
    rows = AgentSession.objects.filter(pk__in=[session.pk for session in sessions])
    until(lambda: not rows.filter(completed_at__isnull=True).exists())
    found = list(rows.order_by("completed_at"))
    assert all(session.status == Status.COMPLETED for session in found), {session.error for session in found}
    return found


def alone(scene: Scene, rounds: int) -> float:
    """Return the seconds of a run in this process."""
    taken = []
    for _ in range(rounds):
        session = start(scene)
        began = time.perf_counter()
        assert runner.run_session(session.pk, ENGINES[session.mode], owner="benchmark")
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def queued(broker: str, scenes: Sequence[Scene], reference: float, rounds: int, backlog: int) -> None:
    def measured(name: str, values: Sequence[float], unit: str, ratios: Sequence[float] = ()) -> None:
        told = "the run without a queue" if ratios else ""
        record(f"walk.{broker}.{name}", values, unit=unit, database=connection.vendor, ratios=ratios, reference=told)

    ended([start(scene) for scene in scenes])  # imports and self-test of the workers
    sent = []
    pre_enqueue.connect(note := lambda **_: sent.append(clock()))
    each = [ended([start(scenes[0])])[0] for _ in range(rounds)]
    pre_enqueue.disconnect(note)
    starts = [(one.started_at - at).total_seconds() for one, at in zip(each, sent, strict=True)]
    whole = [(one.completed_at - one.created_at).total_seconds() for one in each]
    measured("start", [1_000 * seconds for seconds in starts], "ms")
    measured("latency", [1_000 * seconds for seconds in whole], "ms", [seconds / reference for seconds in whole])
    many = ended([start(scenes[number % len(scenes)]) for number in range(backlog)])
    # From the second half alone: the runs are made one after another, and the first are done before the last is made.
    half = many[backlog // 2 :]
    rate = (len(half) - 1) / (half[-1].completed_at - half[0].completed_at).total_seconds()
    measured("throughput", [rate], "runs/s", [rate * reference])


def send_tasks_to_redis() -> None:
    """Have this process, which starts the runs, send their tasks to the broker of the workers."""
    del settings.Q_CLUSTER["orm"]
    Conf.BROKER_CLASS, Conf.ORM, Conf.REDIS = "agents.queue.redis.RedisBroker", None, REDIS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--backlog", type=int, default=40)
    given = parser.parse_args()
    made()
    scenes = [Scene() for _ in range(2 * WORKERS)]
    alone(scenes[0], 2)
    reference = alone(scenes[0], given.rounds)
    record("walk.alone", [1_000 * reference], unit="ms", database=connection.vendor)
    with working(LQOPS_WORKERS=str(WORKERS)):
        queued("database", scenes, reference, given.rounds, given.backlog)
    if not redis_answers():
        print("Redis does not answer at 127.0.0.1:6379: its broker is left out.")
        return
    send_tasks_to_redis()
    with working(LQOPS_WORKERS=str(WORKERS), LQOPS_REDIS_URL=REDIS):
        queued("redis", scenes, reference, given.rounds, given.backlog)


if __name__ == "__main__":
    main()
