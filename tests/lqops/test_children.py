"""Processes under the supervisor: what ends is started again, what hangs is ended with all that it started."""

import os
import socket
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from django.conf import settings

from agents.conf import clock
from agents.enums import Status
from agents.management import children, progress
from agents.management.children import Child, Children
from agents.management.progress import Progress
from agents.queue import Waiting
from tests.factories import NOW, make_session
from tests.flows.processes import is_alive, until


def python(code, name="part"):
    """A child whose own program is replaced by a few lines."""
    child = Child(name, [])
    child._arguments = [sys.executable, "-c", code]
    return child


def test_child_that_ends_is_started_again_whatever_its_code():
    said = []
    with Children([python("pass")], say=said.append) as group:
        until(lambda: group.look() or len(said) >= 2)

    assert said[0].startswith("part: ended with code 0; starting it again")
    assert said[1] == "part: started again"


def test_pause_grows_with_each_early_end_and_never_beyond_the_limit():
    child = python("pass")
    pauses = []
    for _ in range(7):
        child.start()
        child.give_up()
        pauses.append(child._pause)

    assert pauses == [2, 4, 8, 16, 30, 30, 30]


def test_pause_is_short_again_after_a_sound_run(monkeypatch):
    monkeypatch.setattr(children, "SOUND_AFTER_SECONDS", -1)
    child = python("pass")
    child._pause = 16.0
    child.start()
    child.give_up()

    assert child._pause == 1


def test_stopping_ends_everything_that_a_child_started(tmp_path, monkeypatch):
    monkeypatch.setattr(children, "STOP_SECONDS", 0.2)
    note = tmp_path / "pid"
    code = (
        "import os, signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(below.pid))\n"
        "below.wait()\n"
    )
    with Children([python(code)], say=print):
        until(lambda: note.exists() and note.read_text())

    until(lambda: not is_alive(int(note.read_text())))


def test_stuck_workers_are_started_again_and_others_left_alone():
    said, reasons = [], ["nobody takes them", "", ""]
    forever = "import time; time.sleep(600)"
    workers, ticker = python(forever, "workers"), python(forever, "ticker")
    with Children([workers, ticker], say=said.append, stalled=lambda: reasons.pop(0) if reasons else "") as group:
        first, other = workers.pid, ticker.pid
        group.look()
        assert not is_alive(first)
        assert is_alive(workers.pid)
        assert ticker.pid == other

    assert said == ["workers: nobody takes them; started again"]


def test_child_ends_with_its_parent(tmp_path):
    note = tmp_path / "pid"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import time, django\n"
                "django.setup()\n"
                "from agents.management.children import Child\n"
                "child = Child('part', ['shell', '-c', 'import time; time.sleep(600)'])\n"
                "child.start()\n"
                f"open({str(note)!r}, 'w').write(str(child.pid))\n"
                "time.sleep(600)\n"
            ),
        ],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=settings.BASE_DIR,
    )
    until(lambda: note.exists() and note.read_text())
    parent.kill()
    parent.wait()

    until(lambda: not is_alive(int(note.read_text())))


@pytest.mark.django_db
class TestProgress:
    @pytest.fixture(autouse=True)
    def _at_once(self, settings, monkeypatch):
        settings.LQOPS_STALL_SECONDS = 0.1
        monkeypatch.setattr(progress, "LOOK_EVERY_SECONDS", 0)

    def looked(self, seconds):
        looking = Progress()
        looking.look()
        time.sleep(seconds)  # the clock is what is judged
        return looking.look()

    def test_tasks_that_wait_although_workers_are_free_are_a_stall(self, monkeypatch):
        monkeypatch.setattr(progress, "waiting", lambda now: Waiting(1))

        assert "nobody takes them" in self.looked(0.15)

    def test_patience_grows_while_nothing_is_taken_and_is_short_again_afterwards(self, monkeypatch):
        found = [Waiting(1)]
        monkeypatch.setattr(progress, "waiting", lambda now: found[0])
        looking = Progress()

        def seconds_until_said():
            started = time.monotonic()
            until(looking.look, 5)
            return time.monotonic() - started

        first, second, third = seconds_until_said(), seconds_until_said(), seconds_until_said()
        assert first < second < third
        found[0] = Waiting(0)
        assert looking.look() == ""
        found[0] = Waiting(1)
        assert seconds_until_said() < third

    def test_session_that_stays_queued_is_a_stall_although_the_queue_is_empty(self, monkeypatch):
        monkeypatch.setattr(progress, "waiting", lambda now: Waiting(0))
        make_session(Status.QUEUED, enqueued_at=NOW)
        looking = Progress()
        looking.look()  # seen for the first time

        until(looking.look, 5)

    def test_session_that_was_sent_back_for_want_of_room_is_no_stall(self, monkeypatch):
        monkeypatch.setattr(progress, "waiting", lambda now: Waiting(0))
        make_session(Status.QUEUED, enqueued_at=None)

        assert self.looked(0.15) == ""

    def test_empty_queue_is_no_stall(self, monkeypatch):
        monkeypatch.setattr(progress, "waiting", lambda now: Waiting(0))

        assert self.looked(0.15) == ""

    def test_task_that_came_just_now_is_no_stall(self, monkeypatch):
        monkeypatch.setattr(progress, "LOOK_EVERY_SECONDS", 0.01)
        monkeypatch.setattr(progress, "waiting", lambda now: Waiting(1, oldest_at=now))

        assert self.looked(0.15) == ""

    def test_busy_workers_are_no_stall(self, monkeypatch, settings):
        settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 0}
        monkeypatch.setattr(progress, "waiting", lambda now: Waiting(1))

        assert self.looked(0.15) == ""

    @pytest.mark.parametrize(("host", "stalled"), [(socket.gethostname(), False), ("elsewhere", True)])
    def test_only_workers_of_this_machine_are_busy_here(self, monkeypatch, settings, host, stalled):
        settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 1}
        monkeypatch.setattr(progress, "waiting", lambda now: Waiting(1))
        make_session(Status.RUNNING, lease_owner=f"{host}:7", lease_until=clock() + timedelta(hours=1))

        assert bool(self.looked(0.15)) == stalled

    def test_database_that_is_away_is_not_the_workers_fault(self, monkeypatch):
        def away(now):
            raise progress.DatabaseError

        monkeypatch.setattr(progress, "waiting", away)
        monkeypatch.setattr(progress.connection, "close", lambda: None)

        assert self.looked(0.15) == ""

    def test_looks_only_now_and_then(self, monkeypatch):
        monkeypatch.setattr(progress, "LOOK_EVERY_SECONDS", 60)
        monkeypatch.setattr(progress, "waiting", lambda now: 1 / 0)
        looking = Progress()
        looking._looked_at = time.monotonic()

        assert looking.look() == ""
