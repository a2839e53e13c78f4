"""Poll sensors: a URL in fixed intervals, into the fields of the definition; and bad answers."""

import itertools
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.enums import NoticeKind, SensorState
from agents.models import AgentEvent, HotField, Notification, Sensor
from agents.sensors import slice as slices
from agents.sensors.poll import Poll, next_due
from agents.sensors.rows import LeasedSensor
from agents.sensors.sensing import LONGEST_INTERVAL
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.agents.sensors.sources import Web
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)


def test_reading_updates_every_field_with_an_event_each(serving):
    source = serving(Web, {"data": {"items": [{"price": 1.5}]}, "at": "now"})
    scene = Scene(
        poll(source.url, updates=["whole", {"field": "price", "path": "data.items[0].price"}]),
        fields={"whole": "object", "price": "number"},
    )
    with running_slice():
        until(lambda: scene.value("price") is not None)

    assert scene.value("price") == 1.5
    assert scene.value("whole") == {"data": {"items": [{"price": 1.5}]}, "at": "now"}
    assert scene.events()[:2] == [{"sensor": "feed", "field": "whole"}, {"sensor": "feed", "field": "price"}]
    row = scene.sensor()
    assert (row.state, row.problem, row.failures, row.lease_owner) == (SensorState.FINE, "", 0, "")
    assert row.value.startswith('{"data": {"items"')
    field = HotField.objects.get(session=scene.loop, name="price")
    assert (field.source, field.source_name) == ("sensor", "feed")


def test_missing_part_is_an_error_of_its_field_only(serving):
    source = serving(Web, {"a": 1})
    scene = Scene(
        poll(source.url, updates=[{"field": "a", "path": "a"}, {"field": "b", "path": "x.y"}]),
        fields={"a": "number", "b": "number"},
    )
    with running_slice():
        until(lambda: scene.value("a") == 1)

    assert scene.value("b") is None
    assert "b: there is nothing at x" in scene.errors()
    assert (scene.sensor().state, scene.sensor().problem) == (SensorState.FINE, "b: there is nothing at x")


def test_value_of_the_wrong_type_is_an_error_of_its_field_only(serving):
    source = serving(Web, {"a": "text", "b": ["x" * 70_000]})
    updates = [{"field": "a", "path": "a"}, {"field": "b", "path": "b"}, {"field": "c"}]
    scene = Scene(poll(source.url, updates=updates), fields={"a": "number", "b": "array"})
    with running_slice():
        until(lambda: len(scene.errors()) >= 3)

    told = " ".join(scene.errors())
    assert "a is of type number" in told
    assert "The value of b is 70" in told
    assert "no field 'c'" in told


def test_secrets_in_a_reading_are_masked(serving):
    source = serving(Web, {"api_key": "sk-live-51JxQ2h8fT0aBcDeFgHiJkLm", "n": 1})
    scene = Scene(poll(source.url), fields={"value": "object"})
    with running_slice():
        until(lambda: scene.value("value") is not None)

    assert "51JxQ2h8fT0" not in f"{scene.value('value')}{scene.sensor().value}"


# --- Pace ---


def test_interval_is_kept_within_a_slice_and_from_one_to_the_next(serving, monkeypatch):
    readings, write = [], slices.sensors_write
    monkeypatch.setattr(slices, "sensors_write", lambda results: readings.extend(results) or write(results))
    source = serving(Web, lambda request: time.sleep(0.1) or {"n": 1})
    Scene(poll(source.url, interval=1), fields={"value": "object"})
    with running_slice(time_scale=0.25):
        until(lambda: len(readings) >= 3)
    with running_slice(time_scale=0.25):
        until(lambda: len(readings) >= 6)

    pairs = list(itertools.pairwise(readings))
    gaps = [(after.next_due_at - before.next_due_at).total_seconds() for before, after in pairs]
    assert all(gap > 0.24 for gap in gaps), gaps
    assert min(gaps) < 0.3, "what a look takes is not added to the interval"
    early = timedelta(milliseconds=10)  # the due time and the wait are on different clocks
    assert all(after.at > before.next_due_at - early for before, after in pairs)


