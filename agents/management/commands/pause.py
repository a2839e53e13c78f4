"""`pause`: pause one session, the sessions of an agent or of a trigger, or all work."""

from argparse import ArgumentParser
from typing import Any

from agents.management.base import AGENT_HELP, RecordedCommand, row_named
from agents.models import Agent, AgentSession, Trigger
from agents.people.access import COMMAND
from agents.sessions.pauses import agent_pause, session_pause, work_pause
from agents.triggers.triggers import trigger_pause


def add_target(parser: ArgumentParser, verb: str) -> None:
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("session", nargs="?", help="The public id of a session, or its beginning.")
    target.add_argument("--agent", help=f"{verb} an agent. {AGENT_HELP}")
    target.add_argument("--trigger", help=f"{verb} a trigger: its name, its public id, or the beginning of that.")
    target.add_argument("--all", action="store_true", help=f"{verb} all work of the installation.")


class Command(RecordedCommand):
    help = (
        "Pauses one session, an agent, a trigger, or all work, until `resume`. A call in flight finishes; no other "
        "begins. What starts meanwhile waits, but a paused trigger does not fire. Pausing twice changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_target(parser, "Pauses")
        parser.add_argument("--reason", default="", help="Stored with the pause, for people.")
        parser.add_argument(
            "--with-runs", action="store_true", help="With --trigger: also pauses the sessions that it has now."
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        actor = self.actor(options)
        why = {"reason": options["reason"], "actor": COMMAND}
        if options["trigger"] is not None:
            trigger = row_named(Trigger, options["trigger"])
            trigger_pause(trigger=trigger, with_runs=options["with_runs"], **actor)
            self.print({"paused": str(trigger.public_id)}, f"Trigger {trigger.name} is paused.", options)
        elif options["session"] is not None:
            session = session_pause(row_named(AgentSession, options["session"]).pk, **actor, **why)
            self.print({"paused": str(session.public_id)}, f"Run {session.public_id} is paused.", options)
        elif options["agent"] is not None:
            agent = row_named(Agent, options["agent"])
            held = agent_pause(agent=agent, **actor, **why).sessions
            facts = {"paused": str(agent.public_id), "sessions": held}
            self.print(facts, f"Agent {agent.name} is paused. Paused runs: {held}.", options)
        else:
            held = work_pause(**actor, **why).sessions
            text = f"All work is paused until `resume --all`. Paused runs: {held}."
            self.print({"paused": "all", "sessions": held}, text, options)
