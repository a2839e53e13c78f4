"""Parts that run only while they are wanted: started and stopped by what there is to do."""

import platform
import time
from datetime import timedelta

import pytest
from django.db import DatabaseError

from agents.conf import clock
from agents.enums import Mode, Status
from agents.management import supervisor
from agents.management.supervisor import Children, OnDemand, Progress, SensorProgress, everything, without_web
from agents.queue import Waiting
from tests.factories import make_session
from tests.flows.processes import is_alive, until
from tests.lqops.test_supervisor import python

FOREVER = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def _ask_at_once(monkeypatch):
    monkeypatch.setattr(supervisor, "DEMAND_SECONDS", 0)


def test_part_is_started_when_it_is_wanted_and_stopped_when_it_is_not():
    needed, said = [False], []
    part = OnDemand(python(FOREVER, "extra"), needed=lambda: needed[0])
    with Children([], say=said.append, on_demand=[part]) as group:
        group.check()
        assert part.child.pid is None
        needed[0] = True
        group.check()
        pid = part.child.pid
        assert is_alive(pid)
        needed[0] = False
        until(lambda: group.check() or part.child.pid is None)
        assert not is_alive(pid)

    assert said == ["extra: started", "extra: stopped"]


def test_part_that_ends_is_started_again():
    said = []
    part = OnDemand(python("pass", "extra"), needed=lambda: True)
    with Children([], say=said.append, on_demand=[part]) as group:
        until(lambda: group.check() or len(said) >= 3)

    assert said[:3] == ["extra: started", "extra: ended with code 0", "extra: started"]


def test_part_lingers_for_a_while(monkeypatch):
    needed = [True]
    part = OnDemand(python(FOREVER, "extra"), needed=lambda: needed[0], idle_seconds=60)
    with Children([], say=print, on_demand=[part]) as group:
        group.check()
        pid = part.child.pid
        needed[0] = False
        for _ in range(5):
            group.check()
            time.sleep(0.01)
        assert part.child.pid == pid


def test_part_without_progress_is_started_again():
    said, reasons = [], ["", "no task was taken", ""]
    part = OnDemand(python(FOREVER, "extra"), needed=lambda: True, stalled=lambda: reasons.pop(0))
    with Children([], say=said.append, on_demand=[part]) as group:
        group.check()
        group.check()
        first = part.child.pid
        group.check()
        assert part.child.pid != first
        group.check()

    assert said == ["extra: started", "extra: no task was taken; restarted"]


def test_database_that_is_away_starts_and_stops_nothing(monkeypatch):
    answers = iter([True])

    def needed():
        try:
            return next(answers)
        except StopIteration:
            raise DatabaseError from None

    monkeypatch.setattr(supervisor.connection, "close", lambda: None)
    part, other = (OnDemand(python(FOREVER, name), needed=needed) for name in ("extra", "other"))
    with Children([], say=print, on_demand=[part, other]) as group:
        group.check()
        pid = part.child.pid
        group.check()
        assert part.child.pid == pid
        assert other.child.pid is None


def test_everything_that_was_started_ends_with_the_block():
    part = OnDemand(python(FOREVER, "extra"), needed=lambda: True)
    with Children([python(FOREVER)], say=print, on_demand=[part]) as group:
        group.check()
        pid = part.child.pid

    assert not is_alive(pid)


@pytest.mark.parametrize(("unheld", "alive", "stalled"), [(True, 1, True), (True, 2, False), (False, 0, False)])
def test_sensors_that_nobody_holds_are_a_stall_when_workers_are_free(monkeypatch, settings, unheld, alive, stalled):
    settings.LQOPS_STALL_SECONDS = 0.05
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(supervisor, "sensors_unheld", lambda now: unheld)
    monkeypatch.setattr(supervisor, "slices_alive", lambda host, now: alive)
    progress = SensorProgress(2)
    progress.check()
    time.sleep(0.1)

    assert bool(progress.check()) is stalled


@pytest.mark.django_db
def test_sessions_that_slices_hold_make_no_worker_of_walks_busy(monkeypatch, settings):
    settings.LQOPS_STALL_SECONDS = 0.05
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 1}
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(supervisor, "waiting", lambda now: Waiting(1))
    until_later = {"lease_owner": f"{platform.node()}:7", "lease_until": clock() + timedelta(hours=1)}
    make_session(Status.RUNNING, mode=Mode.SENSOR, **until_later)
    progress = Progress()
    progress.check()
    time.sleep(0.1)

    assert progress.check() != ""


def test_workers_of_sensors_belong_to_both_kinds_of_installation():
    for parts in (everything(python("pass", "web"), say=print), without_web(say=print)):
        [one] = [part for part in parts._on_demand if part.child.name == "sensors"]
        assert one.child._arguments[-1] == "sense"
