"""Agents that work by themselves: the levers, and where one stands in a few words."""

from typing import Final

from django.utils.html import format_html

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.display import ago
from agents.admin.looks import STATUS_LABELS
from agents.admin.sessions import session_links, standing_words
from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.definitions.schema import DefinitionError
from agents.enums import Mode, Status
from agents.loop.heartbeat import heartbeat_of
from agents.models import Agent, AgentSession
from agents.roster.agents import UnderWay, agent_is_going, agent_restart, agent_start, agent_stop, agent_under_way
from agents.roster.loops import loop_is_awaited

PERMISSION: Final = "agents.change_agentsession"
# With every status: of one that is missing here, unfold shows the status and not the words.
GOING_LABELS: Final = {status: STATUS_LABELS.get(status, "") for status in Status.values}


def _linked(done: Told, started: list[UnderWay]) -> Told:
    sessions = [row for one in started for row in (one.loop, one.heartbeat) if row is not None]
    return Told(format_html("{} {}", done.text, session_links(sessions)), done.refused)


def _start(asked: Asked) -> Told:
    started: list[UnderWay] = []
    done = each(asked, lambda row: started.append(agent_start(agent=row, by=asked.by, now=asked.now)), "started")
    return _linked(done, started)


def _stop(asked: Asked) -> Told:
    return each(asked, lambda row: agent_stop(agent=row, by=asked.by, now=asked.now), "stopped")


def _restart(asked: Asked) -> Told:
    started: list[UnderWay] = []
    done = each(asked, lambda row: started.append(agent_restart(agent=row, by=asked.by, now=asked.now)), "restarted")
    return _linked(done, started)


def paces_itself(agent: Agent) -> bool:
    """Whether its definition has a loop or a heartbeat."""
    try:
        definition = definition_of(agent)
    except DefinitionError:
        return False
    return definition.is_autonomous or heartbeat_of(definition) is not None


def can_start(agent: Agent) -> bool:
    """Something that its definition has, and that does not run."""
    if not paces_itself(agent):
        return False
    definition = definition_of(agent)
    going = agent_under_way(agent)
    waits = (definition.is_autonomous and not going.loop) or (heartbeat_of(definition) and not going.heartbeat)
    return agent.enabled and bool(waits)


def can_stop(agent: Agent) -> bool:
    """It works by itself, or will do so again tomorrow."""
    return agent_is_going(agent) or loop_is_awaited(agent)


LEVERS: Final = (
    Act("start", "Start", PERMISSION, _start, fits=can_start,
        explained="It begins to work by itself, as its definition says: turn after turn in its loop, with its sensors, "
        "and at the beats of its heartbeat. Its caps and guardrails hold."),
    Act("stop", "Stop", PERMISSION, _stop, fits=can_stop,
        explained="Its loop, its sensors and its heartbeat end: no call of theirs starts any more, also not with a new "
        "day. What triggers and chats have begun goes on."),
    Act("restart", "Restart", PERMISSION, _restart, fits=agent_is_going,
        explained="It is stopped and started again: with an empty hot state, a full cap, and its definition as it is "
        "now."),
)  # fmt: skip


def going_words(session: AgentSession | None) -> tuple[str, str]:
    """A status to colour by, and where the loop or the heartbeat stands."""
    if session is None:
        return "", ""
    if session.mode == Mode.HEARTBEAT:
        at = session.next_wake_at
        return session.status, f"heartbeat {ago(at, clock())}" if at else "heartbeat"
    if session.status == Status.SLEEPING and session.next_wake_at:
        return session.status, f"sleeps until {session.next_wake_at:%H:%M:%S}"
    return session.status, standing_words(session)
