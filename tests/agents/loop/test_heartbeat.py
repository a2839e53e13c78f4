"""Heartbeats: a fixed prompt at intervals within the active hours, also after one has failed."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.conf import clock
from agents.enums import Mode, Status, TerminalReason
from agents.loop.heartbeat import heartbeat_start, heartbeat_stop, run_heartbeat
from agents.models import Agent, AgentSession, Message, Profile
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.roster.files import definition_write
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


def at(words):
    return datetime.strptime(f"2026-03-{words}+0000", "%Y-%m-%d %H:%M%z")


NIGHTLY = "heartbeat: {interval: 86400, prompt: Look around.}"
AT_NIGHT = 'autonomy: {active_hours: {start: "02:00", end: "05:00"}}'


@pytest.mark.parametrize(
    ("started", "first"),
    [
        ("16 21:08", "17 02:00"),  # 5 hours later, not 29
        ("17 01:59", "17 02:00"),
        ("17 03:30", "18 03:30"),  # within the hours an interval passes first
        ("17 05:00", "18 02:00"),
    ],
)
def test_first_nightly_beat_comes_in_the_next_night(agent, time, started, first):
    time.move_to(at(started))
    assert start(agent(f"{NIGHTLY}\n{AT_NIGHT}")).next_wake_at == at(first)


def test_nightly_beats_come_every_night(agent, time):
    time.move_to(datetime(2026, 3, 16, 21, 8, tzinfo=UTC))
    start(agent(f"{NIGHTLY}\n{AT_NIGHT}"))
    with script(Step("Nothing new.")):
        beats = [beat(time) for _ in range(3)]
    assert [one.started_at.strftime("%d %H:%M") for one in beats] == ["17 02:00", "18 02:00", "19 02:00"]


def define(row, text):
    done = definition_write(agent=row, text=text, by=None, now=clock())
    assert done.changed
    return AgentSession.objects.get(agent=row, mode=Mode.HEARTBEAT, status=Status.SLEEPING)


def test_changed_interval_moves_the_planned_beat(agent, time):
    watcher = agent(BEATS)
    planned = start(watcher)
    began = clock()
    time.move_to(began + timedelta(minutes=5))
    sooner = define(watcher, BEATS.replace("1800", "600"))
    assert (sooner.pk, sooner.next_wake_at) == (planned.pk, began + timedelta(seconds=600))
    assert define(watcher, BEATS.replace("1800", "7200")).next_wake_at == began + timedelta(seconds=7200)
    assert define(watcher, BEATS.replace("1800", "60")).next_wake_at == clock(), "it is due by the new interval"
    with script(Step("Nothing new.")):
        assert beat(time).status == Status.COMPLETED
    [after] = AgentSession.objects.filter(agent=watcher, mode=Mode.HEARTBEAT, status=Status.SLEEPING)
    assert after.next_wake_at == clock() + timedelta(seconds=60)


def test_changed_hours_move_the_planned_beat_and_other_changes_do_not(agent, time):
    time.move_to(datetime(2026, 3, 16, 21, 8, tzinfo=UTC))
    watcher = agent(f"{NIGHTLY}\n{AT_NIGHT}")
    before = start(watcher)
    same = define(watcher, f"{NIGHTLY}\n{AT_NIGHT}\ninstructions: Be brief.")
    assert (same.next_wake_at, same.params) == (before.next_wake_at, before.params)
    later = define(watcher, f"{NIGHTLY}\n{AT_NIGHT.replace('02:00', '04:00')}\ninstructions: Be brief.")
    assert later.next_wake_at == datetime(2026, 3, 17, 4, tzinfo=UTC)
    assert later.params["due_at"] == later.next_wake_at.isoformat()


def test_interval_of_a_later_beat_counts_from_the_beat_before(agent, time):
    watcher = agent(BEATS)
    start(watcher)
    with script(Step("Nothing new.")):
        first = beat(time)
    time.move_to(first.started_at + timedelta(minutes=3))
    assert define(watcher, BEATS.replace("1800", "900")).next_wake_at == first.started_at + timedelta(seconds=900)


def test_new_interval_without_a_planned_beat_plans_none(agent):
    watcher = agent(BEATS)
    assert definition_write(agent=watcher, text=BEATS.replace("1800", "900"), by=None, now=clock()).changed
    assert not AgentSession.objects.filter(agent=watcher, mode=Mode.HEARTBEAT).exists()


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
