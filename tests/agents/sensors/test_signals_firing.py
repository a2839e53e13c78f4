"""Firing signals: scored through the guard, charged, followed once by an alert, a gated field or a run."""

import itertools
from datetime import timedelta

import pytest

from agents.conf import clock
from agents.enums import HaltState, Mode, Purpose, Status, TerminalReason, TriggerKind
from agents.ledger.prices import invalidate_estimates
from agents.models import AgentSession, InboundEvent, InferenceLog, ToolCall
from agents.walk.intake import event_of
from tests.agents.sensors.conftest import MODEL
from tests.agents.sensors.scene import Scene, poll, running_slice, stream
from tests.agents.sensors.sources import Events, Web
from tests.factories import make_price, make_trigger
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)
FIELDS = {"value": "object"}


def signal(name="anomaly", **more):
    return {"name": name, "model": MODEL, "prompt": "Is this odd?", **more}


@pytest.fixture
def model(model):
    make_price(MODEL)
    invalidate_estimates()
    return model


@pytest.fixture
def counter(serving):
    """A source with a different answer each time."""
    numbers = itertools.count(1)
    return serving(Web, lambda request: {"n": next(numbers)})


def judged(scene, times=1):
    until(lambda: InferenceLog.objects.count() >= times)
    until(lambda: len(scene.events()) >= times)


@pytest.mark.parametrize(("said", "alerts"), [("0.79", 0), ("0.80", 1), ("1", 1), ("yes, very odd", 0), ("NaN", 0)])
def test_signal_fires_at_its_threshold(serving, model, said, alerts):
    model(said)
    scene = Scene(poll(serving(Web, {"n": 1}).url, signals=[signal()]), fields=FIELDS)
    with running_slice():
        judged(scene)

    told = scene.alerts()
    assert len(told) == alerts
    if alerts:
        assert (told[0].name, told[0].source_name) == ("anomaly", "feed")
        assert told[0].text.startswith("feed: anomaly scored ")
        assert '{"n": 1}' in told[0].text
        assert scene.events("autonomy:notification_pushed")[0]["name"] == "anomaly"
    state = scene.sensor().signals["anomaly"]
    assert ("fired_at" in state) is bool(alerts)


def test_call_is_made_under_the_agents_sensor_session_and_charged(serving, model):
    asked = model("0.9")
    scene = Scene(poll(serving(Web, {"n": 1}).url, signals=[signal()]), fields=FIELDS)
    with running_slice():
        judged(scene)

    [session] = AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR)
    [call] = ToolCall.objects.filter(session=session)
    [request] = asked.requests
    assert (call.outcome, request.purpose, request.max_tokens) == ("success", Purpose.SIGNAL, 16)
    assert session.cost_total_usd == call.charged_usd > 0
    assert session.params["key"] == f"agent:{scene.agent.public_id}:sensors:{session.params['day']}"
    assert (session.status, session.lease_owner) == (Status.SLEEPING, "")
    assert request.messages[1]["content"].count("<<<sensor ") == 1


def test_session_of_the_day_is_used_by_all_slices(counter, model):
    model("0.1")
    scene = Scene(poll(counter.url, signals=[signal()]), fields=FIELDS)
    for seen in (1, 3, 5):
        with running_slice(time_scale=0.1):
            judged(scene, seen)

    assert AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR).count() == 1


def test_reading_is_scored_after_the_slice_holding_the_session_died(serving, model, settings):
    """The session's lease may outlast those of the sensors: readings in between are not dropped."""
    settings.LQOPS_LEASE_SECONDS = 2
    model("0.1", "0.9")
    scene = Scene(poll(serving(Web, {"n": 1}).url, signals=[signal()]), fields=FIELDS)
    with running_slice():
        judged(scene)
    session = AgentSession.objects.get(agent=scene.agent, mode=Mode.SENSOR)
    session.status, session.lease_owner = Status.RUNNING, "dead:1"
    session.lease_until = clock() + timedelta(seconds=1)
    session.save()
    scene.sync(poll(serving(Web, {"n": 2}).url, signals=[signal()]))
    with running_slice():
        until(scene.alerts)

    assert (len(scene.alerts()), scene.errors()) == (1, [])


