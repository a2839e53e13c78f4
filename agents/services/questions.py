"""Questions that agents put to people: asked once, answered once, or expired. The session waits meanwhile."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from agents.conf import approval_lifetime
from agents.enums import NoticeKind, QuestionStatus
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.models import AgentSession, Question
from agents.services.actors import actor_of
from agents.services.approvers import PERMISSION
from agents.services.notifications import notice_create
from agents.services.sessions import session_lock, session_wake
from audit import recorder
from audit.redaction import redact

MAX_CHARS = 4_000


def question_ask(session: AgentSession, *, key: str, text: str, now: datetime) -> Question:
    """The question at this place of the run; asked again it is the same one. Inside the block of the asking call."""
    known = Question.objects.filter(session=session, call_key=key).first()
    if known is not None:
        return known
    question = Question.objects.create(
        session=session, call_key=key, text=redact(text), asked_at=now, expires_at=now + approval_lifetime()
    )
    recorder.append(session.chain, "question.asked", now=now, details={"question_id": str(question.public_id)})
    notice_create(
        owner_id=session.owner_id,
        kind=NoticeKind.QUESTION_WAITING,
        title="A run asks you something",
        body=question.text,
        session_id=session.pk,
        now=now,
    )
    return question


@transaction.atomic
def question_answer(question: Question, *, answer: str, by: User, now: datetime) -> Question:
    """Somebody answers, and the run goes on. The owner may, and whoever may decide about calls."""
    session = session_lock(question.session_id)
    if not by.is_active or (session.owner_id != by.pk and not by.has_perm(PERMISSION)):
        raise NotAllowed(f"{by} may not answer this question: it is for the run's owner and for approvers.")
    said = redact(answer).strip()
    if not said or len(said) > MAX_CHARS:
        raise Invalid(f"An answer has 1 to {MAX_CHARS} characters; this one has {len(said)}.")
    _close(question, QuestionStatus.ANSWERED, now=now, actor=actor_of(by), answer=said, answered_by=by, answered_at=now)
    session_wake(session.pk, now=now)
    question.refresh_from_db()
    return question


def questions_expire(now: datetime) -> int:
    """Questions that nobody answered in time: the run goes on and is told so."""
    due = Question.objects.filter(status=QuestionStatus.PENDING, expires_at__lte=now).order_by("expires_at")[:200]
    for question in due:
        with transaction.atomic():
            session_lock(question.session_id)
            try:
                _close(question, QuestionStatus.EXPIRED, now=now, actor="system")
            except InvalidTransition:
                continue  # answered meanwhile
            session_wake(question.session_id, now=now)
    return len(due)


def _close(question: Question, status: QuestionStatus, *, now: datetime, actor: str, **changed: object) -> None:
    open_ = Question.objects.filter(pk=question.pk, status=QuestionStatus.PENDING)
    if not open_.update(status=status, **changed):
        raise InvalidTransition("The question has been answered, has expired, or its run is over.")
    details = {"question_id": str(question.public_id), "status": str(status)}
    recorder.append(question.session.chain, "question.closed", now=now, actor=actor, details=details)
