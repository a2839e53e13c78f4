"""Parts that run only while they are wanted: started and stopped by what there is to do."""

import platform
import time
from datetime import timedelta

import pytest
from django.db import DatabaseError

from agents.conf import clock
from agents.enums import Mode, Status
from agents.management import supervisor
from agents.management.supervisor import Demanded, Parts, Progress, SensorProgress, everything, without_web
from agents.queue import Waiting
from tests.factories import make_session
from tests.flows.processes import is_alive, until
from tests.lqops.test_children import python

FOREVER = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def _ask_at_once(monkeypatch):
    monkeypatch.setattr(supervisor, "ASK_EVERY_SECONDS", 0)


def test_part_is_started_when_it_is_wanted_and_stopped_when_it_is_not():
    wanted, said = [False], []
    part = Demanded(python(FOREVER, "extra"), wanted=lambda: wanted[0])
    with Parts([], say=said.append, demanded=[part]) as group:
        group.look()
        assert part.child.pid is None
        wanted[0] = True
        group.look()
        pid = part.child.pid
        assert is_alive(pid)
        wanted[0] = False
        until(lambda: group.look() or part.child.pid is None)
        assert not is_alive(pid)

    assert said == ["extra: started", "extra: stopped"]


def test_part_that_ends_is_started_again():
    said = []
    part = Demanded(python("pass", "extra"), wanted=lambda: True)
    with Parts([], say=said.append, demanded=[part]) as group:
        until(lambda: group.look() or len(said) >= 3)

    assert said[:3] == ["extra: started", "extra: ended with code 0", "extra: started"]


def test_part_lingers_for_a_while(monkeypatch):
    wanted = [True]
    part = Demanded(python(FOREVER, "extra"), wanted=lambda: wanted[0], lingers=60)
    with Parts([], say=print, demanded=[part]) as group:
        group.look()
        pid = part.child.pid
        wanted[0] = False
        for _ in range(5):
            group.look()
            time.sleep(0.01)
        assert part.child.pid == pid


def test_part_without_progress_is_started_again():
    said, reasons = [], ["", "nobody takes them", ""]
    part = Demanded(python(FOREVER, "extra"), wanted=lambda: True, stalled=lambda: reasons.pop(0))
    with Parts([], say=said.append, demanded=[part]) as group:
        group.look()
        group.look()
        first = part.child.pid
        group.look()
        assert part.child.pid != first
        group.look()

    assert said == ["extra: started", "extra: nobody takes them; started again"]


def test_database_that_is_away_starts_and_stops_nothing(monkeypatch):
    answers = iter([True])

    def wanted():
        try:
            return next(answers)
        except StopIteration:
            raise DatabaseError from None

    monkeypatch.setattr(supervisor.connection, "close", lambda: None)
    part, other = (Demanded(python(FOREVER, name), wanted=wanted) for name in ("extra", "other"))
    with Parts([], say=print, demanded=[part, other]) as group:
        group.look()
        pid = part.child.pid
        group.look()
        assert part.child.pid == pid
        assert other.child.pid is None


def test_everything_that_was_started_ends_with_the_block():
    part = Demanded(python(FOREVER, "extra"), wanted=lambda: True)
    with Parts([python(FOREVER)], say=print, demanded=[part]) as group:
        group.look()
        pid = part.child.pid

    assert not is_alive(pid)


@pytest.mark.parametrize(("unheld", "alive", "stalled"), [(True, 1, True), (True, 2, False), (False, 0, False)])
def test_sensors_that_nobody_holds_are_a_stall_when_workers_are_free(monkeypatch, settings, unheld, alive, stalled):
    settings.LQOPS_STALL_SECONDS = 0.05
    monkeypatch.setattr(supervisor, "LOOK_EVERY_SECONDS", 0)
    monkeypatch.setattr(supervisor, "sensors_unheld", lambda now: unheld)
    monkeypatch.setattr(supervisor, "slices_alive", lambda host, now: alive)
    looking = SensorProgress(2)
    looking.look()
    time.sleep(0.1)

    assert bool(looking.look()) is stalled


@pytest.mark.django_db
def test_sessions_that_slices_hold_make_no_worker_of_walks_busy(monkeypatch, settings):
    settings.LQOPS_STALL_SECONDS = 0.05
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 1}
    monkeypatch.setattr(supervisor, "LOOK_EVERY_SECONDS", 0)
    monkeypatch.setattr(supervisor, "waiting", lambda now: Waiting(1))
    until_later = {"lease_owner": f"{platform.node()}:7", "lease_until": clock() + timedelta(hours=1)}
    make_session(Status.RUNNING, mode=Mode.SENSOR, **until_later)
    looking = Progress()
    looking.look()
    time.sleep(0.1)

    assert looking.look() != ""


def test_workers_of_sensors_belong_to_both_kinds_of_installation():
    for parts in (everything(python("pass", "web"), say=print), without_web(say=print)):
        [one] = [part for part in parts._demanded if part.child.name == "sensors"]
        assert one.child._arguments[-1] == "sense"
