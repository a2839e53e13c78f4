"""Names beside the ids of a receipt, as they are today: a courtesy of its page, and no part of the record.

Whoever may read the record need not be allowed to see what it speaks of: a name is told to the owner of the session,
and to those who may see the thing itself.
"""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin

from agents.models import AgentSession
from agents.sessions.reads import as_uuid, read_by


def receipt_names(receipt: Mapping[str, Any], user: AbstractBaseUser | AnonymousUser) -> dict[str, Any]:
    """The name of its agent and of its trigger, and the documents that it read."""
    public_id = as_uuid(receipt["session_id"])
    rows = AgentSession.objects.select_related("agent", "trigger")
    session = rows.filter(public_id=public_id).first() if public_id else None
    if session is None:
        return {}

    def may_see(thing: str) -> bool:
        return session.owner_id == user.pk or (isinstance(user, PermissionsMixin) and user.has_perm(f"agents.{thing}"))

    told: dict[str, Any] = {}
    if session.agent and may_see("view_agent"):
        told["agent_name"] = session.agent.name
    if session.trigger and may_see("view_trigger"):
        told["trigger_name"] = session.trigger.name
    if may_see("view_document"):
        read = read_by(session)
        told |= {"documents": read.documents, "more_documents": read.more}
    return told
