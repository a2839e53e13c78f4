"""Reminds people of what still waits for them: after a quarter of its time, and after three quarters.

A call that needs a decision is for those who may decide; a question of a run is for the person that it works for.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from fractions import Fraction
from typing import TypeVar

from django.db import transaction

from agents.enums import ApprovalStatus, QuestionStatus
from agents.models import Approval, Question
from agents.sessions.approvers import approvers_tell
from agents.sessions.lifecycle import session_lock
from agents.sessions.questions import question_tell
from audit import recorder

logger = logging.getLogger(__name__)

AFTER = (Fraction(1, 4), Fraction(3, 4))
Waiting = TypeVar("Waiting", Approval, Question)


def approvals_remind(now: datetime) -> int:
    """Sends what is due; each reminder once, and one only when both have become due since the last look.

    One that cannot be sent keeps no other waiting.
    """
    waiting = Approval.objects.filter(
        status=ApprovalStatus.PENDING, expires_at__gt=now, reminders_sent__lt=len(AFTER)
    ).order_by("pk")
    return _remind_each(waiting, _remind, now)


def questions_remind(now: datetime) -> int:
    """The same for what runs have asked."""
    waiting = Question.objects.filter(
        status=QuestionStatus.PENDING, expires_at__gt=now, reminders_sent__lt=len(AFTER)
    ).select_related("session")
    return _remind_each(waiting.order_by("pk"), _remind_of_question, now)


def _remind_each(waiting: Iterable[Waiting], remind: Callable[[Waiting, datetime], bool], now: datetime) -> int:
    sent = 0
    for row in waiting:
        if not _reminders_due(row, now):
            continue
        try:
            sent += remind(row, now)
        except Exception:  # whatever it was, the other reminders are sent
            kind = row._meta.verbose_name
            logger.exception("nobody could be reminded of %s %s; it is tried again", kind, row.public_id)
    return sent


def _reminders_due(row: Approval | Question, now: datetime) -> int:
    """The number of the reminder that should have been sent by now and was not; 0 when there is none."""
    begun_at = row.created_at if isinstance(row, Approval) else row.asked_at
    lifetime = row.expires_at - begun_at
    passed = sum(now - begun_at >= lifetime * part.numerator / part.denominator for part in AFTER)
    return passed if passed > row.reminders_sent else 0


@transaction.atomic
def _remind(approval: Approval, now: datetime) -> bool:
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


@transaction.atomic
def _remind_of_question(question: Question, now: datetime) -> bool:
    session = session_lock(question.session_id)
    reminder = _reminders_due(question, now)
    sent = Question.objects.filter(
        pk=question.pk, status=QuestionStatus.PENDING, reminders_sent=question.reminders_sent
    ).update(reminders_sent=reminder)
    if not sent:
        return False
    question_tell(question, f"A run waits for your answer until {question.expires_at:%-d %B, %H:%M} UTC", now=now)
    details = {"question_id": str(question.public_id), "reminder": reminder}
    recorder.append(session.chain, "question.reminded", now=now, details=details)
    return True
