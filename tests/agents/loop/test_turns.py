"""Chats, heartbeats, loops and triggered runs share one turn function with a limit of rounds."""

import pytest

from agents.ask.chats import chat, chat_send
from agents.conf import clock
from agents.engine import turns
from agents.engine.turns import SessionKey
from agents.enums import Outcome
from agents.loop.cycle import run_loop
from agents.loop.heartbeat import heartbeat_start, run_heartbeat
from agents.models import Message, ToolCall
from agents.providers.scripted import Step
from agents.roster.loops import loop_start
from agents.runner import run_session
from agents.sessions.leases import sleepers_wake
from agents.walk.walk import walk
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import says
from tests.agents.walk.scene import Scene

pytestmark = pytest.mark.django_db

TEXT = "autonomy: {enabled: true}\nheartbeat: {interval: 1800, prompt: Look around.}"
MODULES = ("agents.ask.chats", "agents.loop.heartbeat", "agents.loop.cycle", "agents.walk.analysis")


def by_chat(agent, time):
    return chat_send(owner=agent.owner, by=None, text="Look around.", agent=agent, now=clock()), chat


def by_heartbeat(agent, time):
    session = heartbeat_start(agent=agent, by=None, now=clock())
    time.move_to(session.next_wake_at)
    sleepers_wake(clock())
    return session, run_heartbeat


def by_loop(agent, time):
    return loop_start(agent=agent, by=None, now=clock()), run_loop


def by_trigger(agent, time):
    session = Scene(agent.owner).of_document(analysis_mode="agentic", loop={"max_tool_rounds": 5})
    session.agent = agent
    session.save()
    return session, walk


PATHS = pytest.mark.parametrize("path", [by_chat, by_heartbeat, by_loop, by_trigger])


@PATHS
def test_every_path_takes_the_same_turn(agent, time, monkeypatch, path):
    taken = []

    def spy(agent, session_key, message, **more):
        taken.append((agent, session_key, message))
        return whole(agent, session_key, message, **more)

    whole = turns.run_agent_turn
    for module in MODULES:
        monkeypatch.setattr(f"{module}.run_agent_turn", spy)
    watcher = agent(TEXT)
    session, engine = path(watcher, time)
    with script(Step("All calm.")):
        run_session(session.pk, engine, owner="worker")

    [(whose, session_key, message)] = taken
    assert whose == watcher
    assert isinstance(session_key, SessionKey)
    assert session_key.session.pk == session.pk
    assert message[-1].role == "user"


@pytest.mark.sampled(2)
@PATHS
def test_sixth_round_of_calls_is_not_run_and_the_run_says_so(agent, time, path):
    session, engine = path(agent(TEXT), time)
    with script(*(says(("look", {"place": str(number)})) for number in range(9))):
        run_session(session.pk, engine, owner="worker")

    assert ToolCall.objects.filter(session=session, name="look", outcome=Outcome.SUCCESS).count() == 5
    session.refresh_from_db()
    last = Message.objects.filter(session=session).order_by("seq").last()
    assert "5 rounds of calls" in last.content if path is not by_trigger else session.terminal_reason == "max_steps"
