"""What a handler is given: whose call it is, when, and a metered way to ask a model. Nothing else reaches it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from agents.conf import max_model_tries
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


listener: ContextVar[Callable[[Any], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(who: Callable[[Any], None] | None) -> Iterator[None]:
    """Inside the block, replies are heard as they come: names put back and secrets masked, and with one end."""
    token = listener.set(who)
    try:
        yield
    finally:
        listener.reset(token)


_tries: ContextVar[int | None] = ContextVar("tries", default=None)


@contextmanager
def persisting(tries: int) -> Iterator[None]:
    """Inside the block a model is asked so often at most before it counts as failed; never more than is set for all."""
    token = _tries.set(tries)
    try:
        yield
    finally:
        _tries.reset(token)


def most_tries() -> int:
    wanted = _tries.get()
    return max_model_tries() if wanted is None else min(wanted, max_model_tries())
