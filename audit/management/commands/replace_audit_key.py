"""Replace the key that signs checkpoints and exports."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from audit import utc_now
from audit.checkpoints import replace_key
from audit.keys import public_key
from audit.management.base import ActingCommand, key_file
from audit.receipts import COMMAND


class Command(ActingCommand):
    help = (
        "Replace LQOPS_AUDIT_KEY. Writes a checkpoint in which the present key names the new one, and the first one of "
        "the new key. Stop lqops first; afterwards give all hosts the new key (its file is printed) and start lqops. "
        "Former checkpoints stay verifiable."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--to", type=Path, required=True, metavar="FILE", help="the new key; created with a random one if missing"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path = options["to"]
        try:
            secret = key_file(path)
            if public_key(secret) == public_key():
                raise CommandError(f"{path} holds the present key.")
            written = replace_key(secret, by=COMMAND, now=utc_now())
        except (OSError, DatabaseError) as error:
            raise CommandError(f"Nothing was replaced: {error}") from error
        self.stdout.write(
            f"Replaced. The new public key is {written['key']}, from checkpoint {written['n']} on.\n"
            f"Now move {path} to audit_key in the data folder, or set LQOPS_AUDIT_KEY_FILE to it, and start lqops."
        )
