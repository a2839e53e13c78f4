"""`export_playbook`: print a playbook as YAML for `import_playbook`."""

from argparse import ArgumentParser
from typing import Any

from agents.knowledge.playbooks import playbook_export
from agents.management.base import JsonCommand, named_user, row_named
from agents.models import Playbook


class Command(JsonCommand):
    help = "Prints a playbook as YAML for import_playbook. Changes nothing."
    json_help = "Print one JSON object with the YAML and its version."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The playbook's name.")
        parser.add_argument("--owner", required=True, help="The username of the playbook's owner.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        playbook = row_named(Playbook, options["name"], owner=named_user(options["owner"]))
        text = playbook_export(playbook)
        facts = {"name": playbook.name, "version": playbook.version, "digest": playbook.digest, "yaml": text}
        self.print(facts, text, options)