def test_unchanged_reading_is_not_scored_again(serving, model):
    asked, source = model("0.9"), serving(Web, {"n": 1})
    scene = Scene(poll(source.url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(lambda: len(source.times) >= 5)

    assert len(asked.requests) == 1
    assert len(scene.alerts()) == 1


def test_signal_in_its_cooldown_is_not_scored(counter, model):
    asked = model("0.9")
    scene = Scene(poll(counter.url, signals=[signal(cooldown=3600)]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(lambda: len(scene.events()) >= 4)

    assert (len(asked.requests), len(scene.alerts())) == (1, 1)


def test_signal_without_notify_pushes_no_alert_but_opens_its_gate(counter, model):
    model("0.1", "0.9", "prose", "0.9")
    updates = ["value", {"field": "odd", "path": "n", "gated_by": "anomaly"}]
    scene = Scene(
        poll(counter.url, updates=updates, signals=[signal(notify=False)]),
        fields={**FIELDS, "odd": {"type": "array", "max_items": 999}},
    )
    with running_slice(time_scale=0.1):
        until(lambda: len(scene.value("odd") or []) >= 2)

    assert scene.value("odd")[:2] == [2, 4]
    assert scene.alerts() == []


def test_repeated_stream_event_alerts_once(serving, model):
    model("0.9")
    source = serving(Events, most=6, each=2, pause=0.05, forgets=True)
    scene = Scene(
        stream(source.url, updates=["log"], signals=[signal()]), fields={"log": {"type": "array", "max_items": 99}}
    )
    with running_slice(time_scale=0.05):
        until(lambda: len(source.from_ids) >= 4)

    keys = [alert.dedupe for alert in scene.alerts()]
    assert 1 <= len(keys) == len(set(keys)) <= 2


# --- Runs ---


def test_signal_spawns_one_run_with_the_reading_as_data(serving, model):
    model("0.9")
    scene = Scene(poll(serving(Web, {"n": 7}).url, signals=[signal(spawn="Look into it")]), fields=FIELDS)
    trigger = make_trigger(owner=scene.agent.owner, agent=scene.agent, kind=TriggerKind.EVENT, name="Look into it")
    with running_slice():
        until(trigger.sessions.exists)
    with running_slice():
        until(lambda: scene.sensor().lease_owner != "")

    [spawned] = trigger.sessions.all()
    assert spawned.depth == 1
    assert spawned.slot.startswith(f"sensor:{scene.sensor().pk}:")
    assert '"n": 7' in event_of(spawned).text.replace("\\", "")
    assert InboundEvent.objects.get(session=spawned).source == "sensor"
    assert "spawns" not in scene.sensor().signals["anomaly"]


def test_run_left_by_a_lost_slice_is_spawned_once(serving, model, monkeypatch):
    model("0.9")
    source = serving(Web, {"n": 7})
    scene = Scene(poll(source.url, signals=[signal(spawn="Look")]), fields=FIELDS)
    trigger = make_trigger(owner=scene.agent.owner, agent=scene.agent, kind=TriggerKind.EVENT, name="Look")
    monkeypatch.setattr("agents.sensors.slice.sensor_spawn", lambda held, now: 1 / 0)
    with running_slice(time_scale=0.1):
        until(scene.alerts)
        seen = scene.sensor().read_at
        until(lambda: scene.sensor().read_at > seen)
    assert len(scene.sensor().signals["anomaly"]["spawns"]) == 1
    monkeypatch.undo()
    with running_slice():
        until(trigger.sessions.exists)

    assert trigger.sessions.count() == 1


@pytest.mark.parametrize("named", ["absent", "paused"])
def test_trigger_that_cannot_fire_is_reported_as_an_error(serving, model, named):
    model("0.9")
    scene = Scene(poll(serving(Web, {"n": 7}).url, signals=[signal(spawn=named)]), fields=FIELDS)
    make_trigger(owner=scene.agent.owner, agent=scene.agent, kind=TriggerKind.EVENT, name="paused", enabled=False)
    with running_slice():
        until(lambda: any("trigger" in error for error in scene.errors()))

    assert len(scene.alerts()) == 1


# --- Brakes ---


def test_cost_cap_ends_the_sensor_session_and_readings_go_on(counter, model):
    asked = model("0.9")
    scene = Scene(poll(counter.url, signals=[signal()]), fields=FIELDS)
    scene.text["max_cost_usd"] = 0.0001
    scene.sync(*scene.text["sensors"])
    with running_slice(time_scale=0.1):
        until(lambda: any("has ended: cost cap reached" in error for error in scene.errors()))
        seen = len(scene.events())
        until(lambda: len(scene.events()) > seen)

    [session] = AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR)
    assert session.terminal_reason == TerminalReason.COST_CAP_REACHED
    assert asked.requests == []
    assert scene.value("value") is not None


def test_halted_sensor_session_stays_halted_for_the_day(counter, model):
    asked = model("0.1")
    scene = Scene(poll(counter.url, signals=[signal()]), fields=FIELDS)
    sessions = AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR)
    with running_slice(time_scale=0.2):
        judged(scene)
        sessions.update(halt_state=HaltState.HALT_REQUESTED)
        until(lambda: sessions.get().status == Status.HALTED)
        before = len(asked.requests)
        seen = len(scene.events())
        until(lambda: len(scene.events()) >= seen + 3)

    assert len(asked.requests) == before
    assert sessions.count() == 1


def test_unknown_model_is_an_error_of_the_signal_only(serving, model):
    scene = Scene(
        poll(serving(Web, {"n": 1}).url, signals=[signal(model="nobody"), signal("other", model=MODEL)]), fields=FIELDS
    )
    model("0.9")
    with running_slice():
        until(scene.alerts)

    assert any("anomaly could not be judged" in error for error in scene.errors())
    assert [alert.name for alert in scene.alerts()] == ["other"]
