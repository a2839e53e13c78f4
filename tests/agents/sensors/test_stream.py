"""Stream sensors: server-sent events and WebSockets, also from servers that drop, stall or send garbage."""

import asyncio
import itertools
import resource
import time

import pytest

from agents.enums import SensorState
from agents.sensors.stream import MOST_WAITING, EventBuffer, Item
from tests.agents.sensors.scene import Scene, running_slice, stream
from tests.agents.sensors.sources import Events, Socket, Web
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)
LOG = {"log": {"type": "array", "max_items": 1_000}}


def logged(url, **more):
    """A scene that appends every event to the array `log`."""
    return Scene(stream(url, updates=["log"], **more), fields=LOG)


# --- Server-sent events ---


def test_events_are_read_in_order_and_a_field_holds_the_last(serving):
    source = serving(Events, lambda n: f'{{"n": {n}}}', most=20)
    scene = Scene(stream(source.url, updates=["log", {"field": "n", "path": "n"}]), fields={**LOG, "n": "number"})
    with running_slice():
        until(lambda: scene.value("n") == 20)

    assert [one["n"] for one in scene.value("log")] == list(range(1, 21))
    assert {event["field"] for event in scene.events()} == {"log", "n"}
    assert scene.sensor().cursor["id"] == "20"


def test_interrupted_stream_resumes_after_its_last_event(serving):
    source = serving(Events, most=30, each=7, pause=0.01)
    scene = logged(source.url)
    with running_slice(time_scale=0.05):
        until(lambda: len(scene.value("log") or []) >= 30)

    assert scene.value("log") == list(range(1, 31))
    assert source.from_ids[:5] == [0, 7, 14, 21, 28]
    assert "the stream ended" in scene.errors()
    assert "gaps" not in scene.sensor().cursor


def test_next_slice_resumes_the_stream(serving):
    source = serving(Events, most=40, pause=0.02)
    scene = logged(source.url)
    for seen in (10, 20, 40):
        with running_slice():
            until(lambda: len(scene.value("log") or []) >= seen)  # noqa: B023 used at once

    assert scene.value("log") == list(range(1, 41))
    assert source.from_ids[0] == 0
    assert all(10 <= start <= 40 for start in source.from_ids[1:])


def test_events_without_ids_record_gaps(serving):
    source = serving(Events, most=9, each=3, ids=False, pause=0.01)
    scene = logged(source.url)
    with running_slice(time_scale=0.05):
        until(lambda: scene.sensor().cursor.get("gaps", 0) >= 2)

    gap = scene.sensor().cursor["gap"]
    assert gap["from"] < gap["to"]


@pytest.mark.long
def test_lines_of_ten_megabytes_are_dropped_and_memory_stays_flat(serving):
    source = serving(Events, lambda n: "x" * 10_000_000 if n % 2 else n, most=8, pause=0.01)
    scene = logged(source.url)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with running_slice():
        until(lambda: scene.value("log") == [2, 4, 6, 8])

    assert any("larger than 262144 bytes" in error for error in scene.errors())
    assert scene.sensor().state == SensorState.FINE
    own = 25_000  # KiB that the server in this process needs for such a line, with a margin
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < own + 20_000


def test_garbage_is_data_or_a_failure_and_the_slice_goes_on(serving):
    def garbage(request):
        request.wfile.write(b"\xff\xfe: \x00\r\r\ndata: \xff\nid: \x00\nevent\n\n::::\n\n" + bytes(range(256)) * 100)

    source = serving(Events, most=0, each=0, then=garbage)
    other = serving(Events, most=5)
    scene = Scene(
        stream(source.url, updates=["odd"]),
        stream(other.url, name="other", updates=["log"]),
        fields={**LOG, "odd": {"type": "array", "max_items": 5}},
    )
    with running_slice(time_scale=0.1):
        until(lambda: scene.value("log") == [1, 2, 3, 4, 5] and scene.value("odd"))

    assert scene.value("odd")[0] == "\ufffd"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"not": "events"}, "sends application/json, not text/event-stream"),
        ((204, {}, b""), "status 204"),
        ((500, {}, b""), "status 500"),
        ((200, {"Content-Type": "text/html"}, b"<p>"), "sends text/html"),
    ],
)
def test_answer_that_is_no_stream_is_a_failure(serving, answer, problem):
    source = serving(Web, answer if not isinstance(answer, tuple) else lambda request: answer)
    scene = logged(source.url)
    with running_slice():
        until(lambda: scene.sensor().failures > 0)

    assert problem in scene.sensor().problem


def test_server_that_never_answers_times_out(serving, monkeypatch):
    monkeypatch.setattr("agents.sensors.stream.OPEN_SECONDS", 0.3)
    source = serving(Web, lambda request: time.sleep(30))
    scene = logged(source.url)
    with running_slice():
        until(lambda: scene.sensor().failures > 0)

    assert scene.sensor().problem == "no answer within 0.3 seconds"


