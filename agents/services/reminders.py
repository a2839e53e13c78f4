"""Reminds the people who may decide of a question that still waits: after a quarter of its time, and after three."""

import logging
from datetime import datetime
from fractions import Fraction

from django.db import transaction

from agents.enums import ApprovalStatus
from agents.models import Approval
from agents.services.approvers import approvers_tell
from agents.services.sessions import session_lock
from audit import recorder

logger = logging.getLogger(__name__)

AFTER = (Fraction(1, 4), Fraction(3, 4))


def approvals_remind(now: datetime) -> int:
    """Sends what is due; each reminder once, and one only when both have become due since the last look.

    One that cannot be sent keeps no other waiting.
    """
    waiting = Approval.objects.filter(
        status=ApprovalStatus.PENDING, expires_at__gt=now, reminders_sent__lt=len(AFTER)
    ).order_by("pk")
    return sum(_try_to_remind(approval, now=now) for approval in waiting if _reminders_due(approval, now))


def _try_to_remind(approval: Approval, *, now: datetime) -> bool:
    try:
        return _remind(approval, now=now)
    except Exception:  # whatever it was, the other reminders are sent
        logger.exception("nobody could be reminded of approval %s; it is tried again", approval.public_id)
        return False


def _reminders_due(approval: Approval, now: datetime) -> int:
    """The number of the reminder that should have been sent by now and was not; 0 when there is none."""
    lifetime = approval.expires_at - approval.created_at
    passed = sum(now - approval.created_at >= lifetime * part.numerator / part.denominator for part in AFTER)
    return passed if passed > approval.reminders_sent else 0


@transaction.atomic
def _remind(approval: Approval, *, now: datetime) -> bool:
    """The count on the ticket, the notices and the record go together, or not at all."""
    session = session_lock(approval.session_id)
    reminder = _reminders_due(approval, now)
    sent = Approval.objects.filter(
        pk=approval.pk, status=ApprovalStatus.PENDING, reminders_sent=approval.reminders_sent
    ).update(reminders_sent=reminder)
    if not sent:
        return False
    approvers_tell(approval, now=now)
    recorder.append(
        session.chain,
        "approval.reminded",
        now=now,
        subject=f"approval:{approval.public_id}",
        details={"approval_id": str(approval.public_id), "digest": approval.digest, "reminder": reminder},
    )
    return True
