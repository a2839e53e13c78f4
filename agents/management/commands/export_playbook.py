"""`export_playbook`: writes a playbook to standard output as YAML that `import_playbook` reads."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.knowledge.playbooks import playbook_export
from agents.management.base import named_user
from agents.models import Playbook
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = "Writes a playbook to standard output as YAML; import_playbook reads it. Changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="The playbook's name.")
        parser.add_argument("--owner", required=True, help="The username of the playbook's owner.")
        parser.add_argument(
            "--json", action="store_true", help="One JSON object that holds the YAML, with its version."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        owner = named_user(options["owner"])
        playbook = Playbook.objects.filter(owner=owner, name=options["name"], deleted_at__isnull=True).first()
        if playbook is None:
            raise CommandError(f"{owner.username} has no playbook named {options['name']!r}.")
        text = playbook_export(playbook)
        found = {"name": playbook.name, "version": playbook.version, "digest": playbook.digest, "yaml": text}
        self.stdout.write(json.dumps(found) if options["json"] else text)
