"""`agent`: starts and stops an agent that works by itself, or says where it stands."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.enums import Mode
from agents.exceptions import LqopsError
from agents.loop.reads import loop_facts
from agents.management.base import AGENT_HELP, acting_user, add_acting_user, agent_named
from agents.models import Agent, AgentSession
from agents.people.access import COMMAND
from agents.roster.agents import UnderWay, agent_restart, agent_start, agent_stop, agent_under_way
from agents.roster.loops import loop_is_awaited
from audit.management.base import ActingCommand
from audit.receipts import worded


class Command(ActingCommand):
    help = (
        "Starts an agent that works by itself (its loop with the sensors, and its heartbeat), stops it, "
        "restarts it, or says where it stands. Starting what is under way, and stopping what is not, changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("act", choices=["start", "stop", "restart", "status"], help="What to do.")
        parser.add_argument("agent", help=AGENT_HELP)
        parser.add_argument("--json", action="store_true", help="One JSON object instead of lines.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        agent, by, now = agent_named(options["agent"]), acting_user(options["user"]), clock()
        stopped: bool | None = None
        try:
            if options["act"] == "stop":
                stopped = agent_stop(agent=agent, by=by, now=now, actor=COMMAND)
            elif options["act"] == "start":
                agent_start(agent=agent, by=by, now=now, actor=COMMAND)
            elif options["act"] == "restart":
                agent_restart(agent=agent, by=by, now=now, actor=COMMAND)
        except LqopsError as error:
            raise CommandError(str(error)) from error
        agent.refresh_from_db()
        if options["json"]:
            self.stdout.write(json.dumps(_facts(agent, stopped)))
            return
        if stopped is not None:
            self.stdout.write("Stopped." if stopped else "There was nothing to stop.")
        self._say(agent, agent_under_way(agent))

    def _say(self, agent: Agent, going: UnderWay) -> None:
        loop = loop_facts(going.loop) if going.loop else None
        beat = going.heartbeat
        if loop is None and beat is None:
            self.stdout.write(f"{agent.name} does nothing by itself at the moment.")
        if loop is None and (last := _last(agent)) is not None:
            why = f" ({last['error']})" if last["error"] else ""
            self.stdout.write(f"Its last loop, {last['session']}, ended at {last['ended_at']}: {last['reason']}{why}.")
        if loop is None and loop_is_awaited(agent):
            self.stdout.write("It begins anew at 00:00 UTC.")
        if loop is not None:
            until = f" until {loop['next_wake_at']}" if loop["next_wake_at"] else ""
            self.stdout.write(f"Loop {loop['session']}: {loop['status']}{until}, turn {loop['turn']}.")
        if beat is not None:
            at = beat.next_wake_at
            self.stdout.write(f"Heartbeat: {f'next at {at:%Y-%m-%d %H:%M:%S} UTC' if at else beat.status}.")


def _facts(agent: Agent, stopped: bool | None) -> dict[str, Any]:  # noqa: FBT001 None: nobody asked for it
    going = agent_under_way(agent)
    return {
        "agent": str(agent.public_id),
        "name": agent.name,
        "loop": loop_facts(going.loop) if going.loop else None,
        "heartbeat": _beat(going.heartbeat),
        "last_loop": None if going.loop else _last(agent),
        **({} if stopped is None else {"stopped": stopped}),
    }


def _last(agent: Agent) -> dict[str, Any] | None:
    """How the last loop ended, if it has."""
    row = AgentSession.objects.filter(agent=agent, mode=Mode.LOOP).order_by("-pk").first()
    if row is None or row.completed_at is None:
        return None
    ended = {"session": str(row.public_id), "status": row.status, "ended_at": row.completed_at.isoformat()}
    return {**ended, "reason": worded("reason", str(row.terminal_reason)), "error": row.error}


def _beat(session: AgentSession | None) -> dict[str, Any] | None:
    if session is None:
        return None
    at = session.next_wake_at
    named = {"session": str(session.public_id), "status": session.status}
    return {**named, "next_wake_at": at.isoformat() if at else None}
