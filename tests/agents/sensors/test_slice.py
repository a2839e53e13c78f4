"""Slices: many sensors in one event loop, stopped quickly when they may not run, one slice per sensor."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import OperationalError

from agents.conf import clock
from agents.enums import HaltState, Mode, SensorState, Status
from agents.models import Agent, AgentSession, HotField, Sensor
from agents.sensors import slice as slices
from agents.sensors.rows import sensors_stop
from agents.sensors.slice import run_slice
from agents.tasks import ENGINES, sensor_slice
from tests.agents.sensors.scene import Scene, poll, running_slice, stream
from tests.agents.sensors.sources import Events, Web
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)
LOG = {"log": {"type": "array", "max_items": 10_000}}


def seen(scene):
    return len(scene.events())


def test_slice_without_sensors_ends_at_once():
    began = time.monotonic()

    assert run_slice(0, seconds=600) == 0
    assert time.monotonic() - began < 60


def test_slice_stopped_before_it_begins_leases_nothing():
    scene = Scene(poll("http://10.0.0.1/"))

    assert run_slice(0, over=lambda: True) == 0
    assert scene.sensor().fencing == 1


def test_task_runs_a_slice_for_as_long_as_the_settings_say(settings, serving):
    settings.LQOPS_SENSOR_SLICE_SECONDS = 0.8
    scene = Scene(poll(serving(Web, {"n": 1}).url), fields={"value": "object"})
    began = time.monotonic()
    sensor_slice(0)

    assert 0.8 <= time.monotonic() - began < 60
    assert scene.value("value") == {"n": 1}
    assert Mode.SENSOR in ENGINES


@pytest.mark.long
def test_a_hundred_sensors_run_in_one_slice(serving):
    source = serving(Web, lambda request: {"path": request.path})
    scenes = [
        Scene(*[poll(f"{source.url}{n}", name=f"s{n}", interval=60, updates=["log"]) for n in range(25)], fields=LOG)
        for _ in range(4)
    ]
    with running_slice():
        until(lambda: Sensor.objects.filter(state="fine").count() == 100)

    # On a busy machine a reading may fail at first and all are read again a minute later.
    assert all(len(set(map(str, scene.value("log")))) == 25 for scene in scenes)


@pytest.mark.parametrize("stop", ["halt", "want"])
def test_halted_agent_stops_its_sensors_within_seconds_and_others_go_on(serving, stop):
    source = serving(Web, {"n": 1})
    scene, other = (Scene(poll(source.url), fields={"value": "object"}) for _ in range(2))
    with running_slice(time_scale=0.2):
        until(lambda: seen(scene) and seen(other))
        if stop == "halt":
            AgentSession.objects.filter(pk=scene.loop.pk).update(halt_state=HaltState.HALT_REQUESTED)
        else:
            sensors_stop(scene.agent, clock())
        until(lambda: scene.sensor().lease_owner == "")
        before, beside = scene.sensor().read_at, clock()
        until(lambda: other.sensor().read_at > beside + timedelta(seconds=0.6))
        assert scene.sensor().read_at == before


def test_running_slice_follows_a_changed_definition(serving):
    first, second = serving(Web, {"n": 1}), serving(Web, {"n": 2})
    scene = Scene(poll(first.url), fields={"value": "object", "b": "object"})
    with running_slice(time_scale=0.2):
        until(lambda: scene.value("value") == {"n": 1})
        scene.sync(poll(second.url), poll(first.url, name="more", updates=["b"]))
        until(lambda: scene.value("value") == {"n": 2} and scene.value("b") == {"n": 1})


def test_added_sensor_runs_beside_unchanged_ones(serving):
    source = serving(Web, {"n": 1})
    scene = Scene(poll(source.url), fields={"value": "object", "b": "object"})
    with running_slice(time_scale=0.2):
        until(lambda: scene.value("value") == {"n": 1})
        fencing = scene.sensor().fencing
        scene.sync(poll(source.url), poll(source.url, name="more", updates=["b"]))
        until(lambda: scene.value("b") == {"n": 1})
        assert scene.sensor().fencing == fencing


def test_unreadable_definition_sets_only_its_own_sensors_aside(serving):
    source = serving(Web, {"n": 1})
    scene, other = (Scene(poll(source.url), fields={"value": "object"}) for _ in range(2))
    Agent.objects.filter(pk=scene.agent.pk).update(definition="autonomy: {enabled: maybe}")
    with running_slice(time_scale=0.2):
        until(lambda: other.value("value") == {"n": 1})

    assert (scene.sensor().state, scene.sensor().lease_owner) == (SensorState.INVALID, "")
    assert scene.sensor().problem.startswith("the definition cannot be read: ")
    scene.sync(poll(source.url))
    with running_slice(time_scale=0.2):
        until(lambda: scene.value("value") == {"n": 1})


def test_two_slices_at_once_share_nothing(serving):
    source = serving(Events, most=60, pause=0.02)
    scene = Scene(stream(source.url, updates=["log"]), fields=LOG)
    others = [Scene(poll(serving(Web, {"n": n}).url), fields={"value": "object"}) for n in range(3)]
    with running_slice(), running_slice(), running_slice():
        until(lambda: len(scene.value("log") or []) == 60)

    assert scene.value("log") == list(range(1, 61))
    assert all(other.value("value") is not None for other in others)


def test_slice_that_lost_its_lease_writes_nothing_more(serving):
    source = serving(Events, most=10_000, pause=0.02)
    scene = Scene(stream(source.url, updates=["log"]), fields=LOG)
    with running_slice():
        until(lambda: len(scene.value("log") or []) > 5)
        Sensor.objects.update(lease_owner="elsewhere:1", fencing=scene.sensor().fencing + 1)
        before = scene.value("log")
        time.sleep(0.5)
        assert scene.value("log") == before

    assert scene.sensor().lease_owner == "elsewhere:1", "what is not its own it does not give back"


def test_short_database_outage_loses_nothing(serving, monkeypatch):
    source = serving(Events, most=40, pause=0.02)
    scene = Scene(stream(source.url, updates=["log"]), fields=LOG)
    away, real = threading.Event(), slices.sensors_write

    def write(results):
        if away.is_set():
            raise OperationalError("away")
        return real(results)

    monkeypatch.setattr(slices, "sensors_write", write)
    with running_slice():
        until(lambda: len(scene.value("log") or []) > 5)
        away.set()
        time.sleep(0.5)
        away.clear()
        until(lambda: len(scene.value("log")) == 40)

    assert scene.value("log") == list(range(1, 41))


def test_slice_that_cannot_renew_its_lease_ends(serving, monkeypatch, settings):
    settings.LQOPS_LEASE_SECONDS = 1
    source = serving(Web, {"n": 1})
    scene = Scene(poll(source.url), fields={"value": "object"})

    def away(**_):
        raise OperationalError("away")

    with running_slice(time_scale=0.2) as slice_:
        until(lambda: seen(scene))
        monkeypatch.setattr(slices, "leases_renew", away)
        monkeypatch.setattr(slices, "sensors_release", away)
        asked = len(source.times)
        until(lambda: not slice_.is_alive())
        assert asked < len(source.times)


def test_internal_error_in_a_sensor_makes_only_that_sensor_fail(serving, monkeypatch):
    source = serving(Web, {"n": 1})
    scene = Scene(poll(source.url), stream(source.url, name="other"), fields={"value": "object"})
    monkeypatch.setattr("agents.sensors.stream.Stream._receive", lambda self, box: 1 / 0)
    with running_slice(time_scale=0.1):
        until(lambda: scene.sensor("other").failures >= 3)

    assert "ZeroDivisionError" in scene.sensor("other").problem
    assert scene.sensor().failures == 0


def test_sensors_update_a_sleeping_loop(serving):
    source = serving(Web, lambda request: {"n": len(source.times)})
    scene = Scene(poll(source.url), fields={"value": "object"})
    with running_slice(time_scale=0.1):
        until(lambda: seen(scene) >= 3)

    assert AgentSession.objects.get(pk=scene.loop.pk).status == Status.SLEEPING
    assert HotField.objects.get(session=scene.loop).value["n"] >= 3
