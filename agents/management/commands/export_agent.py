"""`export_agent`: print an agent as YAML for `load_agents`."""

from argparse import ArgumentParser
from typing import Any

from agents.definitions.in_force import definition_drift
from agents.management.base import AGENT_HELP, JsonCommand, named_user, row_named
from agents.models import Agent
from agents.roster.files import agent_export


class Command(JsonCommand):
    help = "Prints an agent as YAML for load_agents. Changes nothing."
    json_help = "Print one JSON object with the YAML and its version."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help=AGENT_HELP)
        parser.add_argument("--owner", help="The username of its owner, if several users have an agent of that name.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        owner = named_user(options["owner"]) if options["owner"] is not None else None
        agent = row_named(Agent, options["name"], owner=owner)
        text, drift = agent_export(agent), definition_drift(agent)
        for line in drift:
            self.stderr.write(f"NOTE {line}.")
        facts = {
            "name": agent.name,
            "owner": agent.owner.username,
            "version": agent.definition_version,
            "digest": agent.definition_digest,
            "drift": drift,
            "yaml": text,
        }
        self.print(facts, text, options)
