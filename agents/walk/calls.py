"""How a phase acts: one guarded call at a fixed place of the run, asked again in the very words of the journal.

What went into a lost attempt may have changed since (notes, context, documents); the run is repeatable because the
stored arguments are used again, not because the world stood still.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.conf import clock, slice_lifetime
from agents.enums import Risk, ToolIntent
from agents.exceptions import LqopsError
from agents.guard import guarded_tool_call
from agents.models import AgentSession
from agents.selectors.runs import call_latest
from agents.types import ToolResult


class NotStored(LqopsError):
    """What the run has to say could not be written down. It fails, rather than end as if nothing had been found."""

    code = "not_stored"


@dataclass(frozen=True)
class Slice:
    """The piece of work at hand: the held session, and since when this worker has been at it."""

    session: AgentSession
    started_at: datetime

    @property
    def is_over(self) -> bool:
        return clock() - self.started_at >= slice_lifetime()

    @property
    def params(self) -> Mapping[str, Any]:
        return self.session.params or {}

    def param(self, name: str) -> str:
        """A text of the session's parameters; anything else counts as not given."""
        value = self.params.get(name)
        return value if isinstance(value, str) else ""

    def wants(self, name: str) -> bool:
        return self.params.get(name) is True


def call(
    session: AgentSession, intent: ToolIntent, key: str, params: Mapping[str, Any], *, risk: Risk | None = None
) -> ToolResult:
    """One guarded call: in the words of the journal if it holds this place already, else with these parameters."""
    return guarded_tool_call(session, intent, asked_before(session, key) or params, key=key, risk=risk)


def asked_before(session: AgentSession, key: str) -> Mapping[str, Any] | None:
    """The arguments of an earlier attempt. Not those that a person changed: they are not what was asked for."""
    made = call_latest(session, key)
    return made.arguments if made is not None and made.digest == made.asked_digest else None


def store(session: AgentSession, intent: ToolIntent, key: str, params: Mapping[str, Any]) -> None:
    """A call whose whole effect is a row of ours; there is no reason but a fault for it to fail."""
    result = call(session, intent, key, params)
    if not result.ok:
        raise NotStored(f"{intent} at {key} was not stored ({result.outcome}): {result.error}")
