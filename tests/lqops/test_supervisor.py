"""The supervisor: children that end are restarted, children that hang are killed with their group."""

import socket
from datetime import timedelta
from multiprocessing.connection import wait
from types import SimpleNamespace

import pytest
from django.db import connection

from agents.conf import clock
from agents.enums import Status
from agents.management import supervisor
from agents.management.supervisor import Child, KeptUntilWrite, Progress, Supervisor, TickerProgress
from agents.models import Lease
from agents.queue import QueueLength
from agents.ticker import mark
from tests.agents.test_ticker import written_elsewhere
from tests.factories import NOW, make_session
from tests.flows.processes import is_alive, until
from tests.lqops.programs import run_code


class Python(Child):
    """A child that runs these lines instead of its own program."""

    _run = staticmethod(run_code)


def python(code, name="part", **more):
    return Python(name, [code], **more)


def test_ended_child_is_restarted_whatever_its_code():
    lines = []
    with Supervisor([python("pass")], say=lines.append) as group:
        until(lambda: group.check() or len(lines) >= 2)

    assert lines[:2] == ["part: ended with code 0; restarting in 2 s", "part: started"]


def test_end_of_a_child_is_noticed_although_what_it_started_lives_on():
    """Nobody waits for the next look at the children."""
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nos._exit(3)"
    with Supervisor([python(code)], say=print) as group:
        until(lambda: bool(wait([group._children[0].wait_fd()], 60)))
        until(lambda: group._children[0].exit_code() == 3)


def test_supervisor_waits_for_the_restart_of_a_child_and_no_longer(monkeypatch):
    lines, waited = [], []
    monkeypatch.setattr(supervisor, "WATCH_SECONDS", 60)
    monkeypatch.setattr(supervisor.time, "sleep", waited.append)
    with Supervisor([python("pass")], say=lines.append) as group:
        group._wait()
        until(lambda: group.check() or lines)
        group._wait()

    assert len(waited) == 1
    assert 0 < waited[0] <= 2


@pytest.mark.django_db(transaction=True)
def test_rows_are_asked_again_only_after_a_write():
    asked = []
    answer = KeptUntilWrite(lambda: asked.append(Lease.objects.count()) or asked[-1])
    assert answer() == 0
    written_elsewhere()
    assert answer() == 1
    if connection.vendor == "sqlite":  # on PostgreSQL others on the same server may write
        assert (answer(), answer(), asked) == (1, 1, [0, 1])
    connection.close()
    written_elsewhere()
    assert answer() == 2


@pytest.mark.django_db(transaction=True)
def test_together_all_look_once_whether_somebody_has_written(monkeypatch):
    looks = []
    monkeypatch.setattr(supervisor, "mark", lambda: looks.append("look") or mark())
    answers = [KeptUntilWrite(Lease.objects.count) for _ in range(3)]
    with KeptUntilWrite.one_look():
        assert [answer() for answer in answers] == [0, 0, 0]
    assert looks == ["look"]
    written_elsewhere()
    with KeptUntilWrite.one_look():
        assert [answer() for answer in answers] == [1, 1, 1]
    assert looks == ["look", "look"]


@pytest.mark.django_db
def test_inside_of_a_transaction_rows_are_always_asked():
    answer = KeptUntilWrite(Lease.objects.count)
    before = answer()
    Lease.objects.create(name="anything")
    assert (before, answer()) == (0, 1)


def test_pause_grows_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(supervisor, "HEALTHY_AFTER_SECONDS", 600)
    child = python("pass")
    pauses = []
    for _ in range(7):
        child.start()
        child.schedule_restart()
        pauses.append(child._pause)

    assert pauses == [2, 4, 8, 16, 30, 30, 30]


def test_pause_is_reset_after_a_healthy_run(monkeypatch):
    monkeypatch.setattr(supervisor, "HEALTHY_AFTER_SECONDS", -1)
    child = python("pass")
    child._pause = 16.0
    child.start()
    child.schedule_restart()

    assert child._pause == 1


def test_stop_ends_everything_a_child_started(tmp_path, settings):
    settings.LQOPS_STOP_SECONDS = 0.2
    note = tmp_path / "pid"
    code = (
        "import os, signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(below.pid))\n"
        "below.wait()\n"
    )
    with Supervisor([python(code)], say=print):
        until(lambda: note.exists() and note.read_text())

    until(lambda: not is_alive(int(note.read_text())))


def test_stuck_workers_are_restarted_alone():
    lines, reasons = [], ["no task was taken", "", ""]
    forever = "import time; time.sleep(600)"
    workers = python(forever, "workers", stalled=lambda: reasons.pop(0) if reasons else "")
    ticker = python(forever, "ticker")
    with Supervisor([workers, ticker], say=lines.append) as group:
        first, other = workers.pid, ticker.pid
        group.check()
        assert not is_alive(first)
        assert is_alive(workers.pid)
        assert ticker.pid == other

    assert lines == ["workers: no task was taken; restarted"]


