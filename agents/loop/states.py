"""An agent's own state: the fields that were declared for it, and what the agent last wrote into them.

In a loop these are the fields of its hot state; elsewhere those that the session names.
"""

import json
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from agents.definitions.in_force import definition_of
from agents.enums import HotSource, Mode
from agents.exceptions import Invalid
from agents.loop.state import hot_refusal, hot_write
from agents.models import AgentSession
from agents.sessions.lifecycle import session_lock

NAME_CHARS: Final = 64
VALUE_BYTES: Final = 4_096


@transaction.atomic
def session_set_state(session_pk: int, *, name: str, value: Any, now: datetime) -> dict[str, Any]:
    """Writes one declared field, and gives back the state. Outside of loops `params["state_fields"]` declares."""
    row = session_lock(session_pk)
    if row.mode == Mode.LOOP:
        return _set_hot(row, name=name, value=value, now=now)
    listed = row.params.get("state_fields")
    declared = [field for field in listed if isinstance(field, str)] if isinstance(listed, list) else []
    if name not in declared:
        known = f"declared are {', '.join(declared)}" if declared else "none is declared for this run"
        raise Invalid(f"There is no field {name[:NAME_CHARS]!r} of the state: {known}.")
    size = len(json.dumps(value, ensure_ascii=False).encode())
    if size > VALUE_BYTES:
        raise Invalid(f"The value of {name} is {size} bytes long; at most {VALUE_BYTES} are kept. Shorten it.")
    state: dict[str, Any] = {**row.metadata.get("state", {}), name: value}
    row.metadata["state"] = state
    row.metadata["state_set_at"] = {**row.metadata.get("state_set_at", {}), name: now.isoformat()}
    row.save(update_fields=["metadata"])
    return state


def _set_hot(row: AgentSession, *, name: str, value: Any, now: datetime) -> dict[str, Any]:
    if row.agent is None:
        raise Invalid("The agent of this run is gone, and its fields with it.")
    definition = definition_of(row.agent)
    if why := hot_refusal(definition, name, value):
        raise Invalid(why)
    hot_write(row, definition=definition, name=name, value=value, source=HotSource.AGENT, now=now)
    return {name: value}
