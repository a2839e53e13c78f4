"""Asking a person."""

from typing import Annotated, Any

from pydantic import Field

from agents.enums import Level
from agents.models import AgentSession
from agents.sessions.questions import MAX_CHARS, question_ask
from agents.skills.skill import SkillContext, skill


@skill(level=Level.SAFE, idempotent=True, local=True)
def ask_person(
    context: SkillContext,
    question: Annotated[str, Field(min_length=1, max_length=MAX_CHARS, description="One clear question.")],
) -> dict[str, Any]:
    """Asks the person this run works for, and waits for the answer. Ask only what you cannot find out yourself."""
    session = AgentSession.objects.get(pk=context.session_pk)
    key = context.idempotency_key.partition(":")[2]
    asked = question_ask(session, key=key, text=question, now=context.now)
    return {"question_id": str(asked.public_id)}
