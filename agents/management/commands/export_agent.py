"""`export_agent`: writes an agent to standard output as YAML that `load_agents` reads."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.management.acting import named_user
from agents.models import Agent
from agents.services.agent_files import agent_export
from agents.services.definitions import definition_drift
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = "Writes an agent to standard output as YAML; load_agents reads it. Changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The agent's name.")
        parser.add_argument("--owner", help="The username of its owner; needed where several have an agent so named.")
        parser.add_argument(
            "--json", action="store_true", help="One JSON object that holds the YAML, with its version."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        rows = Agent.objects.filter(name=options["name"])
        if options["owner"]:
            rows = rows.filter(owner=named_user(options["owner"]))
        agents = list(rows.select_related("owner")[:2])
        if len(agents) != 1:
            found = "Several agents are" if agents else "No agent is"
            raise CommandError(f"{found} named {options['name']!r}{'; say whose with --owner' if agents else ''}.")
        agent = agents[0]
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
