"""`approve`: approve a call of an agent."""

from textwrap import indent
from typing import Any

from django.contrib.auth.models import User

from agents.conf import clock
from agents.enums import ApprovalStatus
from agents.management.base import DecisionCommand, approval_facts
from agents.models import Approval
from agents.sessions.approvals import approval_approve, call_shown
from agents.sessions.second_eyes import rights, tally
from agents.text.shown import visible


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
    """The call in full, and the commands that decide on it."""
    seen, session = call_shown(approval), approval.session
    lines = [
        f"{approval.action}, version {approval.version}, level {approval.level}, phase {approval.phase}",
        f"Risk: {approval.risk_level or 'not rated'}. Owner: {session.owner}. Run: {session.public_id}.",
        f"Expires: {approval.expires_at:%Y-%m-%d %H:%M} UTC. Arguments:",
        seen.text,
        *(f"Look closely: {warning}" for warning in seen.warnings),
    ]
    if said := str(tally(approval)):
        lines.append(f"{said}.")
    if approval.simulation:
        lines += ["Forecast of a model, no part of the call:", indent(visible(approval.simulation), "  | ")]
    if approval.status != ApprovalStatus.PENDING:
        return "\n".join([*lines, f"There is nothing to decide: it is {approval.status_text}."])
    named = f"{approval.public_id} --user {by.get_username()}"
    approve = f"To approve exactly this call:\n  manage.py approve {named} --digest {approval.digest}"
    if refusal := rights([approval], by=by, now=clock())[approval.pk].refusal:
        approve = f"{by} cannot approve it. To them: {refusal}"
    lines += [
        f"Nothing is decided yet. {approve}",
        "To deny it:",
        f'  manage.py deny {named} --note "…"',
    ]
    return "\n".join(lines)
