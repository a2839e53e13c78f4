"""`approve`: says yes to a call that waits for a person."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.management.acting import named_user
from agents.management.deciding import add_decision, named_approval
from agents.services.approvals import approval_approve


class Command(BaseCommand):
    help = (
        "Approves one call of an agent. Without --digest it shows the call and its digest and decides nothing; with "
        "the digest it approves that very call. `manage.py approvals` lists what waits."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_decision(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        approval, by = named_approval(options["approval"]), named_user(options["user"])
        if not options["digest"]:
            self.stdout.write(json.dumps(approval, indent=None if options["json"] else 2))
            return
        try:
            decided = approval_approve(
                approval["pk"], by=by, digest=options["digest"], now=clock(), note=options["note"]
            )
        except LqopsError as error:
            raise CommandError(str(error)) from error
        said = {"approval": approval["approval"], "status": decided.status}
        self.stdout.write(json.dumps(said) if options["json"] else f"Approved: {decided.action}.")
