"""Questions of agents to people: asked once, answered once, or expired; and reminders.

The session waits meanwhile. Reminders cover approvals too.
"""

from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from agents.enums import NoticeKind, QuestionStatus
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.models import AgentSession, Approval, Question
from agents.people.access import actor_of
from agents.people.notifications import ABOUT_QUESTIONS, notification_create, notifications_settle
from agents.sessions.approvals import PERMISSION, notify_approvers, notify_of_call
from agents.sessions.lifecycle import Ticket, each_under_lock, session_lock, session_wake
from audit import recorder
from audit.receipts import label_of
from audit.redaction import redact

# --- Ends ---


def question_end(question: Question, status: QuestionStatus, *, now: datetime, actor: str, **changed: Any) -> bool:
    """End a pending question. Return False if it has ended before. The caller holds its session's row."""
    if not Question.objects.filter(pk=question.pk, status=QuestionStatus.PENDING).update(status=status, **changed):
        return False
    details = {"question_id": str(question.public_id), "status": str(status)}
    recorder.append(question.session.chain, "question.closed", now=now, actor=actor, details=details)
    notifications_settle(question.session_id, ABOUT_QUESTIONS, now=now)
    return True


def questions_open(session: AgentSession) -> QuerySet[Question]:
    return Question.objects.filter(session=session, status=QuestionStatus.PENDING)


def questions_cancel(session: AgentSession, *, now: datetime, actor: str) -> None:
    """Cancel the session's open questions. The caller holds the session's row."""
    for question in questions_open(session).select_related("session"):
        question_end(question, QuestionStatus.CANCELLED, now=now, actor=actor)


MAX_CHARS = 4_000
AT_ONCE = 200


def question_ask(session: AgentSession, *, key: str, text: str, now: datetime) -> Question:
    """Ask at this place of the run, or return the open question with the same words.

    Runs inside the transaction of the call that asks, which holds the session's row.
    """
    words = redact(text)
    equal = Q(text=words, status=QuestionStatus.PENDING)
    known = Question.objects.filter(Q(call_key=key) | equal, session=session).first()
    if known is not None:
        return known
    question = Question.objects.create(
        session=session, call_key=key, text=words, asked_at=now, expires_at=now + settings.LQOPS_APPROVAL_LIFETIME
    )
    recorder.append(session.chain, "question.asked", now=now, details={"question_id": str(question.public_id)})
    notify_question(question, "A run asks you something", now=now)
    return question


def notify_question(question: Question, title: str, *, now: datetime) -> None:
    """Notify the run's owner, with the words of the question."""
    notification_create(
        owner_id=question.session.owner_id,
        kind=NoticeKind.QUESTION_WAITING,
        title=title,
        body=question.text,
        session_id=question.session_id,
        now=now,
    )


def may_answer(session: AgentSession, by: User) -> bool:
    """Return whether this person may answer: the run's owner, or somebody who decides on approvals."""
    return by.is_active and (session.owner_id == by.pk or by.has_perm(PERMISSION))


@transaction.atomic
def question_answer(question: Question, *, answer: str, by: User, now: datetime) -> Question:
    """Answer, and let the run go on."""
    session = session_lock(question.session_id)
    if not may_answer(session, by):
        raise NotAllowed(f"{by} may not answer this question: it is for the run's owner and for approvers.")
    text = redact(answer).strip()
    if not text or len(text) > MAX_CHARS:
        raise Invalid(f"An answer has 1 to {MAX_CHARS} characters; this one has {len(text)}.")
    given = {"answer": text, "answered_by": by, "answered_at": now}
    in_time = now < question.expires_at
    answered = QuestionStatus.ANSWERED
    if not in_time or not question_end(question, answered, now=now, actor=actor_of(by), **given):
        raise InvalidTransition("The question has been answered, has expired, or its run is over.")
    session_wake(session.pk, now=now)
    question.refresh_from_db()
    return question


def questions_expire(now: datetime) -> int:
    """End questions that nobody answered in time; the run goes on and learns of it."""
    due = Question.objects.filter(status=QuestionStatus.PENDING, expires_at__lte=now).select_related("session")
    return each_under_lock(due.order_by("expires_at", "pk")[:AT_ONCE], _expire, now=now)


