"""Rows of sensors: kept in step with the definition, leased, written and handed out."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.definitions.schema import Signal
from agents.enums import HaltState, SensorState, Status
from agents.models import AgentSession, Halt, HotField, Installation, Profile, Sensor
from agents.sensors import rows as sensors
from agents.sensors import writes
from agents.sensors.rows import (
    Failure,
    FiredSignal,
    LeasedSensor,
    Reading,
    count_live_slices,
    has_unheld_sensors,
    lease_state,
    leases_renew,
    sensor_slices_enqueue,
    sensors_drop,
    sensors_lease,
    sensors_release,
    sensors_start,
    sensors_stop,
)
from agents.sensors.writes import sensors_write
from tests.agents.sensors.scene import Scene, poll
from tests.factories import NOW

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=settings.LQOPS_LEASE_SECONDS)
URL = "http://feed.example.com/"


def scene_of(*names, **more):
    return Scene(*[poll(URL, name=name) for name in names or ("feed",)], fields={"value": "object"}, **more)


def lease(owner="slice:1", now=NOW, **more):
    return [(row.agent_id, row.name) for row in sensors_lease(owner=owner, now=now, **more)]


def held(scene, name="feed"):
    row = scene.sensor(name)
    definition = definition_of(scene.agent)
    spec = next(one for one in definition.sensors if one.name == name)
    return LeasedSensor(row, spec, definition)


def slices_queued():
    rows = OrmQ.objects.filter(key="sensors").order_by("pk")
    return [(row.task["func"], *row.task["args"]) for row in rows]


# --- Following the definition ---


def test_rows_follow_the_definition_and_unchanged_ones_stay():
    scene = scene_of("a", "b", "c")
    Sensor.objects.update(cursor={"etag": "x"}, fencing=5, failures=3)
    scene.sync(poll(URL, name="a"), poll("http://other.example.com/", name="b"), poll(URL, name="d"))
    rows = {row.name: row for row in Sensor.objects.filter(agent=scene.agent)}

    assert sorted(rows) == ["a", "b", "d"]
    assert (rows["a"].cursor, rows["a"].fencing, rows["a"].failures) == ({"etag": "x"}, 5, 3)
    assert (rows["b"].cursor, rows["b"].fencing, rows["b"].failures) == ({}, 6, 0)
    assert (rows["d"].wanted, rows["d"].state) == (True, SensorState.WAITING)


def test_cursor_stays_when_only_the_pace_changes():
    scene = scene_of()
    Sensor.objects.update(cursor={"etag": "x"})
    scene.sync(poll(URL, interval=9))

    assert scene.sensor().cursor == {"etag": "x"}
    assert scene.sensor().fencing == 2


def test_broken_sensor_shows_its_problem_and_never_runs():
    scene = scene_of("a")
    scene.sync(poll(URL, name="a"), {"name": "b", "type": "poll", "source": {"url": URL}})
    row = scene.sensor("b")

    assert row.state == SensorState.INVALID
    assert "interval" in row.problem
    assert lease() == [(scene.agent.pk, "a")]
    scene.sync(poll(URL, name="a"), poll(URL, name="b"))
    assert (scene.sensor("b").state, scene.sensor("b").problem) == (SensorState.WAITING, "")


def test_malformed_path_makes_a_sensor_invalid():
    scene = Scene(poll(URL, updates=[{"field": "a", "path": "x..y"}, {"field": "b", "path": "x"}]))

    assert scene.sensor().state == SensorState.INVALID
    assert "path" in scene.sensor().problem


def test_sensors_of_an_agent_without_a_loop_are_not_wanted():
    scene = scene_of("a")
    scene.loop.delete()
    scene.sync(poll(URL, name="b"))

    assert scene.sensor("b").wanted is False


def test_start_resets_sensors_and_stop_takes_them_from_their_slice():
    scene = scene_of("a", "b")
    Sensor.objects.filter(name="a").update(state=SensorState.UNRESOLVED, problem="x")
    lease()
    sensors_stop(scene.agent, NOW)
    assert set(Sensor.objects.values_list("wanted", "lease_owner", "lease_until")) == {(False, "", None)}
    Sensor.objects.update(failures=7)
    sensors_start(scene.agent, NOW)

    assert (scene.sensor("a").state, scene.sensor("a").problem) == (SensorState.WAITING, "")
    assert set(Sensor.objects.values_list("wanted", "failures", "next_due_at")) == {(True, 0, NOW)}


# --- Leases ---


def test_sensor_has_one_holder_and_is_taken_over_after_its_lease():
    scene = scene_of()
    assert lease("slice:1") == [(scene.agent.pk, "feed")]
    assert lease("slice:2", NOW + LEASE - SECOND / 10) == []
    before = scene.sensor().fencing

    assert lease("slice:2", NOW + LEASE) == [(scene.agent.pk, "feed")]
    assert (scene.sensor().lease_owner, scene.sensor().fencing) == ("slice:2", before + 1)


def test_slice_takes_whole_agents_up_to_its_limit():
    scenes = [scene_of("a", "b", "c") for _ in range(4)]
    first = lease("slice:1", limit=7)
    second = lease("slice:2", limit=7)

    assert [agent for agent, _ in first] == [scenes[0].agent.pk] * 3 + [scenes[1].agent.pk] * 3
    assert [agent for agent, _ in second] == [scenes[2].agent.pk] * 3 + [scenes[3].agent.pk] * 3
    assert lease("slice:3", limit=2) == []


def test_agent_with_more_sensors_than_the_limit_is_leased_alone():
    scene_of("a", "b", "c")
    scene_of("d")

    assert [name for _, name in lease(limit=2)] == ["a", "b", "c"]


def test_longest_unheld_sensors_are_leased_first():
    first, second = scene_of("a"), scene_of("b")
    lease("slice:1", limit=1)
    sensors_release(owner="slice:1", shard=0, now=NOW)

    assert lease("slice:2", NOW, limit=1) == [(second.agent.pk, "b")]
    assert lease("slice:3", NOW, limit=1) == [(first.agent.pk, "a")]


@pytest.mark.parametrize("stop", ["halted", "ended", "all work", "switched off", "opted out"])
def test_sensors_of_a_stopped_loop_cannot_be_leased(stop):
    scene = scene_of()
    lease("slice:1")
    if stop == "halted":
        AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)
    elif stop == "ended":
        AgentSession.objects.update(status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
    elif stop == "all work":
        Installation.objects.update(halt=Halt.objects.create(scope="organisation"))
    elif stop == "switched off":
        type(scene.agent).objects.update(enabled=False)
    else:
        Profile.objects.update(opted_in=False)

    assert not lease_state(owner="slice:1").holds(held(scene))
    sensors_release(owner="slice:1", shard=0, now=NOW)
    assert lease("slice:2") == []
    assert not has_unheld_sensors(NOW)


def test_added_sensor_is_adopted_by_the_slice_of_its_agent():
    scene = scene_of("a")
    lease("slice:1")
    scene.sync(poll(URL, name="a"), poll(URL, name="b"))

    assert lease("slice:2") == [], "nobody else takes a part of the agent"
    assert lease("slice:1") == [(scene.agent.pk, "b")]
    assert lease("slice:1") == []


def test_renewal_extends_only_held_leases():
    scene = scene_of()
    lease("slice:1")
    assert leases_renew(owner="slice:1", now=NOW + SECOND) == 1
    assert scene.sensor().lease_until == NOW + SECOND + LEASE
    lease("slice:2", NOW + 2 * LEASE)

    assert leases_renew(owner="slice:1", now=NOW + 2 * LEASE) == 0


def test_release_enqueues_the_next_slice():
    scene = scene_of("a", "b")
    lease("slice:1")
    number = scene.sensor("a").fencing
    assert sensors_release(owner="slice:1", shard=7, now=NOW) == 2
    assert slices_queued() == [("agents.tasks.sensor_slice", 7)]
    assert scene.sensor("a").fencing == number + 1
    assert sensors_release(owner="slice:1", shard=7, now=NOW) == 0

    assert len(slices_queued()) == 1


def test_dropped_sensors_are_free_immediately():
    scene = scene_of("a", "b")
    lease("slice:1")
    sensors_drop(owner="slice:1", pks=[scene.sensor("a").pk], now=NOW)

    assert (scene.sensor("a").lease_owner, scene.sensor("b").lease_owner) == ("", "slice:1")


# --- Writing ---


def test_slice_that_lost_its_sensor_writes_nothing():
    scene = scene_of()
    lease("slice:1")
    old = held(scene)
    lease("slice:2", NOW + LEASE)
    results = [
        Reading(old, NOW, items=({"n": 1},), cursor={"etag": "x"}),
        Failure(old, NOW, "no", 10, 5.0),
    ]

    assert sensors_write(results) == {scene.sensor().pk}
    assert not HotField.objects.exists()
    assert (scene.sensor().cursor, scene.sensor().failures, scene.events()) == ({}, 0, [])


def test_loop_is_locked_before_any_sensor_is_written(monkeypatch):
    """The order in which loops are ended: the other order could deadlock."""
    scene, quiet = scene_of(), scene_of()
    lease("slice:1")
    seen = []
    real = writes.session_lock
    monkeypatch.setattr(writes, "session_lock", lambda pk: seen.append((pk, scene.sensor().read_at)) or real(pk))
    fired = FiredSignal(Signal(name="odd", prompt="Is it odd?"), "0.9", "1", items=({"n": 1},))
    sensors_write([Reading(held(quiet), NOW, items=({"n": 1},)), Reading(held(scene), NOW, fired=(fired,))])

    assert seen == [(scene.loop.pk, None)]
    assert scene.sensor().read_at == NOW


def test_stopped_sensor_writes_nothing():
    scene = scene_of()
    lease("slice:1")
    mine = held(scene)
    Sensor.objects.update(wanted=False)

    assert sensors_write([Reading(mine, NOW, items=({"n": 1},))])
    assert not HotField.objects.exists()


def test_unwritable_reading_does_not_block_others(monkeypatch):
    scene = scene_of("a", "b")
    lease("slice:1")
    results = [Reading(held(scene, name), NOW, items=({"n": name},)) for name in ("a", "b")]
    real = sensors_write.__globals__["_write_reading"]
    odd = lambda reading, loop: 1 / 0 if reading.held.spec.name == "a" else real(reading, loop)  # noqa: E731
    monkeypatch.setitem(sensors_write.__globals__, "_write_reading", odd)

    assert not sensors_write(results)
    assert scene.value("value") == {"n": "b"}
    assert (scene.sensor("a").state, scene.sensor("a").failures) == (SensorState.FAILING, 1)
    assert "ZeroDivisionError" in scene.sensor("a").problem


def test_a_hundred_readings_take_a_bounded_number_of_statements():
    scene = scene_of(*[f"s{n}" for n in range(20)])
    lease("slice:1")
    results = [Reading(held(scene, f"s{n}"), NOW, items=({"n": n},)) for n in range(20)]
    with CaptureQueriesContext(
        connection,
    ) as few:
        sensors_write(results[:1])
    with CaptureQueriesContext(connection) as many:
        sensors_write(results)

    assert len(many) <= 20 * len(few)
    assert len(few) <= 20


# --- Wrong clocks ---


@pytest.mark.parametrize("given_back", [True, False])
def test_lease_from_a_wrong_clock_does_not_block_others(given_back):
    scene = scene_of()
    ahead = NOW + timedelta(hours=3)
    lease("slice:1", ahead)
    if given_back:
        sensors_release(owner="slice:1", shard=0, now=ahead)

    assert has_unheld_sensors(NOW)
    assert lease("slice:2", NOW) == [(scene.agent.pk, "feed")]


# --- Rejected sensors ---


@pytest.mark.parametrize("state", [SensorState.INVALID, SensorState.UNRESOLVED, SensorState.FAILING])
def test_rejected_sensor_is_retried_when_its_loop_starts(state):
    scene = scene_of()
    Sensor.objects.update(state=state, problem="the tool needs approval for each call")
    sensors_stop(scene.agent, NOW)
    sensors_start(scene.agent, NOW)

    assert (scene.sensor().state, scene.sensor().problem) == (SensorState.WAITING, "")


def test_sensor_with_a_broken_definition_stays_rejected():
    scene = scene_of()
    scene.sync(poll(URL), {"name": "odd", "type": "poll"})
    sensors_stop(scene.agent, NOW)
    sensors_start(scene.agent, NOW)

    assert scene.sensor("odd").state == SensorState.INVALID
    assert scene.sensor("odd").problem


# --- Handing out ---


def test_one_query_while_no_sensor_is_wanted(django_assert_num_queries):
    with django_assert_num_queries(1):
        assert sensor_slices_enqueue(NOW) == 0


def test_only_as_many_slices_as_needed_are_enqueued(monkeypatch):
    monkeypatch.setattr(sensors, "MOST_HELD", 2)
    for _ in range(3):
        scene_of("a", "b")
    assert sensor_slices_enqueue(clock()) == 3
    assert sensor_slices_enqueue(clock()) == 0, "they wait in the queue"
    assert slices_queued() == [("agents.tasks.sensor_slice", shard) for shard in range(3)]
    OrmQ.objects.all().delete()
    lease("slice:1", clock(), limit=4)

    assert sensor_slices_enqueue(clock()) == 1
    OrmQ.objects.all().delete()
    lease("slice:2", clock())
    assert sensor_slices_enqueue(clock()) == 0


def test_sensors_of_an_ended_loop_are_stopped():
    scene = scene_of()
    lease("slice:1")
    AgentSession.objects.update(status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW)

    assert sensor_slices_enqueue(NOW) == 0
    assert (scene.sensor().wanted, scene.sensor().lease_owner) == (False, "")


def test_slices_of_a_host_are_counted_by_their_leases():
    scene_of("a")
    scene_of("b")
    lease("host:1:x", limit=1)
    lease("host:2:x", limit=1)

    assert count_live_slices(host="host", now=NOW) == 2
    assert count_live_slices(host="other", now=NOW) == 0
    assert count_live_slices(host="host", now=NOW + LEASE) == 0
