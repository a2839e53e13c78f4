"""A guarded call at a fixed place of a run, asked again in the very words of the journal.

What went into a lost attempt may have changed since (notes, context, documents); the run is repeatable because the
stored arguments are used again, not because the world stood still.
"""

from collections.abc import Mapping
from typing import Any

from agents.enums import Risk, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import AgentSession
from agents.sessions.reads import arguments_asked
from agents.types import ToolResult


def call(
    session: AgentSession, intent: ToolIntent, key: str, params: Mapping[str, Any], *, risk: Risk | None = None
) -> ToolResult:
    """One guarded call: in the words of the journal if it holds this place already, else with these parameters."""
    return guarded_tool_call(session, intent, asked_before(session, key) or params, key=key, risk=risk)


def asked_before(session: AgentSession, key: str) -> Mapping[str, Any] | None:
    """The arguments of an earlier attempt. Not those that a person changed: they are not what was asked for."""
    return arguments_asked(session, key)