@pytest.mark.django_db
class TestProgress:
    @pytest.fixture(autouse=True)
    def _own_time(self, settings, monkeypatch):
        settings.LQOPS_STALL_SECONDS = 10
        self.seconds = 1_000
        monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: self.seconds))
        monkeypatch.setattr(supervisor, "may_have_tasks", lambda: True)

    def check_after(self, seconds, progress):
        self.seconds += seconds
        return progress.check()

    def checked(self):
        progress = Progress()
        progress.check()
        return self.check_after(11, progress)

    def test_waiting_tasks_with_free_workers_are_a_stall(self, monkeypatch):
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(1))

        assert "no task was taken" in self.checked()

    def test_patience_grows_until_a_task_is_taken(self, monkeypatch):
        found = [QueueLength(1)]
        monkeypatch.setattr(supervisor, "queue_length", lambda now: found[0])
        progress = Progress()

        def seconds_until_said():
            started = self.seconds
            while not self.check_after(2, progress):
                assert self.seconds - started < 1_000, "it is never said"
            return self.seconds - started

        assert [seconds_until_said() for _ in range(5)] == [12, 20, 40, 80, 80]
        found[0] = QueueLength(0)
        assert self.check_after(2, progress) == ""
        found[0] = QueueLength(1)
        assert seconds_until_said() == 12

    def test_queued_session_with_empty_queue_is_a_stall(self, monkeypatch):
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(0))
        make_session(Status.QUEUED, enqueued_at=NOW)
        progress = Progress()

        lines = [self.check_after(2, progress) for _ in range(7)]

        assert [bool(text) for text in lines] == [False] * 6 + [True], "the first look only sees it"

    def test_session_waiting_for_a_slot_is_no_stall(self, monkeypatch):
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(0))
        make_session(Status.QUEUED, enqueued_at=None)

        assert self.checked() == ""

    @pytest.mark.parametrize("may_have", [True, False])
    def test_queue_is_asked_only_while_it_may_hold_a_task(self, monkeypatch, may_have):
        monkeypatch.setattr(supervisor, "may_have_tasks", lambda: may_have)
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(1))

        assert bool(self.checked()) is may_have

    def test_empty_queue_is_no_stall(self, monkeypatch):
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(0))

        assert self.checked() == ""

    def test_new_task_is_no_stall(self, monkeypatch):
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(1, oldest_at=now))

        assert self.checked() == ""

    def test_busy_workers_are_no_stall(self, monkeypatch, settings):
        settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 0}
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(1))

        assert self.checked() == ""

    @pytest.mark.parametrize(("host", "stalled"), [(socket.gethostname(), False), ("elsewhere", True)])
    def test_only_workers_of_this_machine_are_busy_here(self, monkeypatch, settings, host, stalled):
        settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 1}
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(1))
        make_session(Status.RUNNING, lease_owner=f"{host}:7", lease_until=clock() + timedelta(hours=1))

        assert bool(self.checked()) == stalled

    def test_worker_with_several_runs_is_one_worker(self, monkeypatch, settings):
        settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 2}
        monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(1))
        of_one = {"lease_owner": f"{socket.gethostname()}:7", "lease_until": clock() + timedelta(hours=1)}
        for _ in range(2):
            make_session(Status.RUNNING, **of_one)

        assert self.checked() != ""

    @pytest.mark.parametrize(
        ("host", "age", "stalled"),
        [(socket.gethostname(), 40, True), (socket.gethostname(), 5, False), ("elsewhere", 40, False)],
    )
    def test_ticker_of_this_machine_that_does_nothing_is_a_stall(self, host, age, stalled):
        progress = TickerProgress()
        assert self.check_after(2, progress) == ""
        Lease.objects.create(name="ticker", owner=f"{host}:7:1", done_at=clock() - timedelta(seconds=age))
        assert self.check_after(2, progress) == ""

        assert self.check_after(11, progress) == ("no duty was done for 10 seconds" if stalled else "")

    def test_unreachable_database_is_no_stall(self, monkeypatch):
        def away(now):
            raise supervisor.DatabaseError

        monkeypatch.setattr(supervisor, "queue_length", away)
        monkeypatch.setattr(supervisor.connection, "close", lambda: None)

        assert self.checked() == ""

    def test_checks_are_rate_limited(self, monkeypatch):
        looks = []
        monkeypatch.setattr(supervisor, "queue_length", lambda now: looks.append(self.seconds) or QueueLength(0))
        progress = Progress()

        for _ in range(5):
            self.check_after(1, progress)

        assert looks == [1_001, 1_003, 1_005]
