"""Counter-sign the newest checkpoint, on a second host."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from audit import utc_now
from audit.keys import public_key
from audit.management.base import ActingCommand, key_file
from audit.witness import WitnessRefused, countersign


class Command(ActingCommand):
    help = (
        "Counter-sign the newest line of a copy of the checkpoint file with a key of your own, on a second host that "
        "the operators of the first cannot change; no database is needed. Refuses a file that does not continue what "
        "was counter-signed before. verify_export.py takes it with --kept and --witness-key. Exit code 1: refused."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("checkpoints", type=Path, metavar="CHECKPOINTS", help="copy of the checkpoint file")
        parser.add_argument("--key", required=True, help="public key of the installation, 64 hex digits")
        parser.add_argument(
            "--with", dest="own", type=Path, required=True, metavar="FILE", help="own key; created if missing"
        )
        parser.add_argument("--into", type=Path, required=True, metavar="FILE", help="file of counter-signatures")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            secret = key_file(options["own"])
            done = countersign(
                options["checkpoints"], key=options["key"], into=options["into"], secret=secret, now=utc_now()
            )
        except (WitnessRefused, OSError) as error:
            raise CommandError(f"Not counter-signed: {error}") from error
        self.stdout.write(f"Checkpoint {done['n']} counter-signed. Public key of this host: {public_key(secret)}")
