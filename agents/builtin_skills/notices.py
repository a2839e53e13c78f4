"""Telling the owner something: the notice that runs leave for the person they work for."""

from typing import Annotated, Any

from pydantic import Field

from agents.enums import Level, NoticeKind
from agents.people.notifications import BODY_CHARS, TITLE_CHARS, notice_create
from agents.skills.skill import SkillContext, skill


@skill(level=Level.MONITORED, idempotent=True, local=True)
def tell_owner(
    context: SkillContext,
    title: Annotated[str, Field(min_length=1, max_length=TITLE_CHARS, description="One line: what has happened.")],
    text: Annotated[str, Field(max_length=BODY_CHARS, description="Plain text: what there is to know.")] = "",
) -> dict[str, Any]:
    """Leaves a notice for the person this run works for, who may read it much later. Tell only what is worth it."""
    notice = notice_create(
        owner_id=context.owner_id,
        kind=NoticeKind.AGENT,
        title=title,
        body=text,
        now=context.now,
        session_id=context.session_pk,
    )
    return {"notification_id": str(notice.public_id)}
