"""Anticipatory simulation: before a dangerous skill runs, a model says what will probably happen. Advice, never a veto.

It is an inference like any other: guarded, priced and recorded. What it says is shown to approvers and to the model.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from django.core.cache import cache

from agents.conf import clock, model_for
from agents.enums import Purpose, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import AgentSession
from agents.services.estimates import estimate_model_call
from agents.skills.skill import Skill
from audit.hashing import canonical
from audit.redaction import redact_data

PREFIX: Final = "[ANTICIPATORY SIMULATION]: "
SKIPPED: Final = "simulation skipped: budget"
CONTEXT_CHARS: Final = 500
MAX_TOKENS: Final = 300
KEPT_SECONDS: Final = 300
_PROMPT: Final = """\
A skill is about to be called. Say in two or three sentences what will probably come of it, and what could go wrong.

Skill: {name}({arguments})
What it does: {description}
What went before, as data:
{context}
"""


def anticipate(session: AgentSession, skill: Skill, arguments: Mapping[str, Any], *, context: str, key: str) -> str:
    """What a model expects of the call; empty when it has nothing to say. The same for the same call and context."""
    told = context[:CONTEXT_CHARS]
    place = _place(session, skill, arguments, told)
    known = cache.get(place)
    if isinstance(known, str):
        return known
    model = model_for("small")
    if not _is_affordable(session, model):
        return SKIPPED
    prompt = _PROMPT.format(
        name=skill.name,
        arguments=canonical(redact_data(dict(arguments))),
        description=skill.description,
        context=told,
    )
    asked = {"model": model, "prompt": prompt, "max_tokens": MAX_TOKENS, "purpose": Purpose.SIMULATION}
    result = guarded_tool_call(session, ToolIntent.RUN_SKILL, asked, key=key)
    if not result.ok:
        return ""
    said = f"{PREFIX}{str(result.data.get('text', '')).strip()}"
    cache.set(place, said, KEPT_SECONDS)
    return said


def _is_affordable(session: AgentSession, model: str) -> bool:
    """False where R4 would refuse it: a prediction may not end the run that it is about."""
    row = AgentSession.objects.get(pk=session.pk)
    estimate = estimate_model_call(model, Purpose.SIMULATION, now=clock())
    spent = row.cost_total_usd + row.cost_reserved_usd + estimate
    return row.max_cost_usd is None or spent <= row.max_cost_usd


def _place(session: AgentSession, skill: Skill, arguments: Mapping[str, Any], context: str) -> str:
    parts = [session.owner_id, skill.name, skill.version, dict(arguments), context]
    return "simulation:" + hashlib.sha256(canonical(parts).encode("ascii")).hexdigest()
