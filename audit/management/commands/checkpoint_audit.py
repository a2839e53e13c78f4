"""Write one signed checkpoint of the audit log."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from audit import utc_now
from audit.checkpoints import write_checkpoint
from audit.management.base import ActingCommand
from audit.rows import UnreadableRow


class Command(ActingCommand):
    help = (
        "Append one signed checkpoint (the last hashes of `system` and of all open chains) to the file named by "
        "LQOPS_CHECKPOINT_FILE. Copy that file to another machine: whoever can change both the database and the file "
        "can hide what is newer than your copy."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--json", action="store_true", help="print the checkpoint as JSON, as it stands in the file"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            checkpoint = write_checkpoint(now=utc_now())
        except (OSError, DatabaseError, UnreadableRow) as error:
            raise CommandError(f"No checkpoint written to {settings.LQOPS_CHECKPOINT_FILE}: {error}") from error
        if options["json"]:
            self.stdout.write(json.dumps(checkpoint))
            return
        self.stdout.write(
            f"Checkpoint {checkpoint['n']} written (events: {checkpoint['rows']}, last row of `system`: "
            f"{checkpoint['system']['seq']}, open chains: {len(checkpoint['open'])}).\nPublic key: {checkpoint['key']}"
        )
