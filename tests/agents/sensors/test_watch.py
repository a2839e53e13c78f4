"""Watch sensors: each change in a folder or file reaches the agent once, in whichever slice it happened."""

import asyncio
import json
import time

import pytest

from agents.enums import SensorState
from agents.ledger.prices import invalidate_estimates
from agents.models import AgentEvent, Alert, HotField, Sensor, ToolCall
from agents.providers.scripted import ScriptedProvider, Step
from agents.sensors.sensing import FileChangeWatcher
from tests.agents.sensors.scene import Scene, running_slice, watch
from tests.factories import make_price
from tests.flows.processes import until
from tests.serving import serving as model_serving

pytestmark = pytest.mark.django_db(transaction=True)
MODEL = "test-model"


@pytest.fixture
def box(tmp_path):
    folder = tmp_path / "box"
    folder.mkdir()
    return folder


def watched(box, **more):
    return Scene(watch(box, **more), fields={"value": {"type": "array", "max_items": 100}})


def told(scene):
    return [(one["name"], one["kind"]) for one in scene.value("value") or []]


def test_changes_are_reported_as_they_happen_newest_first(box):
    (box / "old.txt").write_text("old")
    scene = watched(box)
    with running_slice():
        until(lambda: told(scene) == [("old.txt", "present")])
        (box / "new.txt").write_text("new one")
        until(lambda: told(scene) == [("new.txt", "added"), ("old.txt", "present")])
        (box / "old.txt").write_text("changed")
        until(lambda: len(told(scene)) == 3)
        (box / "new.txt").unlink()
        until(lambda: len(told(scene)) == 4)

    assert told(scene)[:2] == [("new.txt", "deleted"), ("old.txt", "modified")]
    assert scene.value("value")[2]["size"] == len("new one")
    assert scene.sensor().state == SensorState.FINE


def test_changes_between_slices_are_found_by_the_next(box):
    scene = watched(box)
    with running_slice():
        until(lambda: scene.value("value") == [])
    (box / "a.txt").write_text("a")
    with running_slice():
        until(lambda: told(scene) == [("a.txt", "added")])
    with running_slice():
        until(lambda: scene.sensor().lease_owner != "")
        time.sleep(0.5)

    assert told(scene) == [("a.txt", "added")], "told once"


def test_file_in_a_new_folder_is_reported(box):
    scene = watched(box)
    with running_slice():
        until(lambda: scene.value("value") == [])
        (box / "deep" / "er").mkdir(parents=True)
        (box / "deep" / "er" / "first.txt").write_text("1")
        until(lambda: told(scene) == [("deep/er/first.txt", "added")])
        (box / "deep" / "er" / "second.txt").write_text("2")
        until(lambda: ("deep/er/second.txt", "added") in told(scene))


def test_single_file_is_reported_with_its_text(box):
    (box / "note.txt").write_text("first")
    scene = watched(box / "note.txt")
    with running_slice():
        until(lambda: told(scene) == [("note.txt", "present")])
        assert scene.value("value")[0]["text"] == "first"
        (box / "note.txt").write_text("second")
        until(lambda: told(scene)[0] == ("note.txt", "modified"))
        assert scene.value("value")[0]["text"] == "second"
        (box / "note.txt").unlink()
        until(lambda: told(scene)[0] == ("note.txt", "deleted"))

    assert f"{box / 'note.txt'} does not exist now" in scene.errors()


def test_path_that_appears_later_is_reported(box):
    scene = watched(box / "later")
    with running_slice(time_scale=0.02):
        until(lambda: scene.value("value") == [])
        assert scene.sensor().problem == f"{box / 'later'} does not exist now"
        (box / "later").mkdir()
        (box / "later" / "a").write_text("x")
        until(lambda: told(scene) == [("a", "added")])
        until(lambda: scene.sensor().problem == "")


def test_many_new_files_are_reported_together_and_limited(box, tmp_path):
    crowd = tmp_path / "crowd"
    crowd.mkdir()
    for number in range(300):
        (crowd / f"{number:04}.txt").write_text(str(number))
    scene = Scene(watch(box), fields={"value": {"type": "array", "max_items": 20}})
    with running_slice():
        until(lambda: scene.value("value") == [])
        crowd.rename(box / "crowd")
        until(lambda: len(scene.sensor().cursor.get("files", {})) == 300)
        (box / "last.txt").write_text("x")
        until(lambda: ("last.txt", "added") in told(scene))

    assert len(told(scene)) == 20
    assert len(scene.sensor().cursor["recent"]) == 100
    assert len(scene.events()) <= 5


