"""What the owner of a run is told when it was stopped; of what they have stopped themselves, nothing."""

from datetime import datetime
from typing import Final

from agents.enums import HaltScope, NoticeKind, TerminalReason
from agents.models import AgentSession, Halt
from agents.selectors.purposes import purposes
from agents.services.notifications import notice_create
from audit.receipt_words import both_usd, worded

# Ends that somebody has asked for.
_ASKED_FOR: Final = frozenset({TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT})


def run_tell_stopped(row: AgentSession, *, reason: TerminalReason, now: datetime) -> None:
    if reason in _ASKED_FOR and _is_own_halt(row):
        return
    cost = both_usd(row.cost_total_usd, row.cost_actual_usd)
    notice_create(
        owner_id=row.owner_id,
        kind=NoticeKind.RUN_STOPPED,
        title=f"Run {row.status}: {worded('reason', str(reason))}, {purposes([row])[row.pk]}",
        body=f"Calls: {row.tool_calls.count()}. Cost: {cost}. See the receipt.",
        session_id=row.pk,
        now=now,
    )


def _is_own_halt(row: AgentSession) -> bool:
    """The owner has halted it, or all work with it. A halt of its own came before that of all work, which left it."""
    everything = Halt.objects.filter(scope=HaltScope.ORGANISATION, released_at__isnull=True)
    halt = Halt.objects.filter(session=row).order_by("-pk").first() or everything.order_by("-pk").first()
    return halt is not None and halt.requested_by_id == row.owner_id
