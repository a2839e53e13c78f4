"""What a tool is: its declaration, the context its handler gets, and how parameters are read."""

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

# --- Context: all that a handler is given ---


# Asks the model that the guard has paid for, once; an optional listener gets the reply as it streams.
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
        """The same for every attempt at one call, so that a server that honours keys acts once."""
        return f"{self.session_id}:{self.key}"


listener: ContextVar[Callable[[Any], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(who: Callable[[Any], None] | None) -> Iterator[None]:
    """Stream replies to the listener inside the block: names put back, secrets masked."""
    token = listener.set(who)
    try:
        yield
    finally:
        listener.reset(token)


_tries: ContextVar[int | None] = ContextVar("tries", default=None)


@contextmanager
def persisting(tries: int) -> Iterator[None]:
    """Limit the attempts at a model inside the block; never above the installation's limit."""
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
    `refuse` is asked before an approval is requested: it says why there can be no call now. `admit` is asked last, in
    the transaction that authorises the call: it counts the call, or says why there is none.
    """

    handler: Callable[[CallContext, Params], Any]
    capability: Capability
    remote: bool = False
    request: Callable[[Params], ModelRequest] | None = None
    refuse: Callable[[datetime], str] | None = None
    admit: Callable[[datetime], str] | None = None
    is_skill: bool = False


# --- Parameters ---


class BadParams(ValueError):
    """A parameter is missing or of the wrong type."""


def text(params: Mapping[str, Any], name: str, default: str | None = None, *, limit: int = 100_000) -> str:
    value = params.get(name, default)
    if value is None:
        raise BadParams(f"{name!r} is missing.")
    if not isinstance(value, str):
        raise BadParams(f"{name!r} must be text, not {type(value).__name__}.")
    return value[:limit]


def label(params: Mapping[str, Any], name: str) -> str:
    """Read a label: letters, digits and . : / @ + - _, no spaces."""
    value = text(params, name)
    if not value or not LABEL.fullmatch(value):
        raise BadParams(f"{name!r} must be a name without spaces, at most 128 characters, not {value[:64]!r}.")
    return value
