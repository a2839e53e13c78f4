"""`unlock`: let people sign in again at once after too many wrong passwords."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from agents.conf import clock
from agents.management.base import JsonCommand, acting_user, add_acting_user
from agents.people.sign_ins import WINDOW, sign_ins_clear

MINUTES = WINDOW.seconds // 60


def _name(text: str) -> str:
    """Refuse an empty name, such as an unset shell variable: it would unlock everybody."""
    if not text.strip():
        raise ArgumentTypeError("a username has at least one character; leave it out for all accounts")
    return text


class Command(JsonCommand):
    help = (
        "Lets people sign in again at once after too many wrong passwords. Without this command the lock ends after "
        f"at most {MINUTES} minutes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", nargs="?", type=_name, help="Only this account. Default: all, and addresses.")
        super().add_arguments(parser)
        add_acting_user(parser)

    def run(self, options: dict[str, Any]) -> None:
        cleared = sign_ins_clear(username=options["username"] or "", by=acting_user(options["user"]), now=clock())
        self.print({"cleared": cleared}, f"{cleared} counters of failed sign-ins were reset.", options)
