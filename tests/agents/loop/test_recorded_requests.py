"""What loops and heartbeats really send: turns with hot state and alerts, the gate, and beats."""

import pytest

from agents.conf import clock
from agents.enums import Status
from agents.loop.heartbeat import heartbeat_start
from agents.providers.scripted import Step
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, says, sleeps
from tests.agents.loop.test_heartbeat import BEATS, beat
from tests.wire import BOTH_FORMS, recording

pytestmark = pytest.mark.django_db

GATED = """
    autonomy: {enabled: true, precheck_model: small-model}
    hot_state: {fields: {rsi: {type: number}}}
"""


@pytest.mark.sampled(1)
@BOTH_FORMS
def test_every_turn_and_gate_is_what_strict_servers_take(agent, drive, small, form):
    loop = drive(agent(GATED))
    turns = [says(("look", {"place": "a"}), ("echo", {"text": "b"})), Step("I look on."), GO_ON, GO_ON, sleeps(30)]
    with recording(form) as bodies, script(*turns), small("yes"):
        for number in range(5):
            loop.see("rsi", number)
            if number == 1:
                loop.alert("anomaly", "It fell.")
            if loop.row.status == Status.SLEEPING:
                loop.sleep_out()
            loop.task()
    assert len(bodies) > len(turns)
    assert any("rsi: 2 -> 3" in body["messages"][-1]["content"] for body in bodies)


@pytest.mark.sampled(1)
@BOTH_FORMS
def test_every_beat_is_what_strict_servers_take(agent, time, form):
    heartbeat_start(agent=agent(BEATS), by=None, now=clock())
    with recording(form) as bodies, script(says(("look", {"place": "a"})), Step("Nothing new.")):
        beat(time)
        beat(time)
    assert len(bodies) == 3
