"""The sensor session of the day: one for each agent, held by the slice that runs its sensors."""

from datetime import timedelta

import pytest

from agents.enums import Mode, Status
from agents.exceptions import LeaseLost
from agents.loop.pacing import next_day
from agents.models import AgentSession, Profile
from agents.sensors import rows
from agents.sensors.rows import (
    day_of,
    leases_renew,
    sensor_session_claim,
    sensor_session_rest,
    sensor_slices_enqueue,
    sensors_stop,
)
from agents.sensors.slice import run_sensor_session
from agents.types import Finished
from tests.agents.sensors.test_leases import LEASE, SECOND, held, lease, scene_of
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def claim(scene, now=NOW, owner="slice:1"):
    return sensor_session_claim(held(scene), loop_pk=scene.loop.pk, owner=owner, now=now)


@pytest.fixture
def scene():
    made = scene_of()
    AgentSession.objects.update(created_at=NOW - SECOND)
    lease("slice:1")
    return made


def test_session_is_created_on_demand_and_sleeps_until_its_day_ends(scene):
    session = claim(scene)
    assert (session.mode, session.status, session.lease_owner) == (Mode.SENSOR, Status.RUNNING, "slice:1")
    assert session.params["key"] == f"agent:{scene.agent.public_id}:sensors:2026-03-14"
    sensor_session_rest(session, now=NOW)
    session.refresh_from_db()
    assert (session.status, session.next_wake_at) == (Status.SLEEPING, next_day(NOW))

    again = claim(scene, NOW + SECOND)
    assert (again.pk, again.fencing > session.fencing) == (session.pk, True)


def test_session_of_an_ended_loop_is_woken_at_once(scene):
    session = claim(scene)
    AgentSession.objects.filter(pk=scene.loop.pk).update(
        status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW
    )
    sensor_session_rest(session, now=NOW)
    session.refresh_from_db()

    assert session.next_wake_at == NOW
    assert run_sensor_session(session) == Finished()


def test_session_whose_loop_ends_while_it_goes_to_sleep_is_woken(scene, monkeypatch):
    session = claim(scene)
    rest = rows.session_rest

    def resting(*args, **kwargs):
        AgentSession.objects.filter(pk=scene.loop.pk).update(
            status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW
        )
        sensor_slices_enqueue(NOW)
        rest(*args, **kwargs)

    monkeypatch.setattr(rows, "session_rest", resting)
    sensor_session_rest(session, now=NOW)
    session.refresh_from_db()

    assert session.next_wake_at == NOW


def test_session_held_by_another_slice_cannot_be_claimed_yet(scene):
    claim(scene)

    assert claim(scene, NOW + SECOND) is None


def test_session_is_renewed_with_its_slice_and_taken_over_later(scene):
    session = claim(scene)
    assert leases_renew(owner="slice:1", now=NOW + SECOND) == 2
    later = NOW + 2 * LEASE
    lease("slice:2", later)

    taken = claim(scene, later, owner="slice:2")
    assert (taken.pk, taken.recoveries) == (session.pk, 1)


def test_slice_that_lost_the_sensor_gets_no_session(scene):
    with pytest.raises(LeaseLost):
        claim(scene, owner="slice:9")


def test_next_day_has_its_own_session(scene):
    first = claim(scene)
    sensor_session_rest(first, now=NOW)
    tomorrow = NOW + timedelta(days=1)

    assert claim(scene, tomorrow).pk != first.pk
    first.refresh_from_db()
    first.params["day"] = day_of(NOW)
    assert type(run_sensor_session(first)).__name__ == "Finished"


def test_stopped_session_is_replaced_only_for_a_new_loop(scene):
    first = claim(scene)
    ended = {"status": Status.HALTED, "terminal_reason": "external_halt", "completed_at": NOW}
    AgentSession.objects.filter(pk=first.pk).update(**ended)
    assert "has ended" in claim(scene)
    AgentSession.objects.filter(pk=scene.loop.pk).update(created_at=NOW + SECOND)

    assert claim(scene, NOW + 2 * SECOND).pk != first.pk


def test_session_of_an_owner_who_opted_out_is_refused(scene):
    Profile.objects.update(opted_in=False)

    assert "opted in" in claim(scene)


def test_session_of_stopped_sensors_is_woken_to_end(scene):
    session = claim(scene)
    sensor_session_rest(session, now=NOW)
    sensors_stop(scene.agent, NOW + SECOND)
    session.refresh_from_db()
    assert session.next_wake_at == NOW + SECOND
    assert type(run_sensor_session(session)).__name__ == "Finished"
