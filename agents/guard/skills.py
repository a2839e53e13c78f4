"""run_skill for a callable skill: `{"skill": name, "arguments": {…}}`, as the registry and the operator know it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agents.conf import skill_hosts
from agents.guard.context import CallContext
from agents.guard.params import BadParams
from agents.guard.tools import Params, Tool
from agents.skills.registry import pace_of, skill_count_refuse, skill_count_take, skill_named, skill_standing
from agents.skills.risk import goes_elsewhere, level_for
from agents.skills.running import perform
from agents.skills.skill import Skill, SkillContext, holds_handle, resolved


def is_skill_call(params: Params) -> bool:
    return "skill" in params


def skill_tool(params: Params) -> Tool:
    """The skill as a tool. One that is not installed, enabled or set up raises as any unusable parameter does."""
    skill, arguments = _named(params), params.get("arguments")
    if not isinstance(arguments, Mapping):
        raise BadParams(f"the arguments of {skill.name} are an object, not {type(arguments).__name__}.")
    standing = skill_standing(skill.name, skill.level)
    if not standing.enabled:
        raise BadParams(f"the skill {skill.name} is not found or disabled.")
    if skill.lacking:
        raise BadParams(f"the skill {skill.name} cannot work: {skill.lacking}.")
    skill.arguments(arguments)
    hosts = skill_hosts()
    capability = skill.capability(level_for(skill, standing.level, arguments, hosts))
    if holds_handle(arguments) and goes_elsewhere(skill, arguments, hosts):
        capability = replace(capability, requires_approval=True)  # no mode lets a secret go just anywhere
    asks = skill.request
    pace = pace_of(skill.name, capability.level, standing.hourly_limit, cooldown_seconds=skill.cooldown_seconds)
    return Tool(
        handler=lambda context, given: _run(skill, context, given),
        capability=capability,
        remote=not skill.local,
        request=(lambda given: asks(given["arguments"])) if asks else None,
        refuse=lambda now: skill_count_refuse(pace, now=now),
        admit=lambda now: skill_count_take(pace, now=now),
        is_skill=True,
    )


def _named(params: Params) -> Skill:
    name = params["skill"]
    skill = skill_named(name) if isinstance(name, str) else None
    if skill is None:
        raise BadParams(f"the skill {str(name)[:64]} is not found or disabled.")
    return skill


def _run(skill: Skill, context: CallContext, params: Params) -> Any:
    given = SkillContext(
        session_pk=context.session_pk,
        session_id=context.session_id,
        owner_id=context.owner_id,
        call_id=context.call_id,
        idempotency_key=context.idempotency_key,
        now=context.now,
        infer=context.infer,
    )
    return perform(skill, given, resolved(params["arguments"], skill.secret_arguments))