def test_unchanged_source_is_not_fetched_again_and_its_field_stays_fresh(serving):
    def answer(request):
        if request.headers.get("If-None-Match") == '"v1"' and request.headers.get("If-Modified-Since") == "yesterday":
            return 304, {}, b""
        return 200, {"ETag": '"v1"', "Last-Modified": "yesterday"}, {"n": 1}

    source = serving(Web, answer)
    scene = Scene(poll(source.url), fields={"value": "object"})
    with running_slice(time_scale=0.05):
        until(lambda: len(source.asked) >= 5)

    assert "if-none-match" not in source.asked[0]
    assert all(asked["if-none-match"] == '"v1"' for asked in source.asked[1:])
    field = HotField.objects.get(session=scene.loop, name="value")
    assert field.value == {"n": 1}
    assert field.updated_at > field.changed_at
    with running_slice(time_scale=0.05):  # the next slice knows what the last one saw
        until(lambda: len(source.asked) >= 8)
    assert all("if-none-match" in asked for asked in source.asked[1:])
    scene.loop.delete()
    scene.loop = scene.begin_loop()
    before = len(source.asked)
    with running_slice(time_scale=0.05):
        until(lambda: scene.value("value") == {"n": 1})
    assert "if-none-match" not in source.asked[before], "a new loop has seen nothing yet"


# --- Failures ---


def test_failing_source_backs_off_and_the_owner_is_notified_once(serving):
    source = serving(Web, lambda request: (503, {}, b"{}"))
    scene = Scene(poll(source.url), fields={"value": "object"})
    unit = 0.001
    with running_slice(time_scale=unit):
        until(lambda: scene.sensor().failures >= 11)

    told = scene.events("autonomy:sensor_error")
    assert [event["failures"] for event in told[:11]] == list(range(1, 12))
    waits = [min(2**n, LONGEST_INTERVAL) for n in range(11)]
    assert [event["wait_seconds"] for event in told[:11]] == [round(wait * unit, 3) for wait in waits]
    times = AgentEvent.objects.filter(kind="autonomy:sensor_error").order_by("id").values_list("created_at", flat=True)
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    assert all(gap > 0.95 * wait * unit for gap, wait in zip(gaps[:10], waits, strict=False)), gaps
    assert scene.sensor().state == SensorState.FAILING
    assert scene.sensor().problem == "the server answered with status 503"
    [notice] = Notification.objects.filter(owner=scene.agent.owner)
    assert notice.kind == NoticeKind.SENSOR_FAILING
    assert "failed 10 times in a row" in notice.title


def test_success_ends_the_backoff_and_other_sensors_are_unaffected(serving):
    def answer(request):
        if len(bad.times) <= 3:
            return 500, {}, b"{}"
        until(lambda: len(good.times) > 4)  # it is polled meanwhile
        return {"n": 1}

    bad, good = serving(Web, answer), serving(Web, {"n": 2})
    scene = Scene(
        poll(bad.url, updates=["a"]),
        poll(good.url, name="other", updates=["b"]),
        fields={"a": "object", "b": "object"},
    )
    with running_slice(time_scale=0.05):
        until(lambda: scene.value("a") == {"n": 1})

    assert (scene.sensor().failures, scene.sensor().state, scene.sensor().problem) == (0, SensorState.FINE, "")


