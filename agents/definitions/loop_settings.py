"""How a run of steps is set: the installation's words, then its agent's, then its trigger's. The narrowest wins.

What a trigger says was copied to the session when it was spawned; an agent's definition is read as it is now.
"""

from collections.abc import Mapping
from typing import Any

from agents.conf import guardrails_defaults, loop_defaults
from agents.definitions.in_force import definition_of
from agents.enums import AnalysisMode
from agents.models import Agent, AgentSession
from agents.policy.guardrails import GuardrailsConfig, LoopConfig


def loop_of(session: AgentSession, **unless_said: Any) -> LoopConfig:
    """How its steps run. What is `unless_said` holds where nobody has said otherwise."""
    return loop_for(session.agent, session.params, **unless_said)


def loop_for(agent: Agent | None, params: Mapping[str, Any], **unless_said: Any) -> LoopConfig:
    """The same, of a session that is about to be made."""
    defined = definition_of(agent).loop if agent else {}
    return LoopConfig.merged(unless_said, loop_defaults(), defined, params.get("loop") or {})


def walk_token_budget(agent: Agent | None, params: Mapping[str, Any]) -> int:
    """The token budget of a walk that is about to be made: of one that thinks in steps. 0 is no limit."""
    return loop_for(agent, params).token_budget if params.get("analysis_mode") == AnalysisMode.AGENTIC else 0


def guardrails_of(session: AgentSession) -> GuardrailsConfig:
    defined = definition_of(session.agent).guardrails if session.agent else {}
    return GuardrailsConfig.merged(guardrails_defaults(), defined, session.params.get("guardrails") or {})
