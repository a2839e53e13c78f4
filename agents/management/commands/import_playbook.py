"""`import_playbook`: makes a playbook from a YAML file, or the next version of the one that has its name."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.knowledge.playbooks import playbook_import
from agents.management.base import acting_user, add_acting_user, named_user
from agents.text.strict_yaml import MAX_BYTES
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Makes a playbook from a YAML file or, if its owner has one of that name, the next version of it. A file that "
        "says what the playbook says already changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="The YAML file.")
        parser.add_argument("--owner", required=True, help="The username of the playbook's owner.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        owner, by, file = named_user(options["owner"]), acting_user(options["user"]), options["file"]
        now = clock()
        try:
            playbook = playbook_import(owner=owner, text=_read(file), by=by, now=now)
        except LqopsError as refusal:
            raise CommandError(f"{file}: {refusal}") from None
        found = {
            "playbook_id": str(playbook.public_id),
            "name": playbook.name,
            "version": playbook.version,
            "digest": playbook.digest,
            "owner": owner.username,
            "changed": playbook.updated_at == now,
        }
        stays = "" if found["changed"] else "Nothing has changed: "
        line = f"{stays}{playbook.name} of {owner.username} is at version {playbook.version}."
        self.stdout.write(json.dumps(found) if options["json"] else line)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
    if len(content) > MAX_BYTES:
        raise CommandError(f"{file} is longer than {MAX_BYTES} bytes; shorten or split it.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{file} is not UTF-8 text: byte {error.start} makes no character.") from None
