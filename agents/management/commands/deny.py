"""`deny`: says no to a call that waits for a person; the run goes on without it."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.management.base import add_decision, named_approval, named_user
from agents.sessions.approvals import approval_reject
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Denies one call of an agent; the run is told so, with the note, and goes on. A denial needs no digest: "
        "whatever the call has become, the answer is no."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_decision(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        approval, by = named_approval(options["approval"]), named_user(options["user"])
        digest = options["digest"] or approval.digest
        try:
            decided = approval_reject(approval.pk, by=by, digest=digest, now=clock(), note=options["note"])
        except LqopsError as error:
            raise CommandError(str(error)) from error
        said = {"approval": str(approval.public_id), "status": decided.status}
        self.stdout.write(json.dumps(said) if options["json"] else f"Denied: {decided.action}.")
