"""emit_artifact: saves what a run wrote as a document in its owner's collection, as Markdown.

It tells no watch and is never new to a schedule, so no run can wake itself. The bytes go to disk under their digest
before any row, so the call may be repeated: the same text is the same document. Without a collection nothing is saved,
and the answer says so: `stored` false, with the `reason` `no_collection`. A disk that fails leaves no row, and the call
ends as `storage_error`.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from agents.guard.context import CallContext
from agents.guard.params import BadParams, text
from agents.knowledge.documents import artifact_add
from agents.knowledge.search import collection_of
from agents.models import AgentSession

MAX_CHARS = 1_000_000


def emit_artifact(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    content = text(params, "content", limit=MAX_CHARS + 1)
    is_truncated, content = len(content) > MAX_CHARS, content[:MAX_CHARS]
    if not content.strip():
        raise BadParams("'content' is empty: there is nothing to save.")
    if params.get("collection") is None:
        return {"stored": False, "reason": "no_collection", "truncated": is_truncated}
    collection = collection_of(owner_id=context.owner_id, public_id=_id(params))
    session = AgentSession.objects.get(pk=context.session_pk, owner_id=context.owner_id)
    name = text(params, "name", "draft", limit=1_000)
    document, is_new = artifact_add(session=session, collection=collection, name=name, content=content, now=context.now)
    return {
        "stored": True,
        "document_id": str(document.public_id),
        "collection_id": str(collection.public_id),
        "name": document.name,
        "chars": len(content),
        "truncated": is_truncated,
        "is_new": is_new,
    }


def _id(params: Mapping[str, Any]) -> UUID:
    value = text(params, "collection", limit=64)
    try:
        return UUID(value)
    except ValueError:
        raise BadParams(f"'collection' must be a public id, not {value!r}.") from None
