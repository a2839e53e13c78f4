"""The fast path that tells what waits for the person: calls that need a decision, and what agents ask. It writes
nothing, and so tells no words of what others are asked."""

from typing import Any, Final

from django.db.models import QuerySet

from agents.ask.intents import QUESTIONS
from agents.ask.language import Request
from agents.ask.naming import Answer, Asker, heading, told
from agents.enums import ApprovalStatus, QuestionStatus
from agents.models import Approval, Question
from agents.sessions.standing import PERMISSION
from agents.text.clean import one_line

SHOWN: Final = 20
_WORDS_CHARS: Final = 80
_DECIDE: Final = " `approve <id>` shows one and how to decide on it."
_ANSWER: Final = ' Answer on the page Questions of the admin, or with `manage.py answer <id> "…" --user NAME`.'


def reachable_approvals(who: Asker) -> QuerySet[Approval]:
    """Those of the person's own sessions; who may decide on approvals reaches everybody's."""
    rows = Approval.objects.select_related("session", "session__owner").order_by("created_at", "pk")
    return rows if who.by.has_perm(PERMISSION) else rows.filter(session__owner=who.by)


def pending_approvals(who: Asker) -> QuerySet[Approval]:
    return reachable_approvals(who).filter(status=ApprovalStatus.PENDING)


def pending_questions(who: Asker) -> QuerySet[Question]:
    """What the person may answer: the same reach."""
    rows = Question.objects.filter(status=QuestionStatus.PENDING).select_related("session", "session__owner")
    rows = rows.order_by("asked_at", "pk")
    return rows if who.by.has_perm(PERMISSION) else rows.filter(session__owner=who.by)


def waiting(request: Request, who: Asker) -> Answer | None:
    """Both, each with how it is dealt with; of the one that nothing is there of, nothing is said. In a chat,
    `any questions?` is said to the agent: None."""
    if who.in_chat and request.said & QUESTIONS:
        return None
    calls, asked = pending_approvals(who), pending_questions(who)
    count, questions = calls.count(), asked.count()
    approvals = [described_approval(row) for row in calls[:SHOWN]]
    shown = [_described_question(row, who) for row in asked[:SHOWN]]
    heads = [
        *([heading(count, "call", " waiting for a decision", most=SHOWN) + _DECIDE] if count else []),
        *([heading(questions, "question", " waiting for an answer", most=SHOWN) + _ANSWER] if questions else []),
    ]
    said = [*map(said_of_approval, approvals), *map(_said_of_question, shown)]
    text = "\n".join([" ".join(heads), *(f"- {line}" for line in said)]) if heads else "Nothing waits for a decision."
    return told(text, count=count, approvals=approvals, questions_count=questions, questions=shown)


def described_approval(row: Approval) -> dict[str, Any]:
    """As the list of the API shows it: without arguments."""
    return {
        "id": str(row.public_id),
        "action": row.action,
        "level": row.level,
        "risk": row.risk_level,
        "session": str(row.session.public_id),
        "owner": row.session.owner.get_username(),
        "expires_at": row.expires_at.isoformat(),
    }


def said_of_approval(shown: dict[str, Any]) -> str:
    return f"{shown['id'][:8]} {shown['action']} (level {shown['level']}) for {shown['owner']}"


def _described_question(row: Question, who: Asker) -> dict[str, Any]:
    own = row.session.owner_id == who.by.pk
    return {
        "id": str(row.public_id),
        "text": one_line(row.text, _WORDS_CHARS) if own else "",
        "session": str(row.session.public_id),
        "owner": row.session.owner.get_username(),
        "expires_at": row.expires_at.isoformat(),
    }


def _said_of_question(shown: dict[str, Any]) -> str:
    return f"{shown['id'][:8]} asks {shown['owner']}" + (f": {shown['text']}" if shown["text"] else "")
