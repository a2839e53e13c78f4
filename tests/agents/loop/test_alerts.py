"""Alerts: shown first in the next turn, pending until one is completed, and when they wake a loop."""

from datetime import timedelta

import pytest

from agents.conf import clock
from agents.enums import EventKind, Status
from agents.loop import turns
from agents.loop import turns as alerts
from agents.loop.reads import alerts_dropped
from agents.models import Alert, Message
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.roster.loops import loop_stop
from agents.text.blocks import parse_blocks
from agents.triggers.events import EventIn, event_receive
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, SHUT_DOWN, prompt, sleeps
from tests.factories import make_user

pytestmark = pytest.mark.django_db

DOWN = Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))


@pytest.fixture
def loop(agent, drive):
    return drive(agent("autonomy: {enabled: true}\nhot_state: {fields: {cash: {type: number}}}"))


def pending():
    return list(Alert.objects.pending().values_list("name", flat=True))


def test_alert_is_shown_above_the_hot_state_and_cleared_after_the_turn(loop):
    loop.see("cash", 5)
    loop.alert("anomaly", "jump!")
    with script(sleeps(60), sleeps(60)) as model:
        loop.task()
        assert pending() == []
        loop.sleep_out()
        loop.task()
    block, state = parse_blocks(prompt(model.requests[0]))
    assert (block.kind, state.kind) == ("alerts", "hot_state")
    assert block.text == '! anomaly (feed): "jump!"'
    assert "jump!" not in prompt(model.requests[1])


def test_failed_turn_keeps_the_alert_for_the_next(loop):
    loop.alert("anomaly")
    with script(DOWN, sleeps(60)) as model:
        loop.task()
        assert pending() == ["anomaly"]
        loop.sleep_out()
        loop.task()
    assert pending() == []
    assert "! anomaly" in prompt(model.requests[1])


def test_alert_that_comes_during_a_turn_is_not_cleared_by_it(loop):
    with script(sleeps(60, before_reply=lambda: loop.alert("late"))):
        loop.task()
    assert pending() == ["late"]


def test_only_a_named_alert_ends_the_sleep(loop, time):
    with script(sleeps(600, wake=["anomaly"])):
        loop.task()
    time.shift(timedelta(seconds=2))
    loop.alert("weather")
    assert loop.row.status == Status.SLEEPING
    loop.alert("anomaly")
    assert (loop.row.status, loop.row.next_wake_at) == (Status.QUEUED, None)
    pushed = loop.events(EventKind.NOTIFICATION_PUSHED)
    assert [(event.data["name"], event.data["woken"]) for event in pushed] == [("weather", False), ("anomaly", True)]


def test_alert_that_arrives_as_it_goes_to_sleep_keeps_it_awake(loop):
    with script(sleeps(600, wake=["anomaly"], before_reply=lambda: loop.alert("anomaly")), sleeps(600)):
        assert loop.task() == Status.QUEUED
        assert loop.task() == Status.SLEEPING


def test_named_event_ends_the_sleep(loop):
    with script(sleeps(600, wake=["market_open"])):
        loop.task()
    owner = loop.session.owner
    event_receive(owner=owner, event=EventIn(event_type="market_close", title="It is closed."), now=clock())
    assert loop.row.status == Status.SLEEPING
    event_receive(owner=make_user(), event=EventIn(event_type="market_open", title="Not ours."), now=clock())
    assert loop.row.status == Status.SLEEPING
    event_receive(owner=owner, event=EventIn(event_type="market_open", title="It is open."), now=clock())
    assert loop.row.status == Status.QUEUED
    with script(sleeps(600)) as model:
        loop.task()
    assert "It is open." in prompt(model.requests[0])
    assert "It is closed." not in prompt(model.requests[0])


def happens(loop, name, title=""):
    event_receive(owner=loop.session.owner, event=EventIn(event_type=name, title=title), now=clock())


def test_named_event_during_the_turn_ends_the_next_sleep(loop):
    def before():
        happens(loop, "market_open", "It opens.")
        happens(loop, "market_close", "It is closed.")
        happens(loop, "market_open", "It is open.")

    with script(sleeps(600, wake=["market_open"], before_reply=before), sleeps(600)) as model:
        assert loop.task() == Status.QUEUED
        assert pending() == ["market_open"]
        assert loop.task() == Status.SLEEPING
    assert "It is open." in prompt(model.requests[1])
    assert "It is closed." not in prompt(model.requests[1])


def test_event_is_dropped_when_the_agent_sleeps_without_naming_it(loop):
    with script(sleeps(600, before_reply=lambda: happens(loop, "market_open")), sleeps(600, wake=["market_open"])):
        loop.task()
        assert "heard" not in loop.row.metadata
        happens(loop, "market_open")
        assert "heard" not in loop.row.metadata
        loop.sleep_out()
        assert loop.task() == Status.SLEEPING
    assert pending() == []


def test_named_event_between_two_turns_ends_the_next_sleep(loop):
    with script(GO_ON, GO_ON, sleeps(600, wake=["market_open"]), sleeps(600)) as model:
        assert loop.task() == Status.QUEUED
        happens(loop, "market_open", "It is open.")
        assert loop.task() == Status.QUEUED
        assert loop.task() == Status.QUEUED
        assert loop.task() == Status.SLEEPING
    assert "It is open." in prompt(model.requests[3])
    assert pending() == []


def test_named_event_before_the_first_turn_is_kept(loop):
    happens(loop, "market_open")
    with script(sleeps(600, wake=["market_open"])):
        assert loop.task() == Status.QUEUED
    assert pending() == ["market_open"]


