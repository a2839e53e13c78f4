"""What the commands that decide and answer share: who does, and on what exactly."""

from argparse import ArgumentParser
from typing import Any

from agents.management.base import row_named
from agents.models import Approval
from audit.management.base import not_empty


def add_decision(parser: ArgumentParser) -> None:
    parser.add_argument("approval", help="The public id of the approval, or enough of its beginning.")
    parser.add_argument("--user", required=True, help="Who decides; needs the permission agents.resolve_approval.")
    parser.add_argument("--digest", type=not_empty, help="The digest of the call that was looked at.")
    parser.add_argument("--note", default="", help="Kept with the decision; the run is told a denial's note.")
    parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")


def named_approval(said: str) -> Approval:
    return row_named(Approval.objects.select_related("session", "session__owner"), said, "approval", "approvals")


def shown_approval(approval: Approval) -> dict[str, Any]:
    return {
        "approval": str(approval.public_id),
        "status": approval.status,
        "action": approval.action,
        "version": approval.version,
        "level": approval.level,
        "risk": approval.risk_level,
        "phase": approval.phase,
        "arguments": approval.arguments,
        "simulation": approval.simulation,
        "session": str(approval.session.public_id),
        "owner": approval.session.owner.get_username(),
        "digest": approval.digest,
        "expires_at": approval.expires_at.isoformat(),
    }
