"""`release`: lets new work start again after `halt --all`. What was halted stays halted."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.management.base import acting_user, add_acting_user
from agents.people.access import COMMAND
from agents.sessions.halts import organisation_release
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = "Releases the halt of all work. Sessions that were halted stay halted; new ones may start."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            halt = organisation_release(by=acting_user(options["user"]), now=clock(), actor=COMMAND)
        except LqopsError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            json.dumps({"halt_id": halt.pk, "released": True}) if options["json"] else "Work may start again."
        )
