"""`opt_in`: let agents run for a user, or no longer."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.accounts import profile_set
from agents.management.base import RecordedCommand, named_user


class Command(RecordedCommand):
    help = (
        "Lets agents run in the background for a user; --out revokes it. Opting out ends the user's loops. Other runs "
        "may finish, unless --halt-all is given."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="The user for whom agents may run.")
        parser.add_argument("--out", action="store_true", help="Agents may no longer run for this user.")
        parser.add_argument("--halt-all", action="store_true", help="With --out: halts every run of this user.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        user = named_user(options["username"], active=False)
        if options["halt_all"] and not options["out"]:
            raise CommandError("--halt-all needs --out. To halt runs of a user who stays opted in, use `halt`.")
        profile = profile_set(
            user=user, opted_in=not options["out"], halt_all=options["halt_all"], **self.actor(options)
        )
        text = f"Agents {'may' if profile.opted_in else 'may no longer'} run for {user}."
        self.print({"user": user.username, "opted_in": profile.opted_in}, text, options)
