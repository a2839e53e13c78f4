"""Signals by condition, end to end: alerts, gates and runs without a model call."""

import itertools
import json

import pytest

from agents.enums import Mode
from agents.models import AgentSession, ToolCall
from tests.agents.sensors.scene import Scene, poll, running_slice, stream, watch
from tests.agents.sensors.sources import Events, Web
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)
FIELDS = {"value": "object", "odd": {"type": "array", "max_items": 99}}


def signal(**when):
    return {"name": "hot", "when": when}


def test_condition_alerts_and_opens_its_gate_once(serving):
    now = {"n": 1}
    source = serving(Web, lambda request: dict(now))
    updates = ["value", {"field": "odd", "path": "n", "gated_by": "hot"}]
    scene = Scene(poll(source.url, updates=updates, signals=[signal(path="n", above=80, clear=70)]), fields=FIELDS)
    with running_slice(time_scale=0.05):
        for number in (1, 81, 75, 90, 60, 95):
            now["n"] = number
            until(lambda number=number: scene.value("value") == {"n": number})
        until(lambda: len(scene.alerts()) == 2)

    assert [alert.text for alert in scene.alerts()] == [
        'feed: hot n above 80. {"n": 81}',
        'feed: hot n above 80. {"n": 95}',
    ]
    assert scene.value("odd") == [81, 95]
    assert scene.sensor().signals["hot"]["fired"] == 2
    assert not ToolCall.objects.exists()
    assert not AgentSession.objects.filter(mode=Mode.SENSOR).exists(), "a condition needs no session"


def test_state_of_a_condition_survives_its_slice(serving):
    now = {"n": 90}
    source = serving(Web, lambda request: dict(now))
    scene = Scene(poll(source.url, signals=[signal(path="n", above=80)]), fields=FIELDS)
    with running_slice(time_scale=0.05):
        until(scene.alerts)
    with running_slice(time_scale=0.05):
        seen = len(source.times)
        until(lambda: len(source.times) > seen + 3)

    assert len(scene.alerts()) == 1


def test_new_loop_begins_anew(serving):
    source = serving(Web, {"n": 90})
    signals = [signal(path="n", above=80), {"name": "lost", "when": {"path": "m", "absent_for": 3600}}]
    scene = Scene(poll(source.url, signals=signals), fields=FIELDS)
    with running_slice(time_scale=0.05):
        until(scene.alerts)
    row = scene.sensor()
    row.signals["lost"]["conditions"] = [{"seen": "2020-01-01T00:00:00+00:00"}]
    row.save()
    scene.loop.delete()
    scene.loop = scene.begin_loop()
    with running_slice(time_scale=0.05):
        until(scene.alerts)
        seen = len(source.times)
        until(lambda: len(source.times) > seen + 2)

    assert [alert.name for alert in scene.alerts()] == ["hot"], "what was absent before the loop is not absent since"


def test_cooldown_counts_what_it_suppresses(serving):
    numbers = itertools.cycle([1, 99])
    source = serving(Web, lambda request: {"n": next(numbers)})
    scene = Scene(poll(source.url, signals=[{**signal(path="n", above=80), "cooldown": 3600}]), fields=FIELDS)
    with running_slice(time_scale=0.02):
        until(lambda: scene.alerts() and scene.sensor().signals["hot"].get("suppressed", 0) >= 2)

    assert len(scene.alerts()) == 1


def test_unchanged_source_fires_when_its_condition_has_held(serving):
    source = serving(Web, _unless_tagged)
    scene = Scene(poll(source.url, signals=[signal(path="n", above=80, **{"for": 1})]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(scene.alerts)

    assert len(scene.alerts()) == 1
    assert any("if-none-match" in asked for asked in source.asked)


def _unless_tagged(request):
    return (304, {}, b"") if "If-None-Match" in request.headers else (200, {"ETag": '"a"'}, {"n": 90})


@pytest.mark.parametrize("is_failing", [True, False])
def test_absence_fires_whether_the_source_is_silent_or_fails(serving, is_failing):
    source = serving(Web, lambda request: (503, {}, b"{}")) if is_failing else serving(Events, most=0)
    kind = poll if is_failing else stream
    scene = Scene(kind(source.url, signals=[signal(absent_for=1)]), fields=FIELDS)
    with running_slice(time_scale=0.2):
        until(scene.alerts)

    assert [alert.text for alert in scene.alerts()] == ["feed: hot the reading absent for 1 seconds. no new reading"]


def test_missing_value_of_a_poll_is_a_fault_while_it_is_missing(serving):
    now = {"m": 1}
    scene = Scene(poll(serving(Web, lambda request: dict(now)).url, signals=[signal(path="n", above=5)]), fields=FIELDS)
    with running_slice(time_scale=0.05):
        until(lambda: scene.sensor().state == "failing")
        assert scene.sensor().problem == "hot cannot be judged: there is nothing at n"
        now["n"] = 9
        until(lambda: scene.sensor().state == "fine" and scene.alerts())

    assert scene.sensor().problem == ""
    assert scene.sensor().signals["hot"]["unscored"] >= 1


def test_each_matching_event_and_file_fires(serving, tmp_path):
    (tmp_path / "box").mkdir()
    events = serving(Events, lambda n: json.dumps({"level": "ERROR" if n % 2 else "INFO", "n": n}), most=6, pause=0)
    each = {"name": "hot", "when": {"path": "level", "matches": "ERROR"}, "each": True}
    added = {"name": "hot", "when": [{"path": "name", "matches": "[.]pdf$"}, {"path": "kind", "matches": "added"}]}
    scene = Scene(
        stream(events.url, updates=[{"field": "odd", "path": "n", "gated_by": "hot"}], signals=[each]),
        watch(tmp_path / "box", name="box", updates=(), signals=[added]),
        fields=FIELDS,
    )
    with running_slice(time_scale=0.2):
        until(lambda: scene.sensor("box").read_at)
        for name in ("a.pdf", "b.txt", "c.pdf"):
            (tmp_path / "box" / name).write_text("x")
        until(lambda: scene.value("odd") == [1, 3, 5])
        until(lambda: scene.sensor("box").signals["hot"].get("fired") == 2)

    assert scene.sensor().signals["hot"]["fired"] == 3
