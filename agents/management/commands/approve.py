"""`approve`: approve a call of an agent."""

import json
from typing import Any

from django.contrib.auth.models import User

from agents.conf import clock
from agents.enums import ApprovalStatus
from agents.management.base import DecisionCommand, approval_facts
from agents.models import Approval
from agents.sessions.approvals import approval_approve


class Command(DecisionCommand):
    help = (
        "Approves one call of an agent. Without --digest it prints the call and its digest and decides nothing; with "
        "the digest it approves exactly that call. `manage.py approvals` lists pending calls."
    )
    verb = "Approved"

    def decide(self, approval: Approval, *, by: User, options: dict[str, Any]) -> Approval | None:
        if not options["digest"]:
            self.print(approval_facts(approval), _review(approval, by), options)
            return None
        return approval_approve(approval.pk, by=by, digest=options["digest"], now=clock(), note=options["note"])


def _review(approval: Approval, by: User) -> str:
    """The call, and the commands that decide on it."""
    facts = json.dumps(approval_facts(approval), indent=2)
    if approval.status != ApprovalStatus.PENDING:
        return f"{facts}\nThere is nothing to decide: it is {approval.status_text}."
    arguments = f"{approval.public_id} --user {by.get_username()}"
    return (
        f"{facts}\nNothing is decided yet. To approve exactly this call:\n"
        f"  manage.py approve {arguments} --digest {approval.digest}\n"
        f'To deny it:\n  manage.py deny {arguments} --note "…"'
    )
