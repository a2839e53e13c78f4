"""Approval tickets as rows: used once, by one conditional UPDATE, or cancelled with their session."""

from datetime import datetime
from typing import Final

from agents.enums import ApprovalStatus
from agents.models import AgentSession, Approval
from audit import recorder

LIVE: Final = (ApprovalStatus.PENDING, ApprovalStatus.APPROVED)


def ticket_consume(approval: Approval, *, digest: str, now: datetime) -> bool:
    """Uses the ticket for this very call. True for exactly one caller, ever."""
    return (
        Approval.objects.filter(
            pk=approval.pk,
            status=ApprovalStatus.APPROVED,
            consumed_at__isnull=True,
            digest=digest,
            expires_at__gt=now,
        ).update(consumed_at=now)
        == 1
    )


def ticket_record(approval: Approval, *, call_id: str, now: datetime) -> None:
    """Says in the record which call used the ticket."""
    details = {"approval_id": str(approval.public_id), "digest": approval.digest, "call_id": call_id}
    recorder.append(str(approval.session.public_id), "approval.consumed", now=now, details=details)


def tickets_cancel(session: AgentSession, *, now: datetime, cause: str, actor: str) -> None:
    """Cancels what a session had asked for and not used. The caller holds the session's row."""
    live = Approval.objects.filter(session=session, status__in=LIVE, consumed_at__isnull=True)
    for approval in live:
        ticket_cancel(approval, now=now, cause=cause, actor=actor)


def ticket_cancel(approval: Approval, *, now: datetime, cause: str, actor: str) -> None:
    """Cancels one that was not used. The caller holds the session's row."""
    if Approval.objects.filter(pk=approval.pk, status=approval.status, consumed_at__isnull=True).update(
        status=ApprovalStatus.CANCELLED, resolved_at=now
    ):
        details = {"approval_id": str(approval.public_id), "digest": approval.digest, "cause": cause}
        recorder.append(approval.session.chain, "approval.cancelled", now=now, actor=actor, details=details)
