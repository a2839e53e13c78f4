"""Reads stale fields anew before a turn, through the guard. A field that cannot be read keeps what it had.

Only skills that change nothing, and that nobody has to be asked about, refresh by themselves.
"""

import logging
from collections.abc import Sequence
from typing import Any

from agents.conf import clock, skill_hosts
from agents.definitions.schema import AgentDefinition, FieldSpec
from agents.engine.calls import call
from agents.enums import ApprovalMode, HotSource, ToolIntent
from agents.exceptions import RetryLater
from agents.guard.params import BadParams
from agents.loop.state import FieldView, hot_write
from agents.models import AgentSession, Turn
from agents.policy.consent import needs_person
from agents.skills.registry import skill_named, skill_standing
from agents.skills.risk import level_for
from agents.skills.skill import BadArguments
from agents.types import ToolResult

logger = logging.getLogger(__name__)


def stale(definition: AgentDefinition, views: Sequence[FieldView]) -> dict[str, FieldSpec]:
    """The fields that have gone stale and are read anew by themselves."""
    fields = definition.hot_state.fields
    return {view.name: fields[view.name] for view in views if view.stale and fields[view.name].refreshes}


def refresh(session: AgentSession, turn: Turn, definition: AgentDefinition, views: Sequence[FieldView]) -> list[str]:
    """The names of the fields that were read anew."""
    return [
        name
        for name, spec in stale(definition, views).items()
        if _read(session, definition, name, spec, key=f"turn:{turn.number}:fresh:{name}")
    ]


def _read(session: AgentSession, definition: AgentDefinition, name: str, spec: FieldSpec, *, key: str) -> bool:
    tool = spec.refresh_tool or ""
    try:
        told = _asked(session, tool, spec.refresh_params, key=key)
    except (BadParams, BadArguments, RetryLater) as error:
        told = str(error)
    if isinstance(told, str) or not told.ok:
        why = told if isinstance(told, str) else told.error
        logger.warning("%s of session %s stays as it is: %s", name, session.public_id, why)
        return False
    return hot_write(
        session,
        definition=definition,
        name=name,
        value=told.data,
        source=HotSource.REFRESH,
        source_name=tool,
        now=clock(),
    )


def _asked(session: AgentSession, tool: str, params: dict[str, Any], *, key: str) -> ToolResult | str:
    skill = skill_named(tool)
    if skill is None:
        return f"the skill {tool} is not found"
    arguments = skill.arguments(params)
    level = level_for(skill, skill_standing(skill.name, skill.level).level, arguments, skill_hosts())
    mode = session.agent.mode if session.agent else ApprovalMode.MANUAL
    if skill.side_effects or needs_person(skill.capability(level), mode=mode):
        return f"{tool} changes something, or needs a person's consent: it is not called by itself"
    return call(session, ToolIntent.RUN_SKILL, key, {"skill": tool, "arguments": arguments})