def test_new_loop_sees_known_files_without_alerts(box):
    (box / "a.txt").write_text("a")
    scene = watched(box)
    with running_slice():
        until(lambda: told(scene) == [("a.txt", "present")])
    scene.loop.delete()
    scene.loop = scene.begin_loop()
    with running_slice():
        until(lambda: told(scene) == [("a.txt", "present")])


# --- Alerts ---


@pytest.fixture
def asked():
    """A model that scores every change 0.9, with its requests."""
    make_price(MODEL)
    invalidate_estimates()
    with model_serving(MODEL, ScriptedProvider([Step("0.9")])) as model:
        yield model.requests
    invalidate_estimates()


def alerting(box):
    return watched(box, signals=[{"name": "came", "model": MODEL, "prompt": "Is it odd?"}])


def test_every_creation_and_deletion_of_a_file_alerts(box, asked):
    scene = alerting(box)
    with running_slice(time_scale=0.2):
        until(lambda: scene.value("value") == [])
        for times in (2, 4):
            (box / "stop").write_text("x")
            until(lambda: len(told(scene)) == times - 1)  # noqa: B023 used at once
            (box / "stop").unlink()
            until(lambda: len(told(scene)) == times)  # noqa: B023 as above
        until(lambda: len(scene.alerts()) == 4)

    assert [kind for _, kind in told(scene)] == ["deleted", "added"] * 2


def test_new_file_is_reported_among_many_deletions(box, asked):
    for number in range(150):
        (box / f"{'old' * 60}{number}").write_text("x")
    scene = alerting(box)
    with running_slice(time_scale=0.2):
        until(lambda: scene.value("value"))
    for file in box.iterdir():
        file.unlink()
    (box / "URGENT.txt").write_text("now")
    with running_slice(time_scale=0.2):
        until(scene.alerts)

    assert told(scene)[0] == ("URGENT.txt", "added")
    assert scene.value("value")[99] | {"at": ""} == {"name": "…", "kind": "more", "size": 52, "at": ""}
    assert "URGENT.txt" in asked[0].messages[1]["content"]
    assert "URGENT.txt" in scene.alerts()[0].text


def test_secret_in_a_file_name_is_stored_nowhere(box, asked):
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    scene = alerting(box)
    with running_slice(time_scale=0.2):
        until(lambda: scene.value("value") == [])
        (box / f"{token}.txt").write_text("x")
        until(scene.alerts)

    rows = [list(model.objects.values()) for model in (Sensor, HotField, Alert, AgentEvent, ToolCall)]
    assert token not in json.dumps(rows, default=str)
    assert told(scene)[0][0].startswith("masked-")


# --- Unusual paths and times ---


@pytest.mark.parametrize("path", ["/etc", "../outside"])
def test_path_outside_of_the_roots_fails(path):
    scene = watched(path)
    with running_slice():
        until(lambda: scene.sensor().problem)

    assert any(word in scene.sensor().problem for word in ("outside of the folders", "contains .."))


def test_changes_are_reported_when_the_folder_is_quiet(box):
    scene = watched(box, interval=20)
    with running_slice(time_scale=0.04):
        until(lambda: scene.value("value") == [])
        for number in range(8):
            (box / f"{number}.txt").write_text("x")
            time.sleep(0.1)
        until(lambda: len(told(scene)) == 8)

    assert len(scene.events()) <= 3


# --- File change watcher ---


def test_vanished_folder_wakes_its_watchers_and_watching_goes_on(tmp_path):
    async def scenario():
        watcher, gone, other = FileChangeWatcher(), asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(watcher.run())
        await asyncio.sleep(0)
        watcher.listen(gone, [str(tmp_path / "absent")])
        async with asyncio.timeout(60):
            await gone.wait()
        watcher.leave(gone)
        watcher.listen(other, [str(tmp_path)])
        async with asyncio.timeout(60):
            await other.wait()  # set once, when watching starts
        other.clear()
        (tmp_path / "x").write_text("x")
        async with asyncio.timeout(60):
            await other.wait()
        watcher.listen(other, [str(tmp_path)])
        watcher.leave(other)
        watcher.leave(other)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())
