"""When the loop of a session that is over starts again, read from its row and its agent's definition."""

from datetime import datetime
from typing import Final

from agents.definitions.in_force import autonomy_of, definition_of
from agents.definitions.schema import Autonomy, DefinitionError
from agents.enums import TerminalReason
from agents.models import AgentSession
from agents.policy.restarts import EndedLoop, renewal_at, restart_at

RESTARTS: Final = "restarts"  # in a loop's metadata: how many restarts in a row led to it


def ended_loop(row: AgentSession) -> EndedLoop:
    """Return what decides whether a loop that is over starts again."""
    has_tokens = not row.token_budget or row.total_tokens < row.token_budget
    return EndedLoop(
        reason=TerminalReason(str(row.terminal_reason)),
        started_at=row.created_at,
        ended_at=row.completed_at or row.created_at,
        restarts=int(row.metadata.get(RESTARTS) or 0),
        has_room=has_tokens and (row.left_usd is None or row.left_usd > 0),
    )


def loop_restart_at(row: AgentSession) -> datetime | None:
    """Return when `restart` of the definition starts the loop again, with the rest of its cap; None: not at all."""
    limits = _limits_of(row)
    return restart_at(ended_loop(row), restart=limits.restart, max_restarts=limits.max_restarts)


def loop_renewal_at(row: AgentSession) -> datetime | None:
    """Return when `renew` of the definition starts the loop again, with a full cap; None: not at all."""
    return renewal_at(ended_loop(row)) if _limits_of(row).renew == "daily" else None


def loop_due_at(row: AgentSession) -> datetime | None:
    """Return when the loop starts again by either; None: it does not."""
    return min(filter(None, (loop_restart_at(row), loop_renewal_at(row))), default=None)


def _limits_of(row: AgentSession) -> Autonomy:
    """Return the limits of the loop's agent; without a readable definition with a loop, those that start nothing."""
    try:
        definition = definition_of(row.agent) if row.agent else None
    except DefinitionError:
        definition = None
    return autonomy_of(definition) if definition and definition.is_autonomous else Autonomy(restart="never")
