"""Tools: their declaration, the context of their calls, and how parameters are read."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings

from agents.skills.skill import SkillContext
from agents.types import Capability, ModelRequest, SkillPace
from audit.kinds import LABEL

# --- Context of a call ---


T = TypeVar("T")
listener: ContextVar[Callable[[Any], None] | None] = ContextVar("listener", default=None)
_seconds: ContextVar[float | None] = ContextVar("seconds", default=None)
_tries: ContextVar[int | None] = ContextVar("tries", default=None)


@contextmanager
def set_within(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable inside the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def listening(who: Callable[[Any], None] | None) -> AbstractContextManager[None]:
    """Stream replies to the listener inside the block: names put back, secrets masked."""
    return set_within(listener, who)


def persisting(tries: int) -> AbstractContextManager[None]:
    """Limit the attempts at a model inside the block; never above the installation's limit."""
    return set_within(_tries, tries)


def most_tries() -> int:
    wanted = _tries.get()
    most = int(settings.LQOPS_MODEL_TRIES)
    return most if wanted is None else min(wanted, most)


def limited_to(seconds: float) -> AbstractContextManager[None]:
    """Limit the time of each call of a model inside the block; never above what the model declares."""
    return set_within(_seconds, seconds)


def call_limit(seconds: float) -> float | None:
    """Return the limit of the block, if it is the shorter one."""
    wanted = _seconds.get()
    return wanted if wanted is not None and wanted < seconds else None


Params = Mapping[str, Any]


@dataclass(frozen=True)
class Tool:
    """A handler and what it declares.

    A local tool's whole effect is rows of ours: authorise, effect and settle are one transaction. A remote tool does
    I/O: it is authorised, dispatched and settled with no transaction open in between. `request` makes it a priced call.
    `pace` is that of a skill: it is asked before an approval is requested, and the call is counted last, in the
    transaction that authorises it. `together` is entered around several calls that are made in one block, so that
    their rows can be written at once: the other calls of that block do not see them.

    `undoable` is a local tool of our own that leaves nothing if its transaction is undone and adds no audit event: it
    runs first, and one statement judges it and writes both its events, or all of it is undone.
    """

    handler: Callable[[SkillContext, Params], Any]
    capability: Capability
    remote: bool = False
    request: Callable[[Params], ModelRequest] | None = None
    pace: SkillPace | None = None
    is_skill: bool = False
    together: Callable[[], AbstractContextManager[None]] | None = None
    undoable: bool = False


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


def public_id(params: Mapping[str, Any], name: str) -> UUID:
    value = text(params, name, limit=64)
    try:
        return UUID(value)
    except ValueError:
        raise BadParams(f"{name!r} must be a public id, not {value!r}.") from None
