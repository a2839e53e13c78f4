"""Readings that could not be scored when they came: kept, retried at intervals, counted when dropped."""

import itertools
import json
from datetime import datetime, timedelta

import pytest

from agents.ledger.prices import invalidate_estimates
from agents.models import Alert, HotField, ModelPrice, Notification, Sensor
from agents.sensors.signals import DATA_CHARS, PendingScore
from tests.agents.sensors.conftest import MODEL
from tests.agents.sensors.scene import Scene, poll, running_slice, stream, watch
from tests.agents.sensors.sources import Script, Web
from tests.factories import make_price
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)
FIELDS = {"value": "object", "log": {"type": "array", "max_items": 99}, "odd": {"type": "array", "max_items": 99}}
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr("agents.sensors.signals.RETRY_SECONDS", 0.2)


def signal(**more):
    return {"name": "anomaly", "model": MODEL, "prompt": "Is this odd?", **more}


def can_be_asked(can=True):
    if can:
        make_price(MODEL)
    else:
        ModelPrice.objects.filter(model=MODEL).delete()
    invalidate_estimates()


def state_of(scene):
    return scene.sensor().signals["anomaly"]


def unjudged(scene):
    return "waiting" in state_of(scene)


# --- Unavailable model ---


@pytest.mark.parametrize("slices", ["one", "two"])
def test_unchanged_poll_is_scored_once_the_model_is_available(serving, model, slices):
    asked, source = model("0.9"), serving(Web, {"n": 1})
    scene = Scene(poll(source.url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(lambda: scene.errors() and unjudged(scene) and len(source.times) > 3)
        assert "could not be judged" in scene.errors()[0]
        if slices == "one":
            can_be_asked()
            until(scene.alerts)
    if slices == "two":
        can_be_asked()
        with running_slice(time_scale=0.1):
            until(scene.alerts)

    assert (len(scene.alerts()), len(asked.requests)) == (1, 1)
    assert '{"n": 1}' in scene.alerts()[0].text
    assert state_of(scene).keys() == {"mark", "at", "score", "fired_at"}


def test_unavailable_model_is_reported_once(serving, model):
    model("0.9")
    numbers = itertools.count(1)
    scene = Scene(poll(serving(Web, lambda request: {"n": next(numbers)}).url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.05):
        until(lambda: state_of(scene)["waiting"]["tries"] >= 4 if scene.errors() else False)

    assert len(scene.errors()) == 1
    assert state_of(scene)["unable"] in scene.errors()[0]


def test_unscored_events_and_files_are_scored_later_with_new_ones(serving, model, tmp_path):
    asked = model("0.9")
    (tmp_path / "box").mkdir()
    source = serving(Script, [b"id: 1\ndata: 1\n\n", b"id: 2\ndata: 2\n\n", b"id: 3\ndata: 3\n\n"])
    scene = Scene(
        stream(source.url, updates=["log", {"field": "odd", "gated_by": "anomaly"}], signals=[signal()]),
        watch(tmp_path / "box", name="box", updates=[{"field": "files", "gated_by": "anomaly"}], signals=[signal()]),
        fields={**FIELDS, "files": "array"},
    )
    with running_slice(time_scale=0.2):
        until(lambda: scene.sensor("box").read_at)
        (tmp_path / "box" / "a.txt").write_text("x")
        until(lambda: scene.value("log") == [1, 2, 3] and unjudged(scene))
        until(lambda: "waiting" in scene.sensor("box").signals["anomaly"])
        can_be_asked()
        until(lambda: len(scene.alerts()) == 2)

    texts = " ".join(alert.text for alert in scene.alerts())
    assert "3 judged together: 1 | 2 | 3" in texts
    assert "a.txt" in texts
    assert len(asked.requests) == 2
    assert (scene.value("odd"), scene.value("log")) == ([1, 2, 3], [1, 2, 3]), "written once"
    assert [(one["name"], one["kind"]) for one in scene.value("files")] == [("a.txt", "added")]


def test_changed_signal_scores_the_present_reading(serving, model):
    asked = model("0.1", "0.9")
    can_be_asked()
    source = serving(Web, lambda request: (304, {}, b"") if "If-None-Match" in request.headers else _tagged())
    scene = Scene(poll(source.url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(lambda: asked.requests and len(source.times) > 3)
    scene.sync(poll(source.url, signals=[signal(prompt="Is it even?")]))
    with running_slice(time_scale=0.1):
        until(scene.alerts)

    assert len(asked.requests) == 2


def test_gated_field_is_not_refreshed_by_an_unchanged_source(serving, model):
    asked, now = model("0.9", "0.1"), {"n": 1}
    can_be_asked()
    source = serving(Web, lambda request: _answer(request, now["n"]))
    updates = ["value", {"field": "odd", "path": "n", "gated_by": "anomaly"}]
    scene = Scene(poll(source.url, updates=updates, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(lambda: scene.value("odd") == [1])
        now["n"] = 2
        until(lambda: scene.value("value") == {"n": 2} and len(asked.requests) == 2)
        written, seen = HotField.objects.get(name="odd").updated_at, len(source.times)
        until(lambda: len(source.times) > seen + 3)

    assert HotField.objects.get(name="odd").updated_at == written
    assert HotField.objects.get(name="value").updated_at > written
    assert [event["field"] for event in scene.events()].count("odd") == 1


def test_late_score_of_an_unchanged_source_fills_its_gated_field(serving, model):
    model("0.9")
    source = serving(Web, lambda request: _answer(request, 1))
    updates = ["value", {"field": "odd", "path": "n", "gated_by": "anomaly"}]
    scene = Scene(poll(source.url, updates=updates, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.02):  # polls come far more often than retries
        until(lambda: unjudged(scene) if scene.errors() else False)
        can_be_asked()
        until(scene.alerts)

    assert scene.value("odd") == [1]


def _tagged():
    return 200, {"ETag": '"v1"'}, {"n": 1}


# --- Cooldown ---


def end_cooldown(scene):
    """Make the signal look as if it fired an hour earlier. No slice holds the sensor."""
    row = scene.sensor()
    fired_at = datetime.fromisoformat(row.signals["anomaly"]["fired_at"]) - timedelta(hours=1)
    row.signals["anomaly"]["fired_at"] = fired_at.isoformat()
    row.save(update_fields=["signals"])


def test_firing_again_within_the_cooldown_is_suppressed(serving, model):
    asked, now = model("0.9"), {"n": 1}
    can_be_asked()
    source = serving(Web, lambda request: now)
    scene = Scene(poll(source.url, signals=[signal(cooldown=3600)]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(scene.alerts)
        now["n"] = 2
        until(lambda: state_of(scene).get("suppressed"))
        now["n"] = 1
        seen = len(source.times)
        until(lambda: len(source.times) > seen + 3 and "missed" not in state_of(scene))
    end_cooldown(scene)
    with running_slice(time_scale=0.1):
        seen = len(source.times)
        until(lambda: len(source.times) > seen + 3)

    assert (len(scene.alerts()), len(asked.requests)) == (1, 1)
    assert state_of(scene)["suppressed"] == 1
    assert not unjudged(scene)


def test_reading_from_the_cooldown_is_scored_after_it(serving, model):
    asked, now = model("0.9"), {"n": 1}
    can_be_asked()
    source = serving(Web, lambda request: _answer(request, now["n"]))
    scene = Scene(poll(source.url, signals=[signal(cooldown=3600)]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(scene.alerts)
        now["n"] = 2
        until(lambda: state_of(scene).get("suppressed"))
        seen = len(source.times)
        until(lambda: len(source.times) > seen + 3)
    assert (len(asked.requests), state_of(scene)["suppressed"]) == (1, 1), "what stays as it is counts once"
    end_cooldown(scene)
    with running_slice(time_scale=0.1):
        until(lambda: len(scene.alerts()) == 2)

    assert len(asked.requests) == 2
    assert '{"n": 2}' in scene.alerts()[1].text


def _answer(request, number):
    """A source that answers 304 to clients that have its content."""
    tag = f'"v{number}"'
    return (304, {}, b"") if request.headers.get("If-None-Match") == tag else (200, {"ETag": tag}, {"n": number})


def test_events_within_the_cooldown_are_counted_and_fill_no_gated_field(serving, model):
    asked = model("0.9")
    can_be_asked()
    source = serving(Script, [b"id: 1\ndata: 1\n\n", b"id: 2\ndata: 2\n\n", b"id: 3\ndata: 3\n\n"], pause=0.3)
    updates = ["log", {"field": "odd", "gated_by": "anomaly"}]
    scene = Scene(stream(source.url, updates=updates, signals=[signal(cooldown=3600)]), fields=FIELDS)
    with running_slice(time_scale=0.2):
        until(lambda: scene.value("log") == [1, 2, 3])

    judged = scene.value("odd")
    assert (len(scene.alerts()), len(asked.requests)) == (1, 1)
    assert [*judged, *range(len(judged) + 1, 4)] == [1, 2, 3]
    assert state_of(scene).get("suppressed", 0) == 3 - len(judged)


# --- No score ---


def test_reading_without_a_score_is_retried_and_then_dropped(serving, model):
    asked = model("I think so")
    can_be_asked()
    source = serving(Web, {"n": 1})
    scene = Scene(poll(source.url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.05):
        until(lambda: len(asked.requests) == 3 and not unjudged(scene))
        seen = len(source.times)
        until(lambda: len(source.times) > seen + 5)

    assert len(asked.requests) == 3
    assert (state_of(scene)["said"], state_of(scene)["let_go"]) == ("I think so", 1)
    fault = "anomaly could not be judged: the model gave no score 3 times, but 'I think so'"
    assert scene.errors() == [fault]
    assert (scene.sensor().state, scene.sensor().problem) == ("failing", fault), "it stands while polls succeed"
    assert state_of(scene)["unscored"] == 1


def test_replies_without_a_score_are_a_fault_at_any_pace(serving, model):
    asked, numbers = model("maybe"), itertools.count(1)
    can_be_asked()
    scene = Scene(poll(serving(Web, lambda request: {"n": next(numbers)}).url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.02):  # every reading differs, and replaces the one before
        until(lambda: scene.sensor().signals.get("anomaly", {}).get("no_score", 0) >= 10)
        until(Notification.objects.exists)

    assert len(asked.requests) >= 10
    assert scene.errors() == ["anomaly could not be judged: the model gave no score 3 times, but 'maybe'"]
    assert scene.sensor().state == "failing"
    assert "the model gave no score" in scene.sensor().problem
    assert state_of(scene)["unscored"] >= 7
    [notice] = Notification.objects.all()
    assert (notice.kind, "gets no scores" in notice.title) == ("sensor_failing", True)


def test_fault_ends_with_the_first_score(serving, model):
    model("maybe", "maybe", "maybe", "0.1")
    can_be_asked()
    now = {"n": 1}
    scene = Scene(poll(serving(Web, lambda request: now).url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.05):
        until(lambda: scene.sensor().state == "failing")
        now["n"] = 2
        until(lambda: scene.sensor().state == "fine")

    assert scene.sensor().problem == ""
    assert state_of(scene)["score"] == "0.1"


def test_retried_reading_fires_when_it_gets_a_score(serving, model):
    asked = model("Certainly!", "0.9")
    can_be_asked()
    scene = Scene(poll(serving(Web, {"n": 1}).url, signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.1):
        until(scene.alerts)

    assert len(asked.requests) == 2


# --- Stored data ---


def test_pending_data_are_bounded_masked_and_counted(serving, model):
    model("0.9")
    large = [f"id: {n}\ndata: {n} {'x' * (DATA_CHARS // 3)}\n\n".encode() for n in range(1, 6)]
    source = serving(Script, [*large, f'id: 6\ndata: {{"token": "{TOKEN}"}}\n\n'.encode()], pause=0.1)
    scene = Scene(stream(source.url, updates=["log"], signals=[signal()]), fields=FIELDS)
    with running_slice(time_scale=0.2):
        until(lambda: scene.errors() and scene.sensor().cursor["id"] == "6")

    state = state_of(scene)
    assert len(json.dumps(state["waiting"]["items"])) < 2 * DATA_CHARS
    assert TOKEN not in json.dumps([list(Sensor.objects.values()), list(HotField.objects.values())], default=str)
    assert state["let_go"] == 6 - len(state["waiting"]["items"])


def test_unstorable_item_is_kept_as_cut_text():
    deep = json.loads("[" * 200 + "]" * 200)
    kept = PendingScore([deep, ["x" * 2 * DATA_CHARS], {"n": 1}], "1.1").to_json()["items"]

    assert kept == ["[" * 200 + "]" * 200, '["' + "x" * (DATA_CHARS - 2), {"n": 1}]


def test_alert_for_several_events_quotes_and_counts_them(serving, model):
    model("0.95")
    can_be_asked()
    together = b"".join(f'id: {n}\ndata: {{"cpu": {cpu}}}\n\n'.encode() for n, cpu in enumerate((99, 1, 2), 1))
    source = serving(Script, [together])
    scene = Scene(stream(source.url, updates=["log"], signals=[signal()]), fields=FIELDS)
    with running_slice():
        until(scene.alerts)

    [alert] = Alert.objects.all()
    assert alert.text == 'feed: anomaly scored 0.95. 3 judged together: {"cpu": 99} | {"cpu": 1} | {"cpu": 2}'
