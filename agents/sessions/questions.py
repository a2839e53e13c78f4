"""Questions that agents put to people: asked once, answered once, or expired. The session waits meanwhile."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from fractions import Fraction
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agents.conf import approval_lifetime
from agents.enums import ApprovalStatus, NoticeKind, QuestionStatus
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.models import AgentSession, Approval, Question
from agents.people.access import actor_of
from agents.people.notifications import notice_create
from agents.sessions.lifecycle import session_lock, session_wake
from agents.sessions.standing import PERMISSION, approvers_tell
from audit import recorder
from audit.redaction import redact

logger = logging.getLogger(__name__)


# --- How questions end, as rows: each of them once, by one conditional UPDATE, and on record ---


def question_end(
    question: Question, status: QuestionStatus, *, now: datetime, actor: str, key_id: str = "", **changed: Any
) -> bool:
    """Ends a pending question. False if it has ended before. The caller holds its session's row."""
    if not Question.objects.filter(pk=question.pk, status=QuestionStatus.PENDING).update(status=status, **changed):
        return False
    details = {"question_id": str(question.public_id), "status": str(status)} | ({"key_id": key_id} if key_id else {})
    recorder.append(question.session.chain, "question.closed", now=now, actor=actor, details=details)
    return True


def questions_cancel(session: AgentSession, *, now: datetime, actor: str) -> None:
    """Withdraws what a session has asked and nobody has answered. The caller holds the session's row."""
    for question in Question.objects.filter(session=session, status=QuestionStatus.PENDING).select_related("session"):
        question_end(question, QuestionStatus.CANCELLED, now=now, actor=actor)


MAX_CHARS = 4_000
AT_ONCE = 200


def question_ask(session: AgentSession, *, key: str, text: str, now: datetime) -> Question:
    """The question at this place of the run, or the one in the same words that is still open; asked again it is the
    same one. Inside the block of the asking call, which holds the session's row."""
    words = redact(text)
    equal = Q(text=words, status=QuestionStatus.PENDING)
    known = Question.objects.filter(Q(call_key=key) | equal, session=session).first()
    if known is not None:
        return known
    question = Question.objects.create(
        session=session, call_key=key, text=words, asked_at=now, expires_at=now + approval_lifetime()
    )
    recorder.append(session.chain, "question.asked", now=now, details={"question_id": str(question.public_id)})
    question_tell(question, "A run asks you something", now=now)
    return question


def question_tell(question: Question, title: str, *, now: datetime) -> None:
    """A notice for the person that the run works for, with the words of the question."""
    notice_create(
        owner_id=question.session.owner_id,
        kind=NoticeKind.QUESTION_WAITING,
        title=title,
        body=question.text,
        session_id=question.session_id,
        now=now,
    )


def may_answer(session: AgentSession, by: User) -> bool:
    """The owner of a run may answer what it asks, and so may whoever decides about calls."""
    return by.is_active and (session.owner_id == by.pk or by.has_perm(PERMISSION))


@transaction.atomic
def question_answer(question: Question, *, answer: str, by: User, now: datetime, key_id: str = "") -> Question:
    """Somebody answers, and the run goes on. `key_id` names the API key that spoke for the person."""
    session = session_lock(question.session_id)
    if not may_answer(session, by):
        raise NotAllowed(f"{by} may not answer this question: it is for the run's owner and for approvers.")
    said = redact(answer).strip()
    if not said or len(said) > MAX_CHARS:
        raise Invalid(f"An answer has 1 to {MAX_CHARS} characters; this one has {len(said)}.")
    given = {"answer": said, "answered_by": by, "answered_at": now}
    in_time = now < question.expires_at
    answered = QuestionStatus.ANSWERED
    if not in_time or not question_end(question, answered, now=now, actor=actor_of(by), key_id=key_id, **given):
        raise InvalidTransition("The question has been answered, has expired, or its run is over.")
    session_wake(session.pk, now=now)
    question.refresh_from_db()
    return question


def questions_expire(now: datetime) -> int:
    """Ends what nobody answered in time: the run goes on and is told so. One that cannot be ended keeps no other."""
    due = Question.objects.filter(status=QuestionStatus.PENDING, expires_at__lte=now).select_related("session")
    return sum(_try_to_expire(question, now=now) for question in due.order_by("expires_at", "pk")[:AT_ONCE])


def _try_to_expire(question: Question, *, now: datetime) -> bool:
    try:
        return _expire(question, now=now)
    except Exception:  # whatever it was, the other questions are ended
        logger.exception("question %s could not be ended; it is tried again", question.public_id)
        return False


@transaction.atomic
def _expire(question: Question, *, now: datetime) -> bool:
    session_lock(question.session_id)
    expired = question_end(question, QuestionStatus.EXPIRED, now=now, actor="system")
    if expired:
        question_tell(question, "Nobody answered in time: the run goes on without an answer", now=now)
        session_wake(question.session_id, now=now)
    return expired


# --- Reminds people of what still waits for them: after a quarter of its time, and after three quarters ---
#
# A call that needs a decision is for those who may decide; a question of a run is for the person that it works for.


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
