"""`export_agent`: writes an agent to standard output as YAML that `load_agents` reads."""

import json
from argparse import ArgumentParser
from typing import Any

from agents.definitions.in_force import definition_drift
from agents.management.base import AGENT_HELP, agent_named, named_user
from agents.roster.files import agent_export
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = "Writes an agent to standard output as YAML; load_agents reads it. Changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help=AGENT_HELP)
        parser.add_argument("--owner", help="The username of its owner; needed where several have an agent so named.")
        parser.add_argument(
            "--json", action="store_true", help="One JSON object that holds the YAML, with its version."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        owner = named_user(options["owner"]) if options["owner"] is not None else None
        agent = agent_named(options["name"], owner=owner)
        text, drift = agent_export(agent), definition_drift(agent)
        for line in drift:
            self.stderr.write(f"NOTE {line}.")
        told = {
            "name": agent.name,
            "owner": agent.owner.username,
            "version": agent.definition_version,
            "digest": agent.definition_digest,
            "drift": drift,
            "yaml": text,
        }
        self.stdout.write(json.dumps(told) if options["json"] else text)
