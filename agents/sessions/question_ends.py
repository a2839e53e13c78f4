"""How questions end, as rows: each of them once, by one conditional UPDATE, and on record."""

from datetime import datetime
from typing import Any

from agents.enums import QuestionStatus
from agents.models import AgentSession, Question
from audit import recorder


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
