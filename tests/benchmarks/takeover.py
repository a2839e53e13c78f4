"""How long a run waits for another worker after its own was killed, while a backlog waits, in leases.

`python -m tests.benchmarks.takeover [--rounds 20] [--lease 10]`, on the database of LQOPS_DATABASE_URL (it must be
migrated and empty of runs; the rows that the benchmark makes stay there). It starts workers and a ticker of its own,
and a model on loopback that answers after a second. Prints a line and one JSON line; leaves with 1 when the takeover
took more than 1.5 leases (p95).
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")

import django

django.setup()

from django.db import connection  # noqa: E402

from agents.enums import Outcome, Status  # noqa: E402
from agents.models import AgentSession  # noqa: E402
from tests.factories import start_run  # noqa: E402
from tests.flows.cluster import now, worker_of  # noqa: E402
from tests.flows.model_server import ModelServer, structured  # noqa: E402
from tests.flows.processes import ROOT, until  # noqa: E402
from tests.flows.scenes import Scene  # noqa: E402

BAR = 1.5  # leases
BACKLOG = 30
WORKERS = 4


def answer_slowly(request):
    time.sleep(1)
    return structured(request)


def in_a_call():
    """A run that waits for its model, if there is one."""
    out = AgentSession.objects.filter(status=Status.RUNNING, tool_calls__outcome=Outcome.STARTED)
    return out.filter(tool_calls__model__gt="", recoveries=0).order_by("?").first()


def one_round(scenes):
    """Seconds from the end of a worker to the claim by another."""
    while AgentSession.objects.filter(status=Status.QUEUED).count() < BACKLOG:
        for scene in scenes:
            start_run(playbook=scene.playbook, document=scene.attach(), now=now(), **scene.by)
    found = []
    until(lambda: bool(found.append(in_a_call()) or found[-1]))
    session = found[-1]
    before = session.fencing
    os.kill(worker_of(session), signal.SIGKILL)
    killed = time.perf_counter()
    until(lambda: AgentSession.objects.filter(pk=session.pk, fencing__gt=before).exists())
    return time.perf_counter() - killed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--lease", type=float, default=10)
    given = parser.parse_args()
    with ModelServer() as model:
        model.answer = answer_slowly
        environment = {
            **model.environment,
            "LQOPS_LEASE_SECONDS": str(given.lease),
            "LQOPS_HEARTBEAT_SECONDS": str(given.lease / 4),
            "LQOPS_WORKERS": str(WORKERS),
        }
        command = [sys.executable, "manage.py", "work"]
        with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}) as cluster:
            try:
                scenes = [Scene(), Scene(), Scene()]
                leases = sorted(one_round(scenes) / given.lease for _ in range(given.rounds))
            finally:
                cluster.terminate()
    figures = {"p50": statistics.median(leases), "p95": leases[int(0.95 * (given.rounds - 1))], "max": leases[-1]}
    figures = {name: round(value, 2) for name, value in figures.items()}
    print(f"{connection.vendor}: a killed worker's run is taken over after {figures} leases of {given.lease:g} s")
    print(json.dumps({"benchmark": "takeover", "database": connection.vendor, "lease": given.lease, **figures}))
    return 0 if figures["p95"] <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
