"""Fixtures for sensors: loopback and the test's own folder are allowed, and slices wait shorter than usual."""

import pytest
from django.db import connection

from agents.ledger.prices import invalidate_estimates
from agents.providers.scripted import ScriptedProvider, Step
from tests.serving import serving as model_serving

MODEL = "test-model"
WAITS = {
    "slice.WRITE_SECONDS": 0.05,
    "slice.CHECK_SECONDS": 0.3,
    "sensing.DEBOUNCE_MS": 50,
    "sensing.STEP_MS": 10,
    "sensing.TIMEOUT_MS": 100,
    "watch.QUIET_SECONDS": 0.1,
}


@pytest.fixture(autouse=True)
def _may_look(settings, tmp_path, monkeypatch):
    settings.LQOPS_NET_ALLOW_NETWORKS = ["127.0.0.0/8"]
    settings.LQOPS_SENSOR_ROOTS = [tmp_path]
    for name, shorter in WAITS.items():
        monkeypatch.setattr(f"agents.sensors.{name}", shorter)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)  # as in workers


@pytest.fixture
def serving():
    """`serving(sources.Web, …)` starts a source that is closed with the test."""
    started = []

    def start(kind, *given, **more):
        started.append(kind(*given, **more))
        return started[-1]

    yield start
    for source in started:
        source.close()


@pytest.fixture
def model():
    """`model("0.9", "prose")` gives these replies in order and then repeats the last. It has no price."""
    invalidate_estimates()
    opened = []

    def answers(*said):
        opened.append(model_serving(MODEL, ScriptedProvider([Step(text) for text in said])))
        return opened[-1].__enter__()

    yield answers
    for one in opened:
        one.__exit__(None, None, None)
    invalidate_estimates()
