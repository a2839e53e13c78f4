"""Starting, stopping and restarting loops: one at a time, by those who may."""

import json
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from threading import Barrier

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agents.conf import clock
from agents.enums import HaltState, Mode, Status, TerminalReason
from agents.exceptions import Invalid, NotAllowed, NotFound, SessionHalted
from agents.models import AgentSession, Sensor
from agents.roster.agents import agent_restart
from agents.roster.loops import loop_start, loop_stop
from agents.sessions.halts import halt_all_work
from agents.sessions.leases import lease_claim
from audit.models import AuditEvent
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import GO_ON, sleeps
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def start(agent, by=None):
    return loop_start(agent=agent, by=by, now=clock())


def stop(agent, by=None):
    return loop_stop(agent=agent, by=by, now=clock())


@pytest.fixture
def sensor():
    def make(agent):
        return Sensor.objects.create(agent=agent, name="feed", kind="poll", config={})

    return make


def test_starting_twice_gives_one_loop(agent, sensor):
    watcher = agent("max_cost_usd: 2\nautonomy: {enabled: true}")
    feed = sensor(watcher)
    first, second = start(watcher), start(watcher)
    assert first == second
    assert AgentSession.objects.count() == 1
    assert (first.mode, first.status, first.max_cost_usd) == (Mode.LOOP, Status.QUEUED, 2)
    assert first.params == {"key": f"agent:{watcher.public_id}:autonomy"}
    feed.refresh_from_db()
    assert feed.wanted


def test_stop_ends_the_loop_and_its_sensors(agent, drive, sensor):
    watcher = agent("autonomy: {enabled: true}\nhot_state: {fields: {cash: {type: number}}}")
    feed = sensor(watcher)
    loop = drive(watcher)
    loop.see("cash", 5)
    with script(sleeps(600)):
        loop.task()
    assert stop(watcher).requested == 1
    row = loop.row
    assert (row.status, row.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert (row.lease_owner, row.next_wake_at) == ("", None)
    feed.refresh_from_db()
    assert not feed.wanted
    assert stop(watcher).requested == 0


def test_running_loop_is_halted_and_the_next_one_may_start(agent, drive):
    watcher = agent()
    first = drive(watcher)
    held = lease_claim(first.session.pk, owner="worker", now=clock())
    assert held is not None
    second = agent_restart(agent=watcher, by=None, now=clock()).loop
    assert first.row.halt_state == HaltState.HALT_REQUESTED
    assert second.pk != first.session.pk
    assert second.restarted_from == first.session
    assert start(watcher) == second


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        ("", {}, "has no loop"),
        ("autonomy: {enabled: false}", {}, "has no loop"),
        ("autonomy: {enabled: true}", {"enabled": False}, "switched off"),
    ],
)
def test_agent_without_autonomy_has_no_loop(agent, text, fields, words):
    with pytest.raises(Invalid, match=words):
        start(agent(text, **fields))
    assert not AgentSession.objects.exists()


def test_owner_must_have_opted_in_and_work_must_go_on(agent):
    with pytest.raises(NotAllowed, match="opted in"):
        start(agent(owner=make_user(opted_in=False)))
    halt_all_work(by=None, reason="stop", now=clock())
    with pytest.raises(SessionHalted):
        start(agent())


def test_strangers_find_nothing(agent):
    watcher, stranger = agent(), make_user()
    for act in (start, stop):
        with pytest.raises(NotFound):
            act(watcher, by=stranger)
    assert start(watcher, by=watcher.owner).owner == watcher.owner


def test_start_and_stop_are_in_the_audit_log(agent, drive):
    watcher = agent()
    session = start(watcher, by=watcher.owner)
    assert lease_claim(session.pk, owner="worker", now=clock())
    stop(watcher, by=watcher.owner)
    who = f"user:{watcher.owner.pk}"
    rows = {event.kind: event for event in AuditEvent.objects.filter(chain=session.chain)}
    assert rows["autonomous_session.started"].details["asked_by"] == who
    assert rows["autonomous_session.halt_requested"].actor == who


@pytest.mark.django_db(transaction=True)
def test_concurrent_starts_give_one_loop(agent):
    watcher, together = agent(), Barrier(4)

    def begin(_):
        try:
            together.wait(timeout=60)
            return start(watcher).pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(begin, range(4)))) == 1
    assert AgentSession.objects.count() == 1


# --- The command ---


def run(*words):
    out = StringIO()
    call_command("agent", *words, stdout=out)
    return out.getvalue()


def test_command_starts_shows_and_stops(agent):
    watcher = agent("autonomy: {enabled: true}\nheartbeat: {interval: 1800, prompt: Look around.}", name="Watcher")
    told = json.loads(run("start", "Watcher", "--json"))
    assert (told["loop"]["status"], told["loop"]["turn"]) == ("queued", 0)
    assert told["heartbeat"]["next_wake_at"] == "2026-03-16T09:30:00+00:00"
    assert json.loads(run("start", str(watcher.public_id), "--json"))["loop"] == told["loop"]
    assert "queued, turn 0.\nHeartbeat: next at 2026-03-16 09:30:00 UTC." in run("status", "Watcher")
    again = json.loads(run("restart", "Watcher", "--json", "--user", watcher.owner.get_username()))
    assert again["loop"]["session"] != told["loop"]["session"]
    assert run("stop", "Watcher").startswith("Stopped.\nWatcher has no loop and no heartbeat running.\n")
    assert run("stop", "Watcher").startswith("There was nothing to stop.\nWatcher has no loop and no heartbeat")
    assert json.loads(run("stop", "Watcher", "--json"))["stopped"] is False
    assert set(AgentSession.objects.values_list("status", flat=True)) == {Status.HALTED}


def test_command_says_how_the_last_loop_ended(agent, drive):
    watcher = agent("max_cost_usd: 0.01\nautonomy: {enabled: true, renew: daily}", name="Watcher")
    assert "last loop" not in run("status", "Watcher")
    loop = drive(watcher)
    with script(GO_ON):
        loop.for_(hours=1)

    told = run("status", "Watcher")
    assert f"Its last loop, {loop.session.public_id}, ended at 2026-03-16 09:00:00 UTC: " in told
    assert "It starts again at 2026-03-17 00:00:00 UTC." in told
    assert json.loads(run("status", "Watcher", "--json"))["last_loop"]["status"] == "halted"
    assert run("stop", "Watcher").startswith("Stopped.\n")
    assert "begins anew" not in run("status", "Watcher")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["start", "Nobody"], "There is no agent 'Nobody'"),
        (["start", "Twin"], "Several agents match 'Twin'"),
        (["start", "Idle"], "has nothing to start: its definition has neither"),
        (["start", "Idle", "--user", "nobody"], "no active user"),
    ],
)
def test_command_says_what_is_wrong(agent, words, says):
    agent("", name="Idle")
    agent(name="Twin")
    agent(name="Twin")
    with pytest.raises(CommandError, match=says):
        run(*words)
