"""What a handler is given: whose call it is, when, and a metered way to ask a model. Nothing else reaches it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from agents.types import ModelReply

# Asks the model that the guard has paid for, once; a listener may be given to hear the reply as it comes.
Infer = Callable[..., ModelReply]


@dataclass(frozen=True)
class CallContext:
    session_pk: int
    session_id: UUID
    owner_id: int
    call_id: UUID
    key: str
    now: datetime
    infer: Infer

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at one call, so that a server that knows keys acts once."""
        return f"{self.session_id}:{self.key}"
