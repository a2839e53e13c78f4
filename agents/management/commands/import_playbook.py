"""`import_playbook`: create a playbook from a YAML file, or the next version of the one with its name."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.exceptions import LqopsError
from agents.knowledge.playbooks import playbook_import
from agents.management.base import RecordedCommand, file_text, named_user


class Command(RecordedCommand):
    help = (
        "Creates a playbook from a YAML file or, if its owner has one of that name, its next version. A file without "
        "changes changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="The YAML file.")
        parser.add_argument("--owner", required=True, help="The username of the playbook's owner.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        owner = named_user(options["owner"])
        actor = self.actor(options)
        text = file_text(options["file"])
        try:
            playbook = playbook_import(owner=owner, text=text, **actor)
        except LqopsError as error:
            raise CommandError(f"{options['file']}: {error}") from None
        has_changed = playbook.updated_at == actor["now"]
        facts = {
            "playbook_id": str(playbook.public_id),
            "name": playbook.name,
            "version": playbook.version,
            "digest": playbook.digest,
            "owner": owner.username,
            "changed": has_changed,
        }
        unchanged = "" if has_changed else "No changes: "
        self.print(facts, f"{unchanged}{playbook.name} of {owner.username} is at version {playbook.version}.", options)
