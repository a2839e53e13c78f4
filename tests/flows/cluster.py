"""The real workers and the real ticker, as processes of their own on the test database, for a whole test module."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

from django.test import override_settings

from agents.models import AgentSession
from agents.policy.transitions import TERMINAL
from tests import flushing
from tests.flows.processes import PATIENCE, ROOT, children_of, database_url, is_alive, name_of, until

UNITS = {
    "LQOPS_TICK_SECONDS": "0.25",
    "LQOPS_WORKERS": "2",
    # Patient: on a busy machine a worker that stands still for a while is neither lost nor stuck.
    "LQOPS_STALL_SECONDS": "60",
    "LQOPS_TEST_LEASE_SECONDS": "20",
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
                **UNITS,
                **environment,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stdout:
            if "running" in line:
                return
        self.stop()
        raise AssertionError("the workers did not start")

    def mains(self):
        """The queue's main process; none between an end and a new start."""
        return [pid for pid in children_of(self.process.pid) if name_of(pid) == "lqops-workers"]

    def workers(self):
        """The processes below its main process and its guard."""
        guards = [pid for main in self.mains() for pid in children_of(main)]
        return [pid for guard in guards for pid in children_of(guard)]

    def stop(self):
        self.process.terminate()
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()  # what it has started ends after it, and may keep its output open until then
            self.process.wait(PATIENCE)
            self.process.stdout.close()
            raise


@contextmanager
def running(blocker, environment, *arguments, clusters=1):
    """Clusters on the test database inside the block, and an empty database after it.

    The tests of a module share the database and keep apart by their owners: a flush between them would fight with the
    processes that are at work on it.
    """
    with blocker.unblock(), ExitStack() as ending:
        lease = float({**UNITS, **environment}["LQOPS_TEST_LEASE_SECONDS"])  # the test knows it as the processes do
        ending.enter_context(override_settings(LQOPS_LEASE_SECONDS=lease))
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


def lose_worker_of(session):
    """Kills the process that holds a session and has it out with the model; its lease is over, as if by waiting."""
    pid = worker_of(session)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    AgentSession.objects.filter(pk=session.pk).update(lease_until=now() - timedelta(seconds=1))


def ended(session, seconds=PATIENCE):
    """The session once it is over; a session that does not end in time fails the test with where it stands."""
    deadline = time.monotonic() + seconds
    while True:
        session.refresh_from_db()
        if session.status in TERMINAL:
            return session
        assert time.monotonic() < deadline, f"still {session.status} in {session.current_phase}: {session.error}"
        time.sleep(0.05)


def session_of(trigger, seconds=PATIENCE, number=1):
    """The n-th session that a trigger has spawned, as soon as there is one."""
    spawned = AgentSession.objects.filter(trigger=trigger).order_by("pk")
    until(lambda: spawned.count() >= number, seconds)
    return spawned[number - 1]


def now():
    return datetime.now(UTC)
