"""The eight intents and how each is carried out. A handler never imports the guard or a provider.

`override` replaces tools inside one context (thread or task) only: a self-test can probe the guard in a process that is
at work without touching that work.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from agents.enums import Level, ToolIntent
from agents.exceptions import IntentUnavailable
from agents.guard.artifact import emit_artifact
from agents.guard.context import CallContext
from agents.guard.finding import emit_finding
from agents.guard.inference import ask, request_of
from agents.guard.memory import propose_memory
from agents.guard.notify import notify
from agents.guard.precedent import propose_precedent
from agents.guard.retrieve import retrieve_chunks
from agents.guard.skills import is_skill_call, skill_tool
from agents.guard.tools import Params, Tool
from agents.types import Capability


def _local(intent: ToolIntent, handler: Callable[[CallContext, Params], Any]) -> Tool:
    return Tool(handler, Capability(intent, level=Level.SAFE))


def _model(intent: ToolIntent) -> Tool:
    asked = Capability(intent, level=Level.MONITORED, side_effects=False)
    return Tool(ask, asked, remote=True, request=request_of)


_TOOLS: Mapping[ToolIntent, Tool] = MappingProxyType(
    {
        ToolIntent.RETRIEVE_CHUNKS: Tool(
            retrieve_chunks, Capability(ToolIntent.RETRIEVE_CHUNKS, level=Level.SAFE, side_effects=False)
        ),
        ToolIntent.RUN_SKILL: _model(ToolIntent.RUN_SKILL),
        ToolIntent.RUN_PLAYBOOK: _model(ToolIntent.RUN_PLAYBOOK),
        ToolIntent.PROPOSE_MEMORY: _local(ToolIntent.PROPOSE_MEMORY, propose_memory),
        ToolIntent.PROPOSE_PRECEDENT: _local(ToolIntent.PROPOSE_PRECEDENT, propose_precedent),
        ToolIntent.EMIT_FINDING: _local(ToolIntent.EMIT_FINDING, emit_finding),
        # It writes a file; one that is named by its digest, so writing it again is harmless.
        ToolIntent.EMIT_ARTIFACT: Tool(
            emit_artifact, Capability(ToolIntent.EMIT_ARTIFACT, level=Level.MONITORED, idempotent=True), remote=True
        ),
        ToolIntent.NOTIFY: _local(ToolIntent.NOTIFY, notify),
    }
)
_overrides: ContextVar[Mapping[ToolIntent, Tool]] = ContextVar("tool_overrides", default=MappingProxyType({}))


def tool_for(intent: ToolIntent, params: Params = MappingProxyType({})) -> Tool:
    """What carries the intent out. run_skill is a question to a model, or, where a skill is named, that skill."""
    tool = _overrides.get().get(intent)
    if tool is None and intent == ToolIntent.RUN_SKILL and is_skill_call(params):
        return skill_tool(params)
    tool = tool or _TOOLS.get(intent)
    if tool is None:
        raise IntentUnavailable(intent)
    return tool


@contextmanager
def override(tools: Mapping[ToolIntent, Tool]) -> Iterator[None]:
    token = _overrides.set({**_overrides.get(), **tools})
    try:
        yield
    finally:
        _overrides.reset(token)
