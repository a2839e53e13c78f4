"""Calls of sensors under the day's session: held while allowed, given up when lost, never cut off."""

import itertools
from datetime import timedelta

import pytest

from agents.conf import clock
from agents.enums import Mode, Outcome, Status
from agents.ledger.prices import invalidate_estimates
from agents.models import AgentSession, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.agents.sensors.sources import Web
from tests.factories import make_price
from tests.flows.processes import until
from tests.serving import serving as model_serving

pytestmark = pytest.mark.django_db(transaction=True)
MODEL = "test-model"


@pytest.fixture(autouse=True)
def _priced():
    make_price(MODEL)
    invalidate_estimates()
    yield
    invalidate_estimates()


@pytest.fixture
def scene(serving):
    numbers = itertools.count(1)
    source = serving(Web, lambda request: {"n": next(numbers)})
    signal = {"name": "odd", "model": MODEL, "prompt": "Is it odd?"}
    return Scene(poll(source.url, signals=[signal]), fields={"value": "object"})


def answering(*steps):
    return model_serving(MODEL, ScriptedProvider(steps))


def session_of(scene):
    return AgentSession.objects.get(agent=scene.agent, mode=Mode.SENSOR)


def asked(scene, times=1):
    until(lambda: ToolCall.objects.filter(session__agent=scene.agent).count() >= times)


def test_failing_model_leaves_the_signal_unscored(scene):
    refused = ProviderError("no", fault=Fault.INVALID_REQUEST)
    with answering(Step(error=refused)), running_slice(time_scale=0.2):
        until(lambda: any("could not be judged" in error for error in scene.errors()))

    assert scene.value("value") is not None
    assert ToolCall.objects.filter(session=session_of(scene), outcome=Outcome.GATEWAY_ERROR).exists()


def test_call_running_at_slice_end_is_taken_over_after_its_lease(scene, monkeypatch, settings, caplog):
    settings.LQOPS_LEASE_SECONDS = 1
    monkeypatch.setattr("agents.sensors.slice.GRACE_SECONDS", 0.1)
    with answering(Step("0.9", delay_seconds=3)) as model:
        with running_slice():
            until(lambda: model.requests)
        assert session_of(scene).status == Status.RUNNING
        assert session_of(scene).lease_owner != ""
        assert scene.sensor().lease_owner == ""
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
        call = ToolCall.objects.get(session=session_of(scene), outcome=Outcome.STARTED)
    with answering(Step("0.9")), running_slice(time_scale=0.2):
        until(scene.alerts)

    assert session_of(scene).recoveries <= 1
    call.refresh_from_db()  # another may have been running when the second slice ended
    assert call.outcome != Outcome.STARTED


def taken():
    """Columns of a session that another worker holds, for as long as a clock that is ahead may say."""
    lease = {"lease_owner": "elsewhere:1", "lease_until": clock() + timedelta(seconds=110)}
    return {**lease, "fencing": 1_000, "status": Status.RUNNING}


def test_session_held_elsewhere_is_claimed_again_when_free(scene):
    rows = AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR)
    with answering(Step("0.1")), running_slice(time_scale=0.2):
        asked(scene)
        rows.update(**taken())
        until(lambda: any("could not be judged" in error for error in scene.errors()))
        assert session_of(scene).lease_owner == "elsewhere:1"
        asked_before = ToolCall.objects.filter(session=session_of(scene)).count()
        rows.update(status=Status.SLEEPING, lease_owner="", lease_until=None)
        until(lambda: ToolCall.objects.filter(session=session_of(scene)).count() > asked_before)


def test_session_lost_during_a_call_is_not_written(scene):
    with answering(Step("0.1", delay_seconds=0.5)) as model, running_slice(time_scale=0.2):
        until(lambda: model.requests)
        AgentSession.objects.filter(pk=session_of(scene).pk).update(**taken())
        until(lambda: any("could not be judged" in error for error in scene.errors()))

    assert (session_of(scene).lease_owner, session_of(scene).fencing) == ("elsewhere:1", 1_000)


def test_session_lease_is_renewed_while_the_slice_runs(scene):
    with answering(Step("0.1")), running_slice(time_scale=20):  # one reading, and no call after it
        asked(scene)
        first = session_of(scene).lease_until
        until(lambda: session_of(scene).lease_until > first + timedelta(seconds=1))
        assert session_of(scene).status == Status.RUNNING


def test_new_day_starts_a_new_session_during_a_slice(scene, monkeypatch):
    sessions = AgentSession.objects.filter(agent=scene.agent, mode=Mode.SENSOR)
    with answering(Step("0.1")), running_slice(time_scale=0.2):
        asked(scene)
        for module in ("agents.sensors.signals", "agents.sensors.rows"):
            monkeypatch.setattr(f"{module}.day_of", lambda now: "2999-01-01")
        until(lambda: sessions.count() == 2)
        until(lambda: ToolCall.objects.filter(session=sessions.last()).exists())

    assert sessions.order_by("pk").first().status == Status.SLEEPING