def test_silent_stream_is_reopened_after_its_interval(serving):
    source = serving(Events, most=10**6, each=3, pause=0.01, then=lambda request: time.sleep(30))
    scene = logged(source.url, interval=4)
    with running_slice(time_scale=0.05):
        until(lambda: len(source.from_ids) >= 3)

    assert "the stream was silent for 0.2 seconds" in scene.errors()
    assert source.from_ids[:3] == [0, 3, 6]


def test_failing_stream_waits_longer_each_time(serving):
    source = serving(Web, lambda request: (500, {}, b""))
    scene = logged(source.url)
    with running_slice(time_scale=0.02):
        until(lambda: scene.sensor().failures >= 4)

    waits = [event["wait_seconds"] for event in scene.events("autonomy:sensor_error")]
    assert waits[:4] == [0.02, 0.04, 0.08, 0.16]


@pytest.mark.long
def test_stream_that_never_pauses_is_read_no_faster_than_it_is_written(serving):
    source = serving(Events, most=20_000, pause=0)
    scene = logged(source.url)
    with running_slice():
        until(lambda: scene.value("log") is not None and scene.value("log")[-1] >= 500)

    log = scene.value("log")
    assert log == list(range(log[0], log[0] + len(log)))
    assert len(scene.events()) < log[-1] / 10, "many events are written together"


# --- WebSockets ---


def test_dropped_websocket_records_a_gap(serving):
    numbers = itertools.count(1)

    def behave(connection, number):
        for _ in range(3):
            connection.send(f'{{"n": {next(numbers)}}}')
        connection.close()

    source = serving(Socket, behave)
    scene = logged(source.url)
    with running_slice(time_scale=0.1):
        until(lambda: len(scene.value("log") or []) >= 9)

    assert [one["n"] for one in scene.value("log")][:9] == list(range(1, 10))
    assert scene.sensor().cursor["gaps"] >= 2
    assert any("connection broke" in error for error in scene.errors())


def test_websocket_with_oversized_messages_is_reopened(serving):
    def behave(connection, number):
        connection.send("small" if number % 2 else "x" * 10_000_000)
        connection.recv(timeout=0.2)

    source = serving(Socket, behave)
    scene = logged(source.url)
    with running_slice(time_scale=0.05):
        until(lambda: len(scene.value("log") or []) >= 2)

    assert set(scene.value("log")) == {"small"}
    assert any("larger than allowed" in error for error in scene.errors())


def test_silent_websocket_is_reopened_after_its_interval(serving):
    def behave(connection, number):
        connection.send(str(number))
        connection.recv(timeout=30)

    source = serving(Socket, behave)
    scene = logged(source.url, interval=4)
    with running_slice(time_scale=0.05):
        until(lambda: (scene.value("log") or [])[:3] == [1, 2, 3])

    assert "the stream was silent for 0.2 seconds" in scene.errors()


def test_websocket_with_invalid_frames_is_reopened(serving):
    def behave(connection, number):
        connection.send(str(number))
        connection.socket.sendall(b"\xff\xfe\x00 no frame at all " * 100)
        connection.recv(timeout=30)

    source = serving(Socket, behave)
    scene = logged(source.url)
    with running_slice(time_scale=0.05):
        until(lambda: (scene.value("log") or [])[:2] == [1, 2])

    assert any("connection broke" in error for error in scene.errors())


def test_binary_message_that_is_not_text_is_dropped(serving):
    def behave(connection, number):
        connection.send(b"\xff\xfe\x00")
        connection.send(b'{"n": 1}')
        connection.recv()

    source = serving(Socket, behave)
    scene = logged(source.url)
    with running_slice():
        until(lambda: scene.value("log") == [{"n": 1}])

    assert "a message was not text, and was dropped" in scene.errors()


def test_server_without_websocket_is_a_failure(serving):
    source = serving(Web, {"n": 1})
    scene = logged(source.url.replace("http", "ws"))
    with running_slice():
        until(lambda: scene.sensor().failures > 0)

    assert "not valid HTTP" in scene.sensor().problem


def test_private_websocket_is_refused():
    scene = logged("ws://10.1.2.3/feed")
    with running_slice():
        until(lambda: scene.sensor().state == "invalid")

    assert "only the configuration can allow it" in scene.sensor().problem


# --- Buffer ---


async def filled(box, items):
    for item in items:
        await box.put(item)


def test_buffer_is_bounded_by_count():
    async def scenario():
        box = EventBuffer()
        filling = asyncio.create_task(filled(box, [Item(n) for n in range(2 * MOST_WAITING)]))
        await asyncio.sleep(0.01)
        first = await box.take()
        await filling
        second = await box.take()
        box.close()
        return len(first), len(second), await box.take()

    assert asyncio.run(scenario()) == (MOST_WAITING, MOST_WAITING, [])


def test_buffer_is_bounded_by_bytes():
    async def scenario():
        box = EventBuffer()
        filling = asyncio.create_task(filled(box, [Item(n, size=600_000) for n in range(4)]))
        await asyncio.sleep(0.01)
        sizes = [len(await box.take())]
        await filling
        return [*sizes, len(await box.take())]

    assert asyncio.run(scenario()) == [2, 2]
