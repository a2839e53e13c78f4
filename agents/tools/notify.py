"""notify: an in-app notice for the session's owner. The row is the record."""

from collections.abc import Mapping
from typing import Any

from agents.models import Notification
from agents.tools.context import CallContext
from agents.tools.params import text


def notify(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    notice = Notification.objects.create(
        owner_id=context.owner_id,
        session_id=context.session_pk,
        title=text(params, "title", limit=200),
        body=text(params, "body", ""),
        created_at=context.now,
    )
    return {"notification_id": str(notice.public_id)}
