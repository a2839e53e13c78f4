"""`agent`: start, stop or restart an agent's loop and heartbeat, or print their state."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, Final

from agents.enums import Mode
from agents.loop.reads import loop_facts
from agents.management.base import AGENT_HELP, RecordedCommand, row_named
from agents.models import Agent, AgentSession
from agents.people.access import COMMAND
from agents.roster.agents import agent_autonomous_sessions, agent_restart, agent_start, agent_stop
from agents.roster.loops import loop_awaits_renewal
from audit.receipts import label_of

ACTS: Final[dict[str, Callable[..., Any]]] = {"start": agent_start, "stop": agent_stop, "restart": agent_restart}


class Command(RecordedCommand):
    help = (
        "Starts, stops or restarts an agent's loop, with its sensors, and its heartbeat, or prints their state. "
        "Starting a running agent and stopping a stopped one changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("act", choices=[*ACTS, "status"], help="The action.")
        parser.add_argument("agent", help=AGENT_HELP)
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        agent = row_named(Agent, options["agent"])
        act = ACTS.get(options["act"])
        has_changed = act(agent=agent, actor=COMMAND, **self.actor(options)) if act else None
        agent.refresh_from_db()
        facts = _facts(agent)
        if options["act"] == "stop":
            facts["stopped"] = has_changed
        self.print(facts, _text(agent, facts), options)


def _facts(agent: Agent) -> dict[str, Any]:
    current = agent_autonomous_sessions(agent)
    beat = current.heartbeat
    return {
        "agent": str(agent.public_id),
        "name": agent.name,
        "loop": loop_facts(current.loop) if current.loop else None,
        "heartbeat": {
            "session": str(beat.public_id),
            "status": beat.status,
            "next_wake_at": beat.next_wake_at.isoformat() if beat.next_wake_at else None,
        }
        if beat
        else None,
        "last_loop": None if current.loop else _last_loop(agent),
    }


def _last_loop(agent: Agent) -> dict[str, Any] | None:
    """How the last loop ended; None if there is none, or it has not ended."""
    row = AgentSession.objects.filter(agent=agent, mode=Mode.LOOP).order_by("-pk").first()
    if row is None or row.completed_at is None:
        return None
    ended = {"session": str(row.public_id), "status": row.status, "ended_at": row.completed_at.isoformat()}
    return {**ended, "reason": label_of("reason", str(row.terminal_reason)), "error": row.error}


def _text(agent: Agent, facts: dict[str, Any]) -> str:
    lines = []
    if "stopped" in facts:
        lines.append("Stopped." if facts["stopped"] else "There was nothing to stop.")
    loop, beat, last = facts["loop"], facts["heartbeat"], facts["last_loop"]
    if loop:
        until = f" until {loop['next_wake_at']}" if loop["next_wake_at"] else ""
        lines.append(f"Loop {loop['session']}: {loop['status']}{until}, turn {loop['turn']}.")
    elif not beat:
        lines.append(f"{agent.name} has no loop and no heartbeat running.")
    if last:
        error = f" ({last['error']})" if last["error"] else ""
        lines.append(f"Its last loop, {last['session']}, ended at {last['ended_at']}: {last['reason']}{error}.")
    if not loop and loop_awaits_renewal(agent):
        lines.append("It starts again at 00:00 UTC.")
    if beat:
        state = f"next at {beat['next_wake_at']}" if beat["next_wake_at"] else beat["status"]
        lines.append(f"Heartbeat: {state}.")
    return "\n".join(lines)
