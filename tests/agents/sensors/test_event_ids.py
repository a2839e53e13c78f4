"""Ids of server-sent events: where to resume, and which event is a repetition. No event is lost for its id."""

import pytest

from agents.ledger.prices import invalidate_estimates
from agents.providers.scripted import ScriptedProvider, Step
from tests.agents.sensors.scene import Scene, running_slice, stream
from tests.agents.sensors.sources import Script
from tests.factories import make_price
from tests.flows.processes import until
from tests.serving import serving as model_serving

pytestmark = pytest.mark.django_db(transaction=True)
MODEL = "test-model"


def event(data, place=None):
    named = "" if place is None else f"id: {place}\n"
    return f"{named}data: {data}\n\n".encode()


@pytest.fixture
def logged(serving):
    """An agent that logs and alerts on every event of a source, and the source."""
    make_price(MODEL)
    invalidate_estimates()

    def start(*connections):
        source = serving(Script, *connections, pause=3)  # the first connection is not read to its end
        signal = {"name": "odd", "model": MODEL, "prompt": "Is it odd?"}
        fields = {"log": {"type": "array", "max_items": 99}}
        return Scene(stream(source.url, updates=["log"], signals=[signal]), fields=fields), source

    with model_serving(MODEL, ScriptedProvider([Step("0.9")])):
        yield start
    invalidate_estimates()


def mind(scene, source, *log, alerts, repeated=False):
    """Run the sensor until it has this log and so many alerts, and no more afterwards.

    An event is sent when the one before has been read: those that wait together would be judged together. `repeated`:
    before the last one, an event is sent that is not logged.
    """
    with running_slice(time_scale=0.1):
        for place, _ in enumerate(log):
            until(lambda place=place: len(scene.value("log") or ()) > place)
            source.next_please.release(2 if repeated and place == len(log) - 2 else 1)
        until(lambda: scene.value("log") == list(log) and len(scene.alerts()) >= alerts)
    assert len(scene.alerts()) == alerts


def test_events_without_ids_after_one_with_an_id_are_not_lost(logged):
    scene, source = logged([event("1", 1), event("2")], [event("3"), event("4"), event("5", 9)])

    mind(scene, source, 1, 2, 3, 4, 5, alerts=5)
    assert [asked.get("last-event-id") for asked in source.asked] == [None, "1"]
    assert scene.sensor().cursor["id"] == "9"


def test_each_event_without_an_id_alerts(logged):
    scene, source = logged([event("1", 1), event("2"), event("2"), event("2")])

    mind(scene, source, 1, 2, 2, 2, alerts=4)


def test_source_that_restarts_its_ids_alerts_for_each_event(logged):
    scene, source = logged([event("1", 1), event("2", 2)], [event("10", 1), event("20", 2), event("30", 3)])

    mind(scene, source, 1, 2, 10, 20, 30, alerts=5)


def test_first_event_after_restarted_ids_is_read_despite_same_id(logged):
    scene, source = logged([event("1", 1)], [event("10", 1), event("20", 2)])

    mind(scene, source, 1, 10, 20, alerts=3)


@pytest.mark.parametrize("between", [[], [event("5")]])
def test_repeated_last_event_is_read_once(logged, between):
    scene, source = logged([event("1", 1), *between], [event("1", 1), event("2", 2)])

    mind(scene, source, 1, *[5 for _ in between], 2, alerts=2 + len(between), repeated=True)


def test_event_sent_again_later_is_read_again_and_alerts_once(logged):
    scene, source = logged([event("1", 1), event("2", 2)], [event("1", 1), event("2", 2), event("3", 3)])

    mind(scene, source, 1, 2, 1, 2, 3, alerts=3)


def test_empty_id_clears_the_resume_point(logged):
    scene, source = logged([event("1", 5), event("2", "")], [event("3")])

    mind(scene, source, 1, 2, 3, alerts=3)
    assert [asked.get("last-event-id") for asked in source.asked] == [None, None]
    assert scene.sensor().cursor["gaps"] == 1
