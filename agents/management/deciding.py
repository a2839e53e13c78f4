"""What the commands that decide and answer share: who does, and on what exactly."""

from argparse import ArgumentParser
from typing import Any, TypeVar

from django.core.management.base import CommandError
from django.db import models

from agents.models import Approval
from agents.router.ids import SHORTEST, rows_by_id

Row = TypeVar("Row", bound=models.Model)


def add_decision(parser: ArgumentParser) -> None:
    parser.add_argument("approval", help="The public id of the approval, or enough of its beginning.")
    parser.add_argument("--user", required=True, help="Who decides; needs the permission agents.resolve_approval.")
    parser.add_argument("--digest", default="", help="The digest of the call that was looked at.")
    parser.add_argument("--note", default="", help="Kept with the decision; the run is told a denial's note.")
    parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")


def named_approval(said: str) -> Approval:
    return row_named(Approval.objects.select_related("session", "session__owner"), said, "approval", "approvals")


def row_named(rows: models.QuerySet[Row], said: str, what: str, listed_by: str) -> Row:
    """The one row whose public id begins so; a command that lists them is named where there is none, or more."""
    found = rows_by_id(rows, said.lower())
    if len(found) > 1:
        raise CommandError(f"More than one {what} begins with {said}: say more of its id.")
    if not found:
        least = f" (say {SHORTEST} characters of it, or more)" if len(said) < SHORTEST else ""
        raise CommandError(f"There is no {what} {said}{least}; `manage.py {listed_by}` lists what waits.")
    return found[0]


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
