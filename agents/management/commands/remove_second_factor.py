"""`remove_second_factor`: let somebody who lost their second factor sign in with the password alone."""

from argparse import ArgumentParser
from typing import Any

from agents.management.base import RecordedCommand, named_user
from agents.people.second_factor import factors_remove
from audit.management.base import not_empty


class Command(RecordedCommand):
    help = (
        "Removes the second factors and recovery codes of a user, and signs the user out everywhere. If the role needs "
        "one, the next sign-in leads to the page that sets one up."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", type=not_empty, help="The user who lost the phone or key.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        user = named_user(options["username"], active=False)
        removed = factors_remove(user=user, **self.actor(options))
        self.print({"removed": removed}, f"{removed} second factors of {user} were removed.", options)
