"""notify: a notice for the session's owner, in the application and, where that is set up, by e-mail as a copy."""

from collections.abc import Mapping
from typing import Any

from agents.enums import NoticeKind
from agents.guard.context import CallContext
from agents.guard.params import text
from agents.people.notifications import notice_create


def notify(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    notice = notice_create(
        owner_id=context.owner_id,
        kind=NoticeKind.AGENT,
        title=text(params, "title"),
        body=text(params, "body", ""),
        now=context.now,
        session_id=context.session_pk,
    )
    return {"notification_id": str(notice.public_id)}
