"""`resume`: let go on what `pause` put aside."""

from argparse import ArgumentParser
from typing import Any

from agents.management.base import RecordedCommand, row_named
from agents.management.commands.pause import add_target
from agents.models import Agent, AgentSession, Trigger
from agents.people.access import COMMAND
from agents.sessions.pauses import agent_resume, pause_message, pauses_of, session_resume, work_resume
from agents.triggers.triggers import trigger_resume


class Command(RecordedCommand):
    help = "Resumes what `pause` paused: it goes on where it was. A halted session stays halted."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_target(parser, "Resumes")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        actor = self.actor(options)
        if options["trigger"] is not None:
            trigger = trigger_resume(trigger=row_named(Trigger, options["trigger"]), **actor)
            self.print({"resumed": str(trigger.public_id)}, f"Trigger {trigger.name} fires again.", options)
        elif options["session"] is not None:
            session = session_resume(row_named(AgentSession, options["session"]).pk, actor=COMMAND, **actor)
            others = [pause_message(pause) for pause in pauses_of(session)]
            text = " ".join(["Its own pause ended.", *others] if others else [f"Run {session.public_id} goes on."])
            self.print({"resumed": str(session.public_id), "still_paused": bool(others)}, text, options)
        elif options["agent"] is not None:
            agent = row_named(Agent, options["agent"])
            agent_resume(agent=agent, actor=COMMAND, **actor)
            self.print({"resumed": str(agent.public_id)}, f"Agent {agent.name} goes on.", options)
        else:
            work_resume(actor=COMMAND, **actor)
            self.print({"resumed": "all"}, "All work goes on.", options)
