"""`approve`: says yes to a call that waits for a person."""

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.conf import clock
from agents.enums import ApprovalStatus
from agents.exceptions import LqopsError
from agents.management.base import add_decision, named_approval, named_user, shown_approval
from agents.models import Approval
from agents.sessions.approvals import approval_approve
from audit.management.base import ActingCommand


class Command(ActingCommand):
    help = (
        "Approves one call of an agent. Without --digest it shows the call and its digest and decides nothing; with "
        "the digest it approves that very call. `manage.py approvals` lists what waits."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_decision(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        approval, by = named_approval(options["approval"]), named_user(options["user"])
        if not options["digest"]:
            self.stdout.write(_call(approval, by) if not options["json"] else json.dumps(shown_approval(approval)))
            return
        try:
            decided = approval_approve(approval.pk, by=by, digest=options["digest"], now=clock(), note=options["note"])
        except LqopsError as error:
            raise CommandError(str(error)) from error
        said = {"approval": str(decided.public_id), "status": decided.status}
        self.stdout.write(json.dumps(said) if options["json"] else f"Approved: {decided.action}.")


def _call(approval: Approval, by: User) -> str:
    """The call, and how to go on from here."""
    shown = json.dumps(shown_approval(approval), indent=2)
    if approval.status != ApprovalStatus.PENDING:
        return f"{shown}\nThere is nothing to decide any more: it is {approval.status}."
    named = f"{approval.public_id} --user {by.get_username()}"
    return (
        f"{shown}\nNothing is decided yet. To approve this very call:\n"
        f"  manage.py approve {named} --digest {approval.digest}\n"
        f'To deny it:\n  manage.py deny {named} --note "…"'
    )
