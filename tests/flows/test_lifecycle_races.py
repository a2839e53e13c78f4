"""Agents that are started and stopped from several places at once, and while a slice is at work on their sensors."""

import threading
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.enums import Mode, Status
from agents.loop import heartbeat
from agents.loop.heartbeat import heartbeat_next
from agents.loop.state import hot_delete_old
from agents.models import AgentSession, HotField, Sensor
from agents.roster import loops
from agents.roster.agents import agent_autonomous_sessions, agent_restart, agent_start, agent_stop
from agents.sensors import rows
from agents.sensors.rows import LeasedSensor, Reading, sensor_slices_enqueue, sensors_sync
from agents.sensors.writes import sensors_write
from agents.sessions.halts import session_halt
from tests.factories import make_agent
from tests.flows.processes import in_threads

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = """
autonomy: {enabled: true}
hot_state: {fields: {stock: {type: object}}}
sensors:
  - {name: feed, type: poll, interval: 5, source: {url: "https://example.org/"}, updates: [{field: stock}]}
heartbeat: {interval: 60, prompt: Look around.}
"""
SOON = 0.5  # seconds that another thread has to come in between, if it can
PATIENCE = 60


@pytest.fixture
def agent():
    agent = make_agent(definition=TEXT, definition_version=1)
    sensors_sync(agent, definition_of(agent), clock())
    return agent


def start(agent):
    return agent_start(agent=agent, by=None, now=clock())


def stop(agent):
    return agent_stop(agent=agent, by=None, now=clock())


def sensor(agent):
    return Sensor.objects.get(agent=agent)


def loops_of(agent):
    return AgentSession.objects.active().filter(agent=agent, mode=Mode.LOOP).count()


class Beside:
    """Something that another process does at this moment: it has a while to come in between."""

    def __init__(self, do):
        self.thread = threading.Thread(target=self._run, args=(do,))

    def _run(self, do):
        try:
            do()
        finally:
            connection.close()

    def come(self):
        self.thread.start()
        self.thread.join(SOON)

    def end(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def between(monkeypatch, module, name, beside, *, before=False, when=lambda *_, **__: True):
    """Lets the other come in before or after a step."""
    step = getattr(module, name)

    def stepping(*args, **kwargs):
        due = beside.thread.ident is None and when(*args, **kwargs)
        if before and due:
            beside.come()
        done = step(*args, **kwargs)
        if not before and due:
            beside.come()
        return done

    monkeypatch.setattr(module, name, stepping)


# --- Its sensors are wanted while its loop runs ---


def test_start_in_the_middle_of_a_stop_has_its_sensors(agent, monkeypatch):
    start(agent)
    other = Beside(lambda: start(agent))
    between(monkeypatch, loops, "sessions_halt", other)
    stop(agent)
    other.end()

    assert loops_of(agent) == 1
    assert sensor(agent).wanted


def test_start_while_the_ticker_lets_sensors_go_has_them(agent, monkeypatch):
    session_halt(start(agent).loop.pk, by=None, reason="enough", now=clock())
    other = Beside(lambda: start(agent))
    between(monkeypatch, rows, "sensors_stop", other, before=True)
    sensor_slices_enqueue(clock())
    other.end()

    assert loops_of(agent) == 1
    assert sensor(agent).wanted


def test_many_starts_and_restarts_at_once_leave_one_loop_with_its_sensors(agent):
    in_threads(6, lambda n: (agent_restart if n % 2 else agent_start)(agent=agent, by=None, now=clock()))

    assert loops_of(agent) == 1
    assert sensor(agent).wanted


# --- The heartbeat ---


def test_no_beat_is_planned_by_one_that_is_being_stopped(agent, monkeypatch):
    beat = start(agent).heartbeat
    AgentSession.objects.filter(pk=beat.pk).update(status=Status.RUNNING)
    other = Beside(lambda: heartbeat_next(beat, agent, now=clock()))
    between(monkeypatch, heartbeat, "sessions_halt", other, before=True)
    stop(agent)
    other.end()

    assert agent_autonomous_sessions(agent).heartbeat is None


# --- A slice that stands still in the middle of a write ---


@contextmanager
def frozen_write(agent):
    """A transaction of a slice that has written a reading, and goes no further until the end of the block."""
    row = sensor(agent)
    definition = definition_of(agent)
    held = LeasedSensor(row, definition.sensors[0], definition)
    written, over = threading.Event(), threading.Event()

    def write():
        try:
            with transaction.atomic():
                assert not sensors_write([Reading(held, clock(), items=({"apples": 3},))])
                written.set()
                over.wait(PATIENCE)
        finally:
            connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    assert written.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)


def test_transaction_that_stands_still_is_ended_by_the_database():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no such limit")
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("150s",)  # in the product it is shorter


def test_stop_waits_for_no_slice(agent):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite whoever writes waits for the one who does")
    loop = start(agent).loop
    HotField.objects.create(
        session=loop, name="stock", value={}, source="sensor", updated_at=clock(), changed_at=clock()
    )
    with frozen_write(agent):
        in_threads(1, lambda _: stop(agent))
        loop.refresh_from_db()
        assert loop.status == Status.HALTED
        sensor_slices_enqueue(clock())  # nor does the ticker
        hot_delete_old()
        assert sensor(agent).wanted
    sensor_slices_enqueue(clock())
    hot_delete_old()

    assert not sensor(agent).wanted
    assert not HotField.objects.exists()