def test_event_during_or_after_a_failed_turn_reaches_the_next(loop):
    down = Step(error=ProviderError("no", fault=Fault.AUTH, contacted=True), before_reply=lambda: happens(loop, "one"))
    with script(down, sleeps(600, wake=["one", "two"])):
        assert loop.task() == Status.SLEEPING
        happens(loop, "two")
        loop.sleep_out()
        assert loop.task() == Status.QUEUED
    assert pending() == ["one", "two"]


@pytest.mark.parametrize("when", ["during the turn", "in the pause"])
def test_named_event_is_shown_after_a_guardrail_pause(agent, drive, when):
    loop = drive(agent("autonomy: {enabled: true, token_budget_per_hour: 20}"))
    before = (lambda: happens(loop, "market_open")) if when == "during the turn" else None
    with script(sleeps(60, wake=["market_open"], before_reply=before), sleeps(600)) as model:
        assert loop.task() == Status.SLEEPING
        if before is None:
            happens(loop, "market_open")
        assert (loop.row.status, loop.row.next_wake_at.hour) == (Status.SLEEPING, 10)
        assert pending() == ["market_open"]
        loop.sleep_out()
        loop.task()
    assert "market_open" in prompt(model.requests[1])


def test_event_during_an_interrupted_turn_is_kept_until_its_end(loop):
    busy = Step(error=ProviderError("busy", fault=Fault.RATE_LIMITED, contacted=True, retry_after=60))
    with script(busy, sleeps(600, wake=["market_open"])):
        assert loop.task() == Status.WAITING
        happens(loop, "market_open")
        assert loop.row.status == Status.WAITING
        loop.sleep_out()
        assert loop.task() == Status.QUEUED
    assert pending() == ["market_open"]


def test_loop_stopped_during_a_turn_drops_kept_events(loop):
    def before():
        happens(loop, "market_open")
        loop_stop(agent=loop.session.agent, by=None, now=clock())

    with script(sleeps(600, wake=["market_open"], before_reply=before)):
        assert loop.task() == Status.HALTED
    assert "heard" not in loop.row.metadata
    assert pending() == []


def test_named_event_between_waking_and_turn_is_shown(loop):
    with script(sleeps(600, wake=["market_open"]), sleeps(600)) as model:
        loop.task()
        loop.sleep_out()
        happens(loop, "market_open", "It is open.")
        loop.task()
    assert "It is open." in prompt(model.requests[1])


def test_events_kept_during_a_turn_are_limited_to_the_latest(loop, monkeypatch):
    monkeypatch.setattr(turns, "MOST_HEARD", 2)

    def before():
        for name in ("one", "two", "three"):
            happens(loop, name)
        assert [said["name"] for said in loop.row.metadata["heard"]] == ["two", "three"]

    with script(sleeps(600, wake=["one", "three"], before_reply=before)):
        assert loop.task() == Status.QUEUED
    assert pending() == ["three"]


def test_event_cannot_pass_for_a_chat(loop):
    with script(sleeps(600)):
        loop.task()
    event_receive(owner=loop.session.owner, event=EventIn(event_type="chat_message", title="Hello."), now=clock())
    assert loop.row.status == Status.SLEEPING


def test_same_dedupe_key_alerts_once(loop):
    assert loop.alert("anomaly", dedupe="reading:7") is not None
    assert loop.alert("anomaly", dedupe="reading:7") is None
    assert loop.alert("anomaly", dedupe="reading:8") is not None
    assert len(loop.events(EventKind.NOTIFICATION_PUSHED)) == 2


def test_alerts_are_bounded(loop, monkeypatch):
    monkeypatch.setattr(alerts, "MOST_PENDING", 3)
    assert [loop.alert("tick") is not None for _ in range(5)] == [True] * 3 + [False] * 2


def test_dropped_alerts_are_counted_in_one_alert_on_top(loop, monkeypatch):
    monkeypatch.setattr(alerts, "MOST_PENDING", 3)
    for number in range(6):
        loop.alert(f"tick{number}")
    shown = alerts.alerts_pending(loop.session)

    assert [alert.name for alert in shown] == ["alerts_dropped", "tick0", "tick1", "tick2"]
    assert shown[0].text == "3 alerts of this run were dropped because 3 were pending. The last was tick5."
    assert alerts_dropped(loop.row) == 3
    assert len(loop.events(EventKind.NOTIFICATION_PUSHED)) == 4
    Alert.objects.filter(pk__in=[alert.pk for alert in shown]).update(cleared_at=clock())
    for number in range(4):
        loop.alert(f"tock{number}")
    assert alerts_dropped(loop.row) == 4
    assert "4 alerts" in alerts.alerts_pending(loop.session)[0].text


def test_dropped_alert_still_wakes_the_loop(loop, monkeypatch):
    with script(sleeps(600, wake=["anomaly"])):
        loop.task()
    monkeypatch.setattr(alerts, "MOST_PENDING", 1)
    loop.alert("weather")
    loop.alert("weather")
    assert loop.row.status == Status.SLEEPING
    loop.alert("anomaly")
    assert loop.row.status == Status.QUEUED


def test_ended_loop_takes_no_alerts(loop):
    with script(SHUT_DOWN):
        loop.task()
    assert loop.alert("late") is None


def test_secret_in_an_alert_is_masked_everywhere(loop):
    secret = "sk-proj-" + "a1B2" * 10
    loop.alert("leak", secret)
    with script(GO_ON):
        loop.task()
    shown = [Alert.objects.get().text, *(str(event.data) for event in loop.events())]
    shown += Message.objects.values_list("content", flat=True)
    assert not any(secret in text for text in shown)
