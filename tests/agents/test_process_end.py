"""Processes do not outlive their parent, however it ends."""

import multiprocessing
import subprocess
import sys
from contextlib import closing

import pytest
from django.conf import settings

from agents.process_end import ForkEvent
from tests.flows.processes import Program, is_alive, until

STARTS_A_CHILD = """
import subprocess, sys, time
child = "import sys, time; from agents.process_end import end_with_parent; "
child += "sys.platform = sys.argv[2]; end_with_parent(int(sys.argv[1])); print('ready', flush=True); time.sleep(600)"
import os
process = subprocess.Popen([sys.executable, "-c", child, str(os.getpid()), sys.argv[1]], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
time.sleep(600)
"""
RUNS_A_SKILL = """
import sys, threading, types, uuid
from agents.skills import running
from tests.agents.skills.samples import linger
context = types.SimpleNamespace(session_pk=1, session_id=uuid.uuid4(), owner_id=1, call_id=uuid.uuid4(),
                                idempotency_key="a:1", now="2026-01-01T00:00:00Z", stopped=lambda: False,
                                fetch=lambda url: None)
work = lambda: running.run_isolated(linger, context, {"path": sys.argv[1]}, strict=False)
threading.Thread(target=work).start()  # as a call of a parallel group
print("started", flush=True)
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("platform", [sys.platform, "any other"])
def test_child_ends_when_its_parent_is_killed(platform):
    parent = start(STARTS_A_CHILD, platform)
    child = int(parent.stdout.readline())
    assert is_alive(child)

    parent.kill()
    parent.communicate()

    until(lambda: not is_alive(child))


def test_process_whose_parent_has_ended_before_ends_at_once():
    code = "from agents.process_end import end_with_parent; end_with_parent(1); print('it goes on')"
    orphan = start(code)
    assert (orphan.communicate()[0], orphan.returncode) == ("", -9)


def test_process_of_a_skill_ends_when_its_worker_is_killed(tmp_path):
    written = tmp_path / "pid"
    with closing(Program(RUNS_A_SKILL, str(written))) as worker:
        assert worker.stdout.readline() == "started\n"
        until(lambda: written.exists() and written.read_text() != "")
        skill = int(written.read_text())
        assert is_alive(skill)

        worker.kill()
        worker.wait()

        until(lambda: not is_alive(skill))


def test_event_that_a_forked_process_sets_is_noticed_until_it_is_cleared():
    event = ForkEvent()
    assert not event.wait(0)
    process = multiprocessing.get_context("fork").Process(target=lambda: [event.set() for _ in range(3)])
    process.start()
    assert event.wait(30)
    process.join(30)
    assert event.is_set()
    event.clear()
    assert not event.is_set()


FORKS_AFTER_A_CONNECTION = """
import os, sqlite3, sys
from agents.process_end import sort_free_memory

def copied():
    database = sqlite3.connect(":memory:")
    for number in range(0 if sys.argv[1] == "empty" else 1500):
        database.execute(f"CREATE TABLE table_{number} (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    above = bytearray(50_000)  # what is freed is not given back
    database.close()
    if sys.argv[1] == "sorted":
        sort_free_memory()
    reading, writing = os.pipe()
    if os.fork() == 0:
        bytearray(100_000)
        with open("/proc/self/smaps_rollup") as memory:
            lines = [line.split() for line in memory]
        os.write(writing, next(line[1] for line in lines if line[0] == "Private_Dirty:").encode())
        os._exit(0)
    os.wait()
    return os.read(reading, 100).decode(), above

print(copied()[0])
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has copied")
def test_forked_process_copies_nothing_of_what_a_closed_connection_has_freed():
    copied = {}
    for how in ("empty", "unsorted", "sorted"):
        with start(FORKS_AFTER_A_CONNECTION, how) as process:
            copied[how] = int(process.communicate(timeout=60)[0])
    unsorted, in_order = (copied[how] - copied["empty"] for how in ("unsorted", "sorted"))
    if unsorted < 500:
        pytest.skip("this C library has nothing to sort")
    assert in_order < unsorted / 2
