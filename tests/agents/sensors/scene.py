"""A scene for tests of sensors: an agent with sensors and a sleeping loop, and slices that run them."""

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from itertools import count
from pkgutil import resolve_name
from unittest.mock import patch

import yaml

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.enums import Mode, Phase, Status
from agents.models import Agent, AgentEvent, AgentSession, Alert, HotField, Sensor
from agents.sensors.rows import sensors_start, sensors_sync
from agents.sensors.slice import run_slice
from agents.sensors.validation import runnable
from tests.factories import make_agent

_number = count(1)


class Scene:
    """One agent. Sensors and fields are written as in agent.yaml; a field is named by its type."""

    def __init__(self, *sensors, fields=None, triggers=(), **agent):
        self.text = {
            "name": f"watcher-{next(_number)}",
            "autonomy": {"enabled": True},
            "hot_state": {"fields": {name: as_field(spec) for name, spec in (fields or {}).items()}},
            "sensors": list(sensors),
        }
        self.agent = make_agent(name=self.text["name"], definition=yaml.safe_dump(self.text), **agent)
        self.loop = self.begin_loop()
        self.sync()
        sensors_start(self.agent, clock())

    def begin_loop(self):
        now = clock()
        return AgentSession.objects.create(
            owner=self.agent.owner,
            agent=self.agent,
            mode=Mode.LOOP,
            current_phase=Phase.TURN,
            status=Status.SLEEPING,
            max_cost_usd=5,
            created_at=now,
            last_activity_at=now,
        )

    def sync(self, *sensors):
        if sensors:
            self.text["sensors"] = list(sensors)
            Agent.objects.filter(pk=self.agent.pk).update(definition=yaml.safe_dump(self.text))
            self.agent.refresh_from_db()
        sensors_sync(self.agent, definition_of(self.agent), clock())

    def sensor(self, name="feed"):
        return Sensor.objects.get(agent=self.agent, name=name)

    def value(self, name):
        return HotField.objects.filter(session=self.loop, name=name).values_list("value", flat=True).first()

    def events(self, kind="autonomy:sensor_updated"):
        return [event.data for event in AgentEvent.objects.filter(agent=self.agent, kind=kind)]

    def errors(self):
        return [event["error"] for event in self.events("autonomy:sensor_error")]

    def alerts(self):
        return list(Alert.objects.filter(session=self.loop).order_by("pk"))


def as_field(spec):
    return {"type": spec} if isinstance(spec, str) else spec


def poll(url=None, *, name="feed", interval=1, updates=("value",), signals=(), **source):
    given = {"url": url, **source} if url else source
    return sensor(name, "poll", given, updates, signals, interval=interval)


def stream(url, *, name="feed", updates=("value",), signals=(), **more):
    return sensor(name, "stream", {"url": url}, updates, signals, **more)


def watch(path, *, name="feed", updates=("value",), signals=(), **more):
    return sensor(name, "watch", {"path": str(path)}, updates, signals, **more)


def sensor(name, kind, source, updates, signals, **more):
    written = [{"field": one} if isinstance(one, str) else one for one in updates]
    return {"name": name, "type": kind, "source": source, "updates": written, "signals": list(signals), **more}


WAITS = ("sensing.LONGEST_INTERVAL", "sensing.RETRY_CHECK_SECONDS", "sensing.Sensing.pause", "signals.RETRY_SECONDS",
         "watch.LONGEST_UNQUIET", "watch.MISSING_SECONDS", "watch.QUIET_SECONDS", "watch.Watch.pause")  # fmt: skip


@contextmanager
def scaled(factor):
    """Multiply the waits of sensors, and their intervals, which an agent.yaml gives in whole seconds."""

    def scaled_interval(held):
        interval = held.spec.interval and held.spec.interval * factor
        return replace(held, spec=held.spec.model_copy(update={"interval": interval}))

    with ExitStack() as patches:
        for name in WAITS:
            place = f"agents.sensors.{name}"
            patches.enter_context(patch(place, resolve_name(place) * factor))
        lease = lambda rows: [scaled_interval(held) for held in runnable(rows)]  # noqa: E731
        patches.enter_context(patch("agents.sensors.slice.runnable", lease))
        yield


@contextmanager
def running_slice(seconds=600.0, *, time_scale=1.0):
    """Run a slice in a thread; at the end of the block, stop it and wait for it."""
    with scaled(time_scale) if time_scale != 1 else nullcontext(), _running_slice(seconds) as thread:
        yield thread


@contextmanager
def _running_slice(seconds):
    over, raised = threading.Event(), []

    def work():
        try:
            run_slice(0, seconds=seconds, over=over.is_set)
        except BaseException as error:  # noqa: BLE001 raised again below, in the test
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        over.set()
        thread.join(60)
        assert not thread.is_alive(), "the slice did not end"
    if raised:
        raise raised[0]
