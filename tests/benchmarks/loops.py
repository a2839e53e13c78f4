"""How late loops wake while a slow model answers others: with one run per worker, and with the default.

`python -m tests.benchmarks.loops [--loops 20] [--spread 30]` on the database of LQOPS_DATABASE_URL, with two workers.
So many loops wake, one after another within the spread, and each has a turn of eight seconds.
"""

import argparse
import time
from datetime import timedelta

from tests.benchmarks.guard import made

# isort: split
from django.db import connection

from agents.conf import clock
from agents.models import AgentSession
from tests.benchmarks.cluster import working
from tests.benchmarks.paired import record
from tests.flows.model_server import ModelServer
from tests.flows.processes import until
from tests.flows.test_many_sleepers import asleep

TURN_SECONDS = 8.0
PATIENCE = 280.0


def slow(request: object) -> str:
    """Answer after a while that there is nothing to do."""
    time.sleep(TURN_SECONDS)
    return "Nothing runs low."


def lateness(loops: int, spread: float, **variables: str) -> list[float]:
    """Return how many seconds after their times the turns begin."""
    with ModelServer() as model, working(LQOPS_MAX_RUNNING_PER_USER=str(loops), **model.environment, **variables):
        (first,) = asleep(1, clock(), since=clock())
        until(lambda: AgentSession.objects.filter(pk=first.pk, started_at__isnull=False).exists())  # they are at work
        model.answer = slow
        begins = clock() + timedelta(seconds=2)
        times = [begins + timedelta(seconds=spread * count / loops) for count in range(loops)]
        rows = [asleep(1, at, since=clock())[0].pk for at in times]
        found = AgentSession.objects.filter(pk__in=rows).order_by("pk")
        until(lambda: not found.filter(started_at__isnull=True).exists(), PATIENCE)
        started = list(found.values_list("started_at", flat=True))
        found.update(halt_state="halt_requested")
    return [(at - due).total_seconds() for at, due in zip(started, times, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--loops", type=int, default=20)
    parser.add_argument("--spread", type=float, default=30)
    given = parser.parse_args()
    made()
    # With one run per worker they wake later and later; a quarter of them shows it.
    few = max(given.loops // 4, 2)
    for name, loops, variables in [("one", few, {"LQOPS_RUNS_PER_WORKER": "1"}), ("default", given.loops, {})]:
        late = sorted(lateness(loops, given.spread * loops / given.loops, **variables))
        record(f"loops.late.{name}", late, unit="s", database=connection.vendor)
        record(f"loops.late.{name}.p95", [late[int(0.95 * (len(late) - 1))]], unit="s", database=connection.vendor)


if __name__ == "__main__":
    main()