def _expire(question: Question, now: datetime) -> bool:
    expired = question_end(question, QuestionStatus.EXPIRED, now=now, actor="system")
    if expired:
        notify_question(question, "Nobody answered in time: the run goes on without an answer", now=now)
        session_wake(question.session_id, now=now)
    return expired


# --- Reminders: after a quarter and after three quarters of the time ---
#
# Approvals remind those who may decide; questions remind the run's owner. Each reminder is sent once; only one if both
# became due since the last time.


AFTER = (Fraction(1, 4), Fraction(3, 4))


def approvals_remind(now: datetime) -> int:
    """Send reminders of pending approvals."""
    return each_under_lock(_to_remind(Approval.objects.all(), now), _remind, now=now)


def approvals_escalate(now: datetime) -> int:
    """Tell the role LQOPS_ESCALATE_TO, once, of each approval that nobody has decided for too long."""
    if not settings.LQOPS_ESCALATE_TO:
        return 0
    late = Approval.objects.filter(created_at__lte=now - settings.LQOPS_ESCALATE_AFTER, **_NOT_ESCALATED)
    due = late.filter(expires_at__gt=now).select_related("session").order_by("pk")
    return each_under_lock(due[:AT_ONCE], _escalate, now=now)


_NOT_ESCALATED: Final = {"status": QuestionStatus.PENDING, "escalated_at__isnull": True}


def _escalate(row: Approval, now: datetime) -> bool:
    if not Approval.objects.filter(pk=row.pk, **_NOT_ESCALATED).update(escalated_at=now):
        return False
    role = settings.LQOPS_ESCALATE_TO
    people = list(User.objects.filter(is_active=True, groups__name=role).order_by("pk"))
    title = f"Nobody has decided yet: {label_of('action', row.action)}"
    notify_of_call(row, people, kind=NoticeKind.APPROVAL_ESCALATED, title=title, now=now)
    details = {"approval_id": str(row.public_id), "digest": row.digest, "role": role, "people": len(people)}
    subject = f"approval:{row.public_id}"
    recorder.append(row.session.chain, "approval.escalated", now=now, subject=subject, details=details)
    return True


def questions_remind(now: datetime) -> int:
    """Send reminders of open questions."""
    return each_under_lock(_to_remind(Question.objects.all(), now), _remind, now=now)


def _to_remind(rows: QuerySet[Ticket], now: datetime) -> list[Ticket]:
    waiting = rows.filter(status=QuestionStatus.PENDING, expires_at__gt=now, reminders_sent__lt=len(AFTER))
    return [row for row in waiting.select_related("session").order_by("pk") if _reminder_due(row, now)]


def _reminder_due(row: Approval | Question, now: datetime) -> int:
    """Return the number of the reminder that is due and unsent; 0 if there is none."""
    begun_at = row.created_at if isinstance(row, Approval) else row.asked_at
    lifetime = row.expires_at - begun_at
    passed = sum(now - begun_at >= lifetime * part.numerator / part.denominator for part in AFTER)
    return passed if passed > row.reminders_sent else 0


def _remind(row: Approval | Question, now: datetime) -> bool:
    """Count the reminder, write the notifications and the audit row together."""
    reminder = _reminder_due(row, now)
    same = type(row).objects.filter(pk=row.pk, status=QuestionStatus.PENDING)
    if not same.filter(reminders_sent=row.reminders_sent).update(reminders_sent=reminder):
        return False
    if isinstance(row, Approval):
        notify_approvers(row, now=now)
        details = {"approval_id": str(row.public_id), "digest": row.digest, "reminder": reminder}
        subject = f"approval:{row.public_id}"
        recorder.append(row.session.chain, "approval.reminded", now=now, subject=subject, details=details)
    else:
        notify_question(row, f"A run waits for your answer until {row.expires_at:%-d %B, %H:%M} UTC", now=now)
        details = {"question_id": str(row.public_id), "reminder": reminder}
        recorder.append(row.session.chain, "question.reminded", now=now, details=details)
    return True
