"""`agent`: start, stop or restart an agent's loop and heartbeat, or print their state."""

from argparse import ArgumentParser
from typing import Any

from agents.conf import clock
from agents.enums import Mode
from agents.loop.reads import loop_facts
from agents.management.base import AGENT_HELP, JsonCommand, acting_user, add_acting_user, agent_named
from agents.models import Agent, AgentSession
from agents.people.access import COMMAND
from agents.roster.agents import AutonomousSessions, agent_autonomous_sessions, agent_restart, agent_start, agent_stop
from agents.roster.loops import loop_awaits_renewal
from audit.receipts import label_of


class Command(JsonCommand):
    help = (
        "Starts, stops or restarts an agent's loop, with its sensors, and its heartbeat, or prints their state. "
        "Starting a running agent and stopping a stopped one changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("act", choices=["start", "stop", "restart", "status"], help="What to do.")
        parser.add_argument("agent", help=AGENT_HELP)
        super().add_arguments(parser)
        add_acting_user(parser)

    def run(self, options: dict[str, Any]) -> None:
        agent = agent_named(options["agent"])
        arguments: dict[str, Any] = {
            "agent": agent,
            "by": acting_user(options["user"]),
            "now": clock(),
            "actor": COMMAND,
        }
        stopped: bool | None = None
        if options["act"] == "stop":
            stopped = agent_stop(**arguments)
        elif options["act"] == "start":
            agent_start(**arguments)
        elif options["act"] == "restart":
            agent_restart(**arguments)
        agent.refresh_from_db()
        current = agent_autonomous_sessions(agent)
        self.print(_facts(agent, current, stopped), _text(agent, current, stopped), options)


def _text(agent: Agent, current: AutonomousSessions, stopped: bool | None) -> str:  # noqa: FBT001 None: no stop was requested
    lines = []
    if stopped is not None:
        lines.append("Stopped." if stopped else "There was nothing to stop.")
    loop = loop_facts(current.loop) if current.loop else None
    beat = current.heartbeat
    if loop is None and beat is None:
        lines.append(f"{agent.name} has no loop and no heartbeat running.")
    if loop is None and (last := _last_loop(agent)) is not None:
        why = f" ({last['error']})" if last["error"] else ""
        lines.append(f"Its last loop, {last['session']}, ended at {last['ended_at']}: {last['reason']}{why}.")
    if loop is None and loop_awaits_renewal(agent):
        lines.append("It starts again at 00:00 UTC.")
    if loop is not None:
        until = f" until {loop['next_wake_at']}" if loop["next_wake_at"] else ""
        lines.append(f"Loop {loop['session']}: {loop['status']}{until}, turn {loop['turn']}.")
    if beat is not None:
        at = beat.next_wake_at
        lines.append(f"Heartbeat: {f'next at {at:%Y-%m-%d %H:%M:%S} UTC' if at else beat.status}.")
    return "\n".join(lines)


def _facts(agent: Agent, current: AutonomousSessions, stopped: bool | None) -> dict[str, Any]:  # noqa: FBT001 as above
    return {
        "agent": str(agent.public_id),
        "name": agent.name,
        "loop": loop_facts(current.loop) if current.loop else None,
        "heartbeat": _heartbeat(current.heartbeat),
        "last_loop": None if current.loop else _last_loop(agent),
        **({} if stopped is None else {"stopped": stopped}),
    }


def _last_loop(agent: Agent) -> dict[str, Any] | None:
    """How the last loop ended; None if there is none, or it has not ended."""
    row = AgentSession.objects.filter(agent=agent, mode=Mode.LOOP).order_by("-pk").first()
    if row is None or row.completed_at is None:
        return None
    ended = {"session": str(row.public_id), "status": row.status, "ended_at": row.completed_at.isoformat()}
    return {**ended, "reason": label_of("reason", str(row.terminal_reason)), "error": row.error}


def _heartbeat(session: AgentSession | None) -> dict[str, Any] | None:
    if session is None:
        return None
    at = session.next_wake_at
    named = {"session": str(session.public_id), "status": session.status}
    return {**named, "next_wake_at": at.isoformat() if at else None}
