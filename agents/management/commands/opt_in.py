"""`opt_in`: lets agents run in the background for a user, or no longer."""

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.accounts import profile_set
from agents.conf import clock
from agents.exceptions import NotAllowed
from agents.management.base import acting_user, add_acting_user
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Lets agents run in the background for a user; --out takes that back. Opting out ends the user's loops; other "
        "runs are left to finish, unless --halt-all is given."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="The user for whom agents may run.")
        parser.add_argument("--out", action="store_true", help="Agents may no longer run for this user.")
        parser.add_argument("--halt-all", action="store_true", help="With --out: halts every run of this user.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['username']!r}.")
        out, halt_all = options["out"], options["halt_all"]
        if halt_all and not out:
            raise CommandError("--halt-all goes with --out; to halt runs of somebody who stays in, use `halt`.")
        by = acting_user(options["user"])
        try:
            profile = profile_set(user=user, opted_in=not out, by=by, now=clock(), halt_all=halt_all)
        except NotAllowed as refusal:
            raise CommandError(str(refusal)) from refusal
        line = f"Agents {'may' if profile.opted_in else 'may no longer'} run for {user}."
        found = {"user": user.username, "opted_in": profile.opted_in}
        self.stdout.write(json.dumps(found) if options["json"] else line)
