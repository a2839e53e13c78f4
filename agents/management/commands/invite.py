"""`invite`: make an account in a role and print the link by which its owner chooses a password."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from agents.accounts import ROLES, invitation_link, person_invite
from agents.management.base import RecordedCommand


class Command(RecordedCommand):
    help = "Makes an account in a role and prints a link, valid for 3 days, by which its owner chooses a password."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="The name to sign in with.")
        parser.add_argument("--email", required=True, help="Their e-mail address.")
        parser.add_argument("--role", required=True, choices=ROLES, help="What they may do.")
        parser.add_argument("--name", default="", help="Their full name.")
        parser.add_argument("--opt-in", action="store_true", help="Agents may run in the background for them.")
        parser.add_argument("--no-email", action="store_true", help="Do not send them notifications by e-mail.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        given = {name: options[name] for name in ("username", "email", "role", "name")}
        given |= {"opted_in": options["opt_in"], "told_by_email": not options["no_email"]}
        try:
            user = person_invite(**given, **self.actor(options))
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        link = invitation_link(user=user, **self.actor(options))
        self.print({"user": user.username, "link": link}, link, options, hint=f"{user} chooses a password there.")
