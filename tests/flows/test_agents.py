"""Agents that pace themselves, with real workers, a real ticker and real sensors: woken early.

Slices of sensors follow each other, one that is killed is replaced, and nothing is told twice.
"""

import itertools
import os
import signal
import statistics
from datetime import timedelta

import pytest

from agents.enums import Mode
from agents.models import AgentEvent, AgentSession, Alert, Sensor
from agents.roster.agents import agent_stop
from agents.text.blocks import parse_blocks
from tests.agents.sensors.scene import Scene, poll, stream, watch
from tests.agents.sensors.sources import Events, Web
from tests.flows.cluster import now, running
from tests.flows.loops import SCORES, SLEEP, asleep, begin, text_of, turns_of
from tests.flows.processes import children_of, is_alive, name_of, until

pytestmark = pytest.mark.django_db(transaction=True)

CONTINUE = '<skill>yield(mode="continue")</skill>'
TRADER = """
name: Trader
autonomy:
  enabled: true
  max_consecutive_turns: 50
  token_budget_per_hour: 100000
  max_actions_per_minute: 10
  idle_timeout: 600
hot_state:
  fields:
    price: {{type: number, ttl: 600}}
sensors:
  - name: market
    type: poll
    source: {{url: "{url}"}}
    interval: 1
    updates: [{{field: price, path: price}}]
    signals: [{{name: anomaly, prompt: "Is the price odd?", threshold: 0.8, cooldown: 600}}]
"""
EVENTS = 120
FILES = 300
LARGE = {"name": "large", "model": "offline", "prompt": "Is the value above 60?"}
CAME = {"name": "came", "model": "offline", "prompt": "Is the size at least 1?"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="module")
def cluster(django_db_setup, django_db_blocker, _model_of_the_module, watched):
    """Short slices, of sensors that may look at loopback and into a folder."""
    more = {
        "LQOPS_SENSOR_SLICE_SECONDS": "3",
        "LQOPS_NET_ALLOW_NETWORKS": "127.0.0.0/8",
        "LQOPS_SENSOR_ROOTS": str(watched),
    }
    with running(django_db_blocker, {**_model_of_the_module.environment, **more}) as [started]:
        yield started


@pytest.fixture
def market():
    source = Web(lambda request: {"price": source.price})
    source.price = 31
    yield source
    source.close()


@pytest.fixture
def events():
    source = Events(lambda n: f'{{"value": {n}}}', most=EVENTS, pause=0.03)
    yield source
    source.close()


@pytest.mark.long
def test_signal_of_a_sensor_wakes_a_sleeping_loop_which_sees_the_alert_once(model, market):
    said = iter([CONTINUE])
    model.answer = lambda request: (
        ("0.9" if "99" in text_of(request) else "0.1") if SCORES in text_of(request) else next(said, SLEEP)
    )
    loop = begin(TRADER.format(url=market.url))
    asleep(loop, 2)

    market.price = 99
    asleep(loop, 3)
    agent_stop(agent=loop.agent, by=None, now=now())

    first, second, woken = turns_of(model)
    seen = [block.kind for block in parse_blocks(text_of(woken)) if block.kind != "tool_output"]
    assert seen == ["alerts", "hot_state"]
    assert "anomaly" in text_of(woken)
    assert "anomaly scored" not in text_of(first) + text_of(second)
    assert not loop.alerts.pending().exists()
    kept = AgentEvent.objects.filter(session=loop).exclude(kind="autonomy:sensor_updated").order_by("id")
    turn = ["turn_started", "turn_completed"]
    happened = [event.kind.removeprefix("autonomy:") for event in kept]
    assert happened == [*turn, *turn, "notification_pushed", *turn]


def folders(below):
    """One that is empty, and one with many files."""
    box, crowd = below / "box", below / "crowd"
    box.mkdir()
    crowd.mkdir()
    for number in range(FILES):
        (crowd / f"{number}.txt").write_text("x")
    return box, crowd


def slice_of(scene):
    """The process that holds the sensors, if one does."""
    return int(f":{scene.sensor().lease_owner}".split(":")[-2] or 0)


def lose_slice_of(scene):
    """Kills the process that holds the sensors while it does; its lease is over, as if by waiting."""
    while True:
        until(lambda: slice_of(scene))
        pid = slice_of(scene)
        os.kill(pid, signal.SIGSTOP)
        if slice_of(scene) == pid:
            break
        os.kill(pid, signal.SIGCONT)  # it had just ended its slice
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    over = {"lease_until": now() - timedelta(seconds=1)}
    Sensor.objects.filter(agent=scene.agent).update(**over)
    AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR).update(**over)


@pytest.mark.long
def test_slices_follow_each_other_survive_a_kill_and_tell_nothing_twice(cluster, model, market, events, watched):
    """The last one: it stops the cluster."""
    model.answer = lambda request: SLEEP
    box, crowd = folders(watched)
    scene = Scene(
        stream(events.url, updates=["log"], signals=[LARGE]),
        poll(market.url, name="slow", interval=1),
        watch(box, name="box", updates=["files"], signals=[CAME]),
        fields={
            "log": {"type": "array", "max_items": 500},
            "value": "object",
            "files": {"type": "array", "max_items": 50},
        },
    )
    until(lambda: len(scene.value("log") or []) >= 15 and scene.value("files") == [])
    first = scene.sensor().fencing
    lose_slice_of(scene)
    crowd.rename(box / "crowd")  # while nobody looks
    until(lambda: scene.sensor().fencing > first)
    until(lambda: len(scene.value("log")) >= EVENTS)
    until(lambda: len(scene.sensor("box").cursor["files"]) == FILES)
    alerts = Alert.objects.filter(session=scene.loop)
    until(lambda: set(alerts.values_list("name", flat=True)) == {"large", "came"})
    [part] = [pid for pid in children_of(cluster.process.pid) if name_of(pid) == "lqops-sensors"]
    cluster.stop()

    assert [one["value"] for one in scene.value("log")] == list(range(1, EVENTS + 1))
    assert [one["kind"] for one in scene.value("files")] == ["added"] * 50
    keys = list(alerts.filter(name="large").values_list("dedupe", flat=True))
    assert 0 < len(keys) == len(set(keys)) <= EVENTS - 60
    assert alerts.filter(name="came").count() == 1
    assert not is_alive(part)
    assert not Sensor.objects.exclude(lease_owner="").exists(), "they are given back"
    gaps = [after - before for before, after in itertools.pairwise(market.times)]
    assert statistics.median(gaps) < 1 + 1.5, gaps
    assert AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR).count() == 1
