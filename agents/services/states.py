"""An agent's own state: the fields that its session declares, and what the agent last wrote into them."""

import json
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from agents.exceptions import Invalid
from agents.services.sessions import session_lock

NAME_CHARS: Final = 64
VALUE_BYTES: Final = 4_096


@transaction.atomic
def session_set_state(session_pk: int, *, name: str, value: Any, now: datetime) -> dict[str, Any]:
    """Writes one declared field, and gives back the whole state. `params["state_fields"]` names what is declared."""
    row = session_lock(session_pk)
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
