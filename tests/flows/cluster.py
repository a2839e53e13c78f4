"""The real workers and the real ticker, as processes of their own on the test database, for a whole test module."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from agents.models import AgentSession
from agents.transitions import TERMINAL
from tests import flushing
from tests.flows.processes import ROOT, children_of, command_of, database_url, until

SMALL_UNITS = {
    "LQOPS_TICK_SECONDS": "0.1",
    "LQOPS_STALL_SECONDS": "4",
    "LQOPS_REQUEUE_SECONDS": "3",
    "LQOPS_WORKERS": "2",
}


class Cluster:
    """`manage.py work`: two workers and a ticker under the supervisor of the product."""

    def __init__(self, environment, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "work", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "LQOPS_TEST_DATABASE_URL": database_url(),
                **SMALL_UNITS,
                **environment,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stdout:
            if "running" in line:
                return
        raise AssertionError("the workers did not start")

    def mains(self):
        """The queue's main process; none between an end and a new start."""
        return [pid for pid in children_of(self.process.pid) if "qcluster" in command_of(pid)]

    def workers(self):
        """The processes below its main process and its guard."""
        guards = [pid for main in self.mains() for pid in children_of(main)]
        return [pid for guard in guards for pid in children_of(guard)]

    def stop(self):
        self.process.terminate()
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise


@contextmanager
def running(blocker, environment, *arguments, clusters=1):
    """Clusters on the test database inside the block, and an empty database after it.

    The tests of a module share the database and keep apart by their owners: a flush between them would fight with the
    processes that are at work on it.
    """
    with blocker.unblock(), ExitStack() as ending:
        flushing.remember()
        flushing.held_off.set()
        ending.callback(flushing.flush_now)
        ending.callback(flushing.held_off.clear)
        started = []
        for _ in range(clusters):
            started.append(Cluster(environment, *arguments))
            ending.callback(started[-1].stop)
        yield started


def worker_of(session):
    """The process that holds a session."""
    session.refresh_from_db()
    return int(session.lease_owner.rpartition(":")[2])


def kill_worker_of(session):
    os.kill(worker_of(session), signal.SIGKILL)


def ended(session, seconds=60):
    """The session once it is over; a session that does not end in time fails the test with where it stands."""
    deadline = time.monotonic() + seconds
    while True:
        session.refresh_from_db()
        if session.status in TERMINAL:
            return session
        assert time.monotonic() < deadline, f"still {session.status} in {session.current_phase}: {session.error}"
        time.sleep(0.05)


def session_of(trigger, seconds=30, number=1):
    """The n-th session that a trigger has spawned, as soon as there is one."""
    spawned = AgentSession.objects.filter(trigger=trigger).order_by("pk")
    until(lambda: spawned.count() >= number, seconds)
    return spawned[number - 1]


def now():
    return datetime.now(UTC)
