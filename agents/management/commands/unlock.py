"""`unlock`: lets people sign in again at once after too many wrong passwords."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from agents.conf import clock
from agents.management.base import acting_user, add_acting_user
from agents.people.sign_ins import WINDOW, sign_ins_clear
from audit.management.base import ActingCommand

MINUTES = WINDOW.seconds // 60


def _name(text: str) -> str:
    """An empty name, such as that of a variable that nobody has set, is not taken for everybody."""
    if not text.strip():
        raise ArgumentTypeError("a username has at least one character; leave it out for all of them")
    return text


class Command(ActingCommand):
    help = (
        "Lets people sign in again at once after too many wrong passwords. Without this the wait ends by itself, after "
        f"{MINUTES} minutes at most."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", nargs="?", type=_name, help="Only this account; by default all, and addresses.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        cleared = sign_ins_clear(username=options["username"] or "", by=acting_user(options["user"]), now=clock())
        line = f"{cleared} counts of failed sign-ins begin anew."
        self.stdout.write(json.dumps({"cleared": cleared}) if options["json"] else line)
