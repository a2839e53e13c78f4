"""Children that run only while they are needed."""

import platform
import time
from datetime import timedelta

import pytest
from django.db import DatabaseError

from agents.conf import clock
from agents.enums import Mode, Status
from agents.management import supervisor
from agents.management.supervisor import Progress, SensorProgress, Supervisor, everything, without_web
from agents.queue import QueueLength
from tests.factories import make_session
from tests.flows.processes import is_alive, until
from tests.lqops.test_supervisor import python

FOREVER = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def _ask_at_once(monkeypatch):
    monkeypatch.setattr(supervisor, "DEMAND_SECONDS", 0)
    monkeypatch.setattr(supervisor, "IDLE_SECONDS", 0)


def test_child_starts_and_stops_with_its_need():
    needed, lines = [False], []
    part = python(FOREVER, "extra", needed=lambda: needed[0])
    with Supervisor([part], say=lines.append) as group:
        group.check()
        assert part.pid is None
        needed[0] = True
        group.check()
        pid = part.pid
        assert is_alive(pid)
        needed[0] = False
        until(lambda: group.check() or part.pid is None)
        assert not is_alive(pid)

    assert lines == ["extra: started", "extra: stopped"]


def test_ended_child_is_restarted():
    lines = []
    part = python("pass", "extra", needed=lambda: True)
    with Supervisor([part], say=lines.append) as group:
        until(lambda: group.check() or len(lines) >= 3)

    assert lines[:3] == ["extra: started", "extra: ended with code 0; restarting in 2 s", "extra: started"]


def test_child_stays_for_its_idle_time(monkeypatch):
    monkeypatch.setattr(supervisor, "IDLE_SECONDS", 60)
    needed = [True]
    part = python(FOREVER, "extra", needed=lambda: needed[0])
    with Supervisor([part], say=print) as group:
        group.check()
        pid = part.pid
        needed[0] = False
        for _ in range(5):
            group.check()
            time.sleep(0.01)
        assert part.pid == pid


def test_stuck_child_is_restarted():
    lines, reasons = [], ["", "no task was taken", ""]
    part = python(FOREVER, "extra", needed=lambda: True, stalled=lambda: reasons.pop(0))
    with Supervisor([part], say=lines.append) as group:
        group.check()
        group.check()
        first = part.pid
        group.check()
        assert part.pid != first
        group.check()

    assert lines == ["extra: started", "extra: no task was taken; restarted"]


def test_unreachable_database_starts_and_stops_nothing(monkeypatch):
    answers = iter([True])

    def needed():
        try:
            return next(answers)
        except StopIteration:
            raise DatabaseError from None

    monkeypatch.setattr(supervisor.connection, "close", lambda: None)
    part, other = (python(FOREVER, name, needed=needed) for name in ("extra", "other"))
    with Supervisor([part, other], say=print) as group:
        group.check()
        pid = part.pid
        group.check()
        assert part.pid == pid
        assert other.pid is None


def test_all_children_end_with_the_block():
    part = python(FOREVER, "extra", needed=lambda: True)
    with Supervisor([python(FOREVER), part], say=print) as group:
        group.check()
        pid = part.pid

    assert not is_alive(pid)


@pytest.mark.parametrize(("unheld", "alive", "stalled"), [(True, 1, True), (True, 2, False), (False, 0, False)])
def test_unheld_sensors_with_free_workers_are_a_stall(monkeypatch, settings, unheld, alive, stalled):
    settings.LQOPS_STALL_SECONDS = 0.05
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(supervisor, "has_unheld_sensors", lambda now: unheld)
    monkeypatch.setattr(supervisor, "count_live_slices", lambda host, now: alive)
    progress = SensorProgress(2)
    progress.check()
    time.sleep(0.1)

    assert bool(progress.check()) is stalled


@pytest.mark.django_db
def test_sensor_sessions_do_not_count_as_busy_workers(monkeypatch, settings):
    settings.LQOPS_STALL_SECONDS = 0.05
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 1}
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(supervisor, "may_have_tasks", lambda: True)
    monkeypatch.setattr(supervisor, "queue_length", lambda now: QueueLength(1))
    until_later = {"lease_owner": f"{platform.node()}:7", "lease_until": clock() + timedelta(hours=1)}
    make_session(Status.RUNNING, mode=Mode.SENSOR, **until_later)
    progress = Progress()
    progress.check()
    time.sleep(0.1)

    assert progress.check() != ""


def test_sensor_workers_belong_to_up_and_work():
    for parts in (everything(python("pass", "web"), say=print), without_web(say=print)):
        [one] = [part for part in parts._children if part.name == "sensors"]
        assert one._arguments[-1] == "sense"
