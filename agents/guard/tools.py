"""How an intent, or a skill, is carried out; the guard, the approver and the journal go by it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from agents.conf import max_model_tries
from agents.types import Capability, ModelReply, ModelRequest
from audit.kinds import LABEL

# What a handler is given: whose call it is, when, and a metered way to ask a model. Nothing else reaches it.


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


Params = Mapping[str, Any]


@dataclass(frozen=True)
class Tool:
    """A handler and what it declares.

    A local tool's whole effect is rows of ours: authorise, effect and settle are one transaction. A remote tool does
    I/O: it is authorised, dispatched and settled with no transaction open in between. `request` makes it a priced call.
    `refuse` is asked before a person is: it says why there can be no call now. `admit` is asked last, in the block that
    authorises the call: it counts the call, or says why there is none.
    """

    handler: Callable[[CallContext, Params], Any]
    capability: Capability
    remote: bool = False
    request: Callable[[Params], ModelRequest] | None = None
    refuse: Callable[[datetime], str] | None = None
    admit: Callable[[datetime], str] | None = None
    is_skill: bool = False


# --- Reads a handler's parameters: a wrong one is a clear error before anything is written ---


class BadParams(ValueError):
    """A parameter is missing or of the wrong kind."""


def text(params: Mapping[str, Any], name: str, default: str | None = None, *, limit: int = 100_000) -> str:
    value = params.get(name, default)
    if value is None:
        raise BadParams(f"{name!r} is missing.")
    if not isinstance(value, str):
        raise BadParams(f"{name!r} must be text, not {type(value).__name__}.")
    return value[:limit]


def label(params: Mapping[str, Any], name: str) -> str:
    """A name that can stand in the record: letters, digits and . : / @ + - _, no spaces."""
    value = text(params, name)
    if not value or not LABEL.fullmatch(value):
        raise BadParams(f"{name!r} must be a name without spaces, at most 128 characters, not {value[:64]!r}.")
    return value
