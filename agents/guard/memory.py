"""propose_memory: suggests a note; only a person keeps it."""

from collections.abc import Mapping
from typing import Any

from agents.guard.context import CallContext
from agents.guard.params import text
from agents.models import Memory


def propose_memory(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    memory = Memory.objects.create(
        owner_id=context.owner_id,
        session_id=context.session_pk,
        content=text(params, "content"),
        created_at=context.now,
    )
    return {"memory_id": str(memory.public_id)}
