"""Questions that agents put to people: asked once, answered once, or expired. The session waits meanwhile."""

import logging
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agents.conf import approval_lifetime
from agents.enums import NoticeKind, QuestionStatus
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.models import AgentSession, Question
from agents.people.actors import actor_of
from agents.people.notifications import notice_create
from agents.sessions.approvers import PERMISSION
from agents.sessions.lifecycle import session_lock, session_wake
from agents.sessions.question_ends import question_end
from audit import recorder
from audit.redaction import redact

logger = logging.getLogger(__name__)

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
