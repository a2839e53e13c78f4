"""`agent`: start, stop, restart or try an agent's loop and heartbeat, or print their state."""

from argparse import ArgumentParser
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from django.core.management.base import CommandError

from agents.enums import Mode
from agents.loop.reads import loop_facts
from agents.management.base import AGENT_HELP, RecordedCommand, row_named
from agents.models import Agent, AgentSession, Sensor
from agents.people.access import COMMAND
from agents.roster.agents import (
    agent_archive,
    agent_autonomous_sessions,
    agent_restart,
    agent_start,
    agent_stop,
    agent_unarchive,
)
from agents.roster.loops import loop_next_start
from agents.sensors.trial import agent_try, trial_lines
from audit.receipts import label_of

TRY: Final = "try"
ACTS: Final[dict[str, Callable[..., Any]]] = {
    "start": agent_start,
    "stop": agent_stop,
    "restart": agent_restart,
    "archive": agent_archive,
    "unarchive": agent_unarchive,
}


class Command(RecordedCommand):
    help = (
        "Starts, stops or restarts an agent's loop, with its sensors, and its heartbeat, archives the agent or brings "
        "it back, or prints its state. Starting a running agent and stopping a stopped one changes nothing. `try` "
        "reads each sensor once, judges each signal and asks the gate, with the real models and at their cost; "
        "it keeps nothing and starts nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("act", choices=[*ACTS, TRY, "status"], help="The action.")
        parser.add_argument("agent", help=AGENT_HELP)
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        agent = row_named(Agent, options["agent"])
        if options["act"] == TRY:
            tried = agent_try(agent=agent, actor=COMMAND, **self.actor(options))
            self.print(tried, "\n".join(trial_lines(tried)), options)
            if not tried["ok"]:
                raise CommandError(f"{agent.name}: not everything works; see above.")
            return
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
        "archived_at": _time(agent.archived_at),
        "loop": loop_facts(current.loop) if current.loop else None,
        "heartbeat": {
            "session": str(beat.public_id),
            "status": beat.status,
            "next_wake_at": _time(beat.next_wake_at),
        }
        if beat
        else None,
        "last_loop": None if current.loop else _last_loop(agent),
        "starts_again_at": None if current.loop else _time(loop_next_start(agent)),
        "sensors": [_sensor(row) for row in agent.sensors.order_by("name")],
    }


def _time(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _shown(at: str) -> str:
    return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _sensor(row: Sensor) -> dict[str, Any]:
    unscored = {name: state["unscored"] for name, state in row.signals.items() if state.get("unscored")}
    return {"name": row.name, "state": row.state, "problem": row.problem, "unscored": unscored}


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
    if facts["archived_at"]:
        lines.append(f"{agent.name} is archived. `manage.py agent unarchive` brings it back.")
    loop, beat, last = facts["loop"], facts["heartbeat"], facts["last_loop"]
    if loop:
        until = f" until {_shown(loop['next_wake_at'])}" if loop["next_wake_at"] else ""
        lines.append(f"Loop {loop['session']}: {loop['status']}{until}, turn {loop['turn']}.")
        lines += [f"  {loop['why']}"] if loop["why"] else []
        if loop["alerts"]:
            lines.append(f"  Alerts for its next turn: {loop['alerts']}.")
    elif not beat:
        lines.append(f"{agent.name} has no loop and no heartbeat running.")
    if last:
        error = f" ({last['error']})" if last["error"] else ""
        lines.append(f"Its last loop, {last['session']}, ended at {_shown(last['ended_at'])}: {last['reason']}{error}.")
    if facts["starts_again_at"]:
        lines.append(f"It starts again at {_shown(facts['starts_again_at'])}.")
    if beat:
        state = f"next at {_shown(beat['next_wake_at'])}" if beat["next_wake_at"] else beat["status"]
        lines.append(f"Heartbeat: {state}.")
    for sensor in facts["sensors"]:
        problem = f": {sensor['problem'].rstrip('.')}" if sensor["problem"] else ""
        unscored = "".join(f" {number} readings of {name} unscored." for name, number in sensor["unscored"].items())
        lines.append(f"Sensor {sensor['name']}: {sensor['state']}{problem}.{unscored}")
    return "\n".join(lines)
