"""`import_playbook`: create a playbook from a YAML file, or the next version of the one with its name."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.knowledge.playbooks import playbook_import
from agents.management.base import JsonCommand, acting_user, add_acting_user, named_user
from agents.text.strict_yaml import MAX_BYTES


class Command(JsonCommand):
    help = (
        "Creates a playbook from a YAML file or, if its owner has one of that name, its next version. A file without "
        "changes changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="The YAML file.")
        parser.add_argument("--owner", required=True, help="The username of the playbook's owner.")
        super().add_arguments(parser)
        add_acting_user(parser)

    def run(self, options: dict[str, Any]) -> None:
        owner = named_user(options["owner"])
        by = acting_user(options["user"])
        file = options["file"]
        now = clock()
        try:
            playbook = playbook_import(owner=owner, text=_read(file), by=by, now=now)
        except LqopsError as error:
            raise CommandError(f"{file}: {error}") from None
        has_changed = playbook.updated_at == now
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


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from None
    if len(content) > MAX_BYTES:
        raise CommandError(f"{path} is longer than {MAX_BYTES} bytes. Shorten or split it.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text: byte {error.start} is invalid.") from None