def test_backoff_continues_in_the_next_slice(serving):
    source = serving(Web, lambda request: (500, {}, b""))
    scene = Scene(poll(source.url), fields={"value": "object"})
    with running_slice(time_scale=0.05):
        until(lambda: scene.sensor().failures >= 4)
    asked, failures = len(source.times), scene.sensor().failures
    failed_at = AgentEvent.objects.filter(kind="autonomy:sensor_error").latest("id").created_at
    wait = timedelta(seconds=0.05 * min(2 ** (failures - 1), LONGEST_INTERVAL))
    assert scene.sensor().next_due_at >= failed_at + wait
    Sensor.objects.update(next_due_at=clock() + timedelta(minutes=1))
    with running_slice():
        until(lambda: scene.sensor().lease_owner != "")
        time.sleep(0.3)

    assert len(source.times) == asked, "the fourth wait is 8 seconds"
    assert scene.sensor().failures == failures


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((200, {}, b"{not json"), "not JSON"),
        ((200, {}, b"[" * 100_000), "not JSON"),
        ((200, {"Content-Type": "text/plain"}, b"x" * 2_000_000), "larger than allowed"),
        ((404, {}, b"{}"), "status 404"),
        ((302, {"Location": "http://169.254.169.254/latest"}, b""), "not public"),
        (lambda request: request.wfile.write(b"\0garbage\r\n\r\n"), "not valid HTTP"),
        (lambda request: None, "not valid HTTP"),
    ],
)
def test_bad_answer_is_a_failure_that_says_why(serving, answer, problem):
    source = serving(Web, answer if callable(answer) else lambda request: answer)
    scene = Scene(poll(source.url), fields={"value": "object"})
    with running_slice():
        until(lambda: scene.sensor().failures > 0)

    assert problem in scene.sensor().problem
    assert scene.value("value") is None


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "http://localhost/"])
def test_private_address_is_refused(url):
    scene = Scene(poll(url), fields={"value": "object"})
    with running_slice():
        until(lambda: scene.sensor().state == SensorState.INVALID)

    assert "only the configuration can allow it" in scene.sensor().problem


def test_name_that_leads_to_a_private_address_is_refused_with_each_look(monkeypatch):
    monkeypatch.setattr("agents.net.urls.system_resolve", lambda host: ["10.0.0.1"])
    scene = Scene(poll("http://site.example.com/"), fields={"value": "object"})
    with running_slice():
        until(lambda: scene.sensor().failures > 0)

    assert "only the configuration can allow it" in scene.sensor().problem


def test_source_that_sends_no_json_is_read_as_text(serving):
    source = serving(Web, lambda request: (200, {"Content-Type": "text/plain; charset=utf-8"}, "größe 5".encode()))
    scene = Scene(poll(source.url), fields={"value": "string"})
    with running_slice():
        until(lambda: scene.value("value") is not None)

    assert scene.value("value") == "größe 5"


def test_unstorable_numbers_are_kept_as_text(serving):
    source = serving(Web, lambda request: (200, {}, b'{"a": NaN, "b": 1e999, "c": "\\u0000\\ud800"}'))
    scene = Scene(poll(source.url), fields={"value": "object"})
    with running_slice():
        until(lambda: scene.value("value") is not None)

    assert scene.value("value") == {"a": "nan", "b": "inf", "c": "\ufffd\ufffd"}


def test_too_deep_or_too_large_value_is_an_error_of_its_field(serving):
    source = serving(Web, lambda request: (200, {}, b'{"deep": ' + b"[" * 200 + b"]" * 200 + b', "n": 1}'))
    large = serving(Web, {"rows": [{"n": n} for n in range(20_000)]})
    scene = Scene(
        poll(source.url, updates=[{"field": "deep", "path": "deep"}, {"field": "n", "path": "n"}]),
        poll(large.url, name="large", updates=["rows"]),
        fields={"deep": "array", "n": "number", "rows": "object"},
    )
    with running_slice():
        until(lambda: scene.value("n") == 1 and scene.sensor("large").problem)

    assert "nested more than" in scene.sensor().problem
    assert "the value is about" in scene.sensor("large").problem
    assert scene.value("deep") is scene.value("rows") is None


@pytest.mark.parametrize(("failures", "longest"), [(0, 7), (3, 28)])
def test_clock_set_back_delays_a_look_no_longer_than_a_failure(failures, longest):
    scene = Scene(poll("http://feed.example.com/", interval=7))
    definition = definition_of(scene.agent)
    row = scene.sensor()
    row.failures, row.next_due_at = failures, clock() + timedelta(days=1)
    services = SimpleNamespace(calls=None)

    assert Poll(LeasedSensor(row, definition.sensors[0], definition), services).seconds_until_due() == longest


# --- Pace ---


def test_pace_is_kept_however_long_a_look_takes():
    due, looks = 100.0, []
    for took in (0.1, 0.9, 2.0, 0.3, 4.9, 0.0):
        looks.append(due)
        due = next_due(due, due + took, 5)

    assert looks == [100, 105, 110, 115, 120, 125]


def test_missed_looks_are_not_made_up_for():
    assert next_due(100, 117, 5) == 117
