"""Heartbeats: a fixed prompt at intervals within the active hours, also after one has failed."""

from datetime import UTC, datetime

import pytest

from agents.conf import clock
from agents.enums import Mode, Status, TerminalReason
from agents.loop.heartbeat import heartbeat_start, heartbeat_stop, run_heartbeat
from agents.models import Agent, AgentSession, Message, Profile
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.leases import sleepers_wake
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import prompt, says

pytestmark = pytest.mark.django_db

BEATS = "heartbeat: {interval: 1800, prompt: Look around.}"
DOWN = Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))


def start(agent):
    return heartbeat_start(agent=agent, by=None, now=clock())


def beat(time):
    """Run the next beat, and return its row."""
    due = AgentSession.objects.filter(mode=Mode.HEARTBEAT, status=Status.SLEEPING).order_by("next_wake_at").first()
    time.move_to(due.next_wake_at)
    sleepers_wake(clock())
    run_session(due.pk, run_heartbeat, owner="worker")
    due.refresh_from_db()
    return due


def test_beats_run_at_their_interval_each_in_its_own_session(agent, time):
    watcher = agent(BEATS)
    assert start(watcher) == start(watcher)
    with script(Step("Nothing new.")) as model:
        beats = [beat(time) for _ in range(3)]
    assert [one.started_at.strftime("%H:%M") for one in beats] == ["09:30", "10:00", "10:30"]
    assert {one.status for one in beats} == {Status.COMPLETED}
    assert beats[0].params["key"] == f"agent:{watcher.public_id}:heartbeat"
    first, answer, second = [message["content"] for message in model.requests[1].messages[1:]]
    assert (first, answer) == ("Look around.", "Nothing new.")
    assert second.startswith("Look around.\n\nLeft for this run: ")
    assert "yield" not in {tool["function"]["name"] for tool in model.requests[0].tools}


def test_beats_run_only_within_active_hours(agent, time):
    time.move_to(datetime(2026, 3, 16, 22, 45, tzinfo=UTC))
    watcher = agent(f'{BEATS}\nautonomy: {{active_hours: {{start: "08:00", end: "23:00"}}}}')
    assert start(watcher).next_wake_at == datetime(2026, 3, 17, 8, tzinfo=UTC)


def test_beat_that_fails_does_not_stop_the_next(agent, time):
    start(agent(BEATS))
    with script(DOWN, Step("Better.")):
        assert beat(time).status == Status.FAILED
        assert beat(time).status == Status.COMPLETED


def test_rounds_of_calls_are_bounded(agent, time):
    start(agent(BEATS))
    with script(*(says(("look", {"place": str(number)})) for number in range(9))) as model:
        row = beat(time)
    assert (row.status, len(model.requests)) == (Status.COMPLETED, 5)
    last = Message.objects.filter(session=row).order_by("seq").last()
    assert (last.role, last.content) == (
        "assistant",
        "I stopped after 5 rounds of calls, which is the limit of one turn.",
    )


def test_beat_waits_for_the_one_before(agent, time, approver):
    start(agent(BEATS))
    with script(says(("act", {"what": "it"})), Step("risky")):
        assert beat(time).status == Status.WAITING
        later = beat(time)
    assert (later.status, later.next_wake_at.strftime("%H:%M")) == (Status.SLEEPING, "10:30")
    assert not Message.objects.filter(session=later).exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda agent: Profile.objects.filter(user=agent.owner).update(opted_in=False), TerminalReason.OPTED_OUT),
        (lambda agent: Agent.objects.update(enabled=False), TerminalReason.EXTERNAL_HALT),
        (lambda agent: Agent.objects.update(definition=""), TerminalReason.COMPLETED),
    ],
    ids=["opted out", "switched off", "taken out of the definition"],
)
def test_beats_end_when_the_agent_may_not_run(agent, time, change, reason):
    watcher = agent(BEATS)
    start(watcher)
    change(watcher)
    with script(Step("Hi")) as model:
        assert beat(time).terminal_reason == reason
    assert model.requests == []
    assert AgentSession.objects.filter(status=Status.SLEEPING).count() == 0


def test_stopped_heartbeat_has_no_more_beats(agent, time):
    watcher = agent(BEATS)
    start(watcher)
    with script(Step("Hi")):
        beat(time)
    assert heartbeat_stop(agent=watcher, by=None, now=clock()).requested == 1
    assert AgentSession.objects.active().count() == 0


def test_heartbeat_is_the_same_beside_a_loop(agent, drive, time):
    told = []
    for text in (BEATS, f"{BEATS}\nautonomy: {{enabled: true}}"):
        watcher = agent(text, name="Watcher")
        if "autonomy" in text:
            drive(watcher)
        start(watcher)
        with script(Step("Calm.")) as model:
            beat(time)
        told.append(prompt(model.requests[0]).replace(watcher.owner.get_username(), "owner"))
        heartbeat_stop(agent=watcher, by=None, now=clock())
    assert told[0] == told[1]
