"""The first turn waits for the first readings; idle time counts from the last chance to act; prompts name things."""

from datetime import timedelta

import pytest

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.enums import Outcome, SensorState, Status, TerminalReason
from agents.models import Sensor, ToolCall
from agents.sensors.rows import sensors_sync
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, SMALL, prompt, says, sleeps
from tests.factories import make_trigger

pytestmark = pytest.mark.django_db

WATCHER = """\
description: Watches prices.
autonomy: {enabled: true, events: [deploy_done]%s}
hot_state:
  fields:
    price: {type: number, ttl: 60, description: In euros.}
sensors:
  - name: feed
    description: Prices of the exchange.
    type: poll
    interval: 5
    source: {url: "https://prices.example.org/acme"}
    updates: [{field: price}]
    signals: [{name: price_drop, prompt: Did the price fall?}]
"""


@pytest.fixture
def watcher(agent):
    def make(said=""):
        made = agent(WATCHER % said)
        sensors_sync(made, definition_of(made), clock())
        return made

    return make


def read(agent, state=SensorState.FINE):
    Sensor.objects.filter(agent=agent).update(state=state)


@pytest.mark.parametrize("state", [SensorState.FINE, SensorState.FAILING])
def test_first_turn_waits_until_its_sensor_has_read_or_failed(watcher, drive, state):
    agent = watcher()
    loop = drive(agent)
    with script(sleeps(600)) as model:
        assert loop.task() == Status.SLEEPING
        assert (model.requests, loop.turns()) == ([], [])
        assert loop.row.metadata["loop"]["why"] == "Its first turn waits for readings of feed."
        read(agent, state)
        loop.sleep_out()
        loop.task()
    assert [turn.state for turn in loop.turns()] == ["done"]


def test_first_turn_waits_no_longer_than_a_minute(watcher, drive):
    loop = drive(watcher())
    began = clock()
    with script(sleeps(600)):
        loop.for_(seconds=90)
    assert loop.turns()[0].started_at - began == timedelta(seconds=60)


def test_alert_or_definition_starts_the_first_turn_at_once(watcher, drive):
    alerted, at_once = drive(watcher()), drive(watcher(", start: at_once"))
    alerted.alert("chat_message", "hello")
    with script(sleeps(600)):
        for loop in (alerted, at_once):
            loop.task()
            assert len(loop.turns()) == 1


def test_slow_model_in_the_first_turn_is_not_idle(agent, drive, time):
    loop = drive(agent("autonomy: {enabled: true, idle_timeout: 60}"))
    slow = says(("yield", {"mode": "continue"}), before_reply=lambda: time.shift(500))
    with script(slow, GO_ON, slow):
        assert [loop.task() for _ in range(2)] == [Status.QUEUED] * 2
        loop.task()
    assert loop.row.terminal_reason == TerminalReason.IDLE_TIMEOUT


@pytest.mark.long
def test_chosen_sleep_ends_the_idle_time(agent, drive, time):
    loop = drive(agent("autonomy: {enabled: true, idle_timeout: 60}"))
    waits = says(("yield", {"mode": "continue"}), before_reply=lambda: time.shift(50))
    with script(GO_ON, waits, sleeps(5), GO_ON, waits, sleeps(5)):
        loop.for_(seconds=150)
    assert loop.row.status == Status.SLEEPING


def test_prompt_names_fields_sensors_signals_and_what_ends_a_sleep(watcher, drive):
    agent = watcher(", start: at_once")
    loop = drive(agent)
    with script(sleeps(600)) as model:
        loop.task()
    shown = prompt(model.requests[0])
    for line in (
        "- price (number): In euros.; stale after 60 s",
        "- feed (poll): Prices of the exchange.; writes price",
        "- price_drop (of feed): Did the price fall?",
        "wake_early_if can name: price_drop, deploy_done, run_finished, chat_message.",
    ):
        assert line in shown


def test_unknown_name_in_a_yield_is_answered_with_the_known_ones(watcher, drive):
    agent = watcher(", start: at_once")
    make_trigger(owner=agent.owner, kind="event", event_type="alarm")
    loop = drive(agent)
    with script(sleeps(600, wake=["prce_drop"]), sleeps(600, wake=["price_drop", "deploy_done", "alarm"])):
        loop.task()
    refused, taken = ToolCall.objects.filter(session=loop.session, name="yield").order_by("pk")
    assert (
        "no alert or event named prce_drop; there are: price_drop, deploy_done, run_finished, chat_message"
        in refused.error
    )
    assert taken.outcome == Outcome.SUCCESS
    assert loop.row.metadata["wake_early_if"] == ["price_drop", "deploy_done", "alarm", "chat_message"]


def test_gate_is_told_the_purpose_of_the_agent(watcher, drive, small):
    loop = drive(watcher(f", start: at_once, precheck_model: {SMALL}"))
    with script(sleeps(60)), small("no") as gate:
        loop.task()
        loop.see("price", 31)
        loop.sleep_out()
        loop.task()
    assert prompt(gate.requests[0]).startswith("The agent's purpose: Watches prices.\nWhat an agent watches")
