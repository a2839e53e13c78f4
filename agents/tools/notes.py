"""What skills were given and gave back, for people who may see content: a row for each call that its level asks for."""

from datetime import datetime

from agents.enums import Level
from agents.tools.calls import Call
from agents.types import ToolResult
from audit.hashing import canonical
from audit.recorder import record_skill_call


def note_skill(call: Call, result: ToolResult, *, now: datetime) -> None:
    """Refusals and failures are noted too. Written in the block that records the call itself."""
    if not call.tool.is_skill:
        return
    graded = call.capability.level.rank >= Level.RESTRICTED.rank
    record_skill_call(
        skill_name=call.capability.name,
        arguments=call.arguments["arguments"],
        output=result.error or (result.data if isinstance(result.data, str) else canonical(result.data)),
        capability_level=call.capability.level,
        risk_level=(str(call.risk) if call.risk else "low") if graded else None,
        duration_ms=max(0, round((now - call.now).total_seconds() * 1_000)),
        now=now,
        chat_id=str(call.session.public_id),
        user_id=call.session.owner_id,
        session_id=call.session.public_id,
    )
