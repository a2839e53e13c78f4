"""What sessions are for, in a few words, for many sessions at once: a fixed number of statements."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from agents.models import AgentSession, Collection, Document, Playbook


def purposes(sessions: Sequence[AgentSession]) -> dict[int, str]:
    """By primary key: what is checked, by what, and what asked for it."""
    playbooks = _names(Playbook, (session.params.get("playbook") for session in sessions))
    documents = _names(Document, (session.params.get("document") for session in sessions))
    collections = _names(Collection, (session.params.get("collection") for session in sessions))
    return {session.pk: _purpose(session, playbooks, documents, collections) for session in sessions}


def _purpose(
    session: AgentSession, playbooks: dict[str, str], documents: dict[str, str], collections: dict[str, str]
) -> str:
    given = session.params
    read = documents.get(str(given.get("document"))) or collections.get(str(given.get("collection")))
    if read is None and given.get("query"):
        read = f"“{given['query']}”"
    by = given.get("skill") or playbooks.get(str(given.get("playbook")))
    if read and by:
        return f"{read} by {by}"
    return str(read or by or (session.trigger.name if session.trigger else f"{session.mode} run"))


def _names(model: Any, public_ids: Iterable[object]) -> dict[str, str]:
    wanted = {found for given in public_ids if (found := _uuid(given)) is not None}
    if not wanted:
        return {}
    rows = model._meta.default_manager.filter(public_id__in=wanted).values_list("public_id", "name")
    return {str(public_id): name for public_id, name in rows}


def _uuid(given: object) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(given))
    except ValueError:
        return None
