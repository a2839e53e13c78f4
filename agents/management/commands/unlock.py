"""`unlock`: let people sign in again at once after too many wrong passwords."""

from argparse import ArgumentParser
from typing import Any

from agents.management.base import RecordedCommand, named_user
from agents.people.sign_ins import WINDOW, sign_ins_clear
from audit.management.base import not_empty

MINUTES = WINDOW.seconds // 60


class Command(RecordedCommand):
    help = (
        "Lets people sign in again at once after too many wrong passwords. Without this command the lock ends after "
        f"at most {MINUTES} minutes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "username", nargs="?", type=not_empty, help="Only this account. Default: all, and addresses."
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        if options["username"]:
            named_user(options["username"], active=False)
        cleared = sign_ins_clear(username=options["username"] or "", **self.actor(options))
        self.print({"cleared": cleared}, f"{cleared} counters of failed sign-ins were reset.", options)
