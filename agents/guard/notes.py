"""What skills were given and gave back, for people who may see content: a row for each call that its level asks for."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agents.enums import Level, Risk
from agents.guard.calls import Call
from agents.models import AgentSession
from agents.skills.risk import RiskAssessor
from agents.skills.skill import Skill
from agents.text.clean import storable
from agents.types import ToolResult
from audit.recorder import record_skill_call
from audit.redaction import redact_data
from audit.rows import canonical


def note_skill(call: Call, result: ToolResult, *, now: datetime) -> None:
    """Refusals and failures are noted too. Written in the block that records the call itself."""
    if not call.tool.is_skill:
        return
    record_skill_call(
        skill_name=call.capability.name,
        arguments=call.arguments["arguments"],
        output=result.error or (result.data if isinstance(result.data, str) else canonical(result.data)),
        capability_level=call.capability.level,
        risk_level=_grade(call.capability.level, call.risk),
        duration_ms=max(0, round((now - call.now).total_seconds() * 1_000)),
        now=now,
        **_whose(call.session),
    )


def note_refusal(
    session: AgentSession, skill: Skill, level: Level, arguments: Mapping[str, Any], why: str, *, now: datetime
) -> None:
    """Of a call that is refused before it is one: not offered, not enabled, not asked for, or of no fit."""
    record_skill_call(
        skill_name=skill.name,
        arguments=redact_data(storable(dict(arguments))),
        output=why,
        capability_level=level,
        risk_level=_grade(level, RiskAssessor().assess(skill, arguments)),
        duration_ms=0,
        now=now,
        **_whose(session),
    )


def _grade(level: Level, risk: Risk | None) -> str | None:
    return str(risk or Risk.LOW) if level.rank >= Level.RESTRICTED.rank else None


def _whose(session: AgentSession) -> dict[str, Any]:
    return {"chat_id": str(session.public_id), "user_id": session.owner_id, "session_id": session.public_id}
