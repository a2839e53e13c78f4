"""`deny`: deny a call of an agent; the run continues without it."""

from typing import Any

from django.contrib.auth.models import User

from agents.conf import clock
from agents.management.base import DecisionCommand
from agents.models import Approval
from agents.sessions.approvals import approval_reject


class Command(DecisionCommand):
    help = (
        "Denies one call of an agent. The run gets the note and continues. A denial needs no digest: it holds for "
        "whatever the call has become."
    )
    verb = "Denied"

    def decide(self, approval: Approval, *, by: User, options: dict[str, Any]) -> Approval:
        digest = options["digest"] or approval.digest
        return approval_reject(approval.pk, by=by, digest=digest, now=clock(), note=options["note"])
