"""What the owner is told of a run that was halted or failed: counts, cost and the way to the receipt; no content. Of
what they have stopped themselves they are told nothing."""

from datetime import datetime
from typing import Final

from agents.enums import HaltScope, Mode, NoticeKind, TerminalReason
from agents.models import AgentSession, Halt
from agents.selectors.purposes import purposes
from agents.selectors.runs import by_severity, counted
from agents.services.notifications import notice_create, receipt_path
from audit.receipt_words import both_usd, worded

# Ends that somebody has asked for.
_ASKED_FOR: Final = frozenset({TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT})


def run_tell_stopped(row: AgentSession, *, reason: TerminalReason, now: datetime) -> None:
    """It is no tool call of the run: no brake keeps it from being told."""
    if reason in _ASKED_FOR and _is_own_halt(row):
        return
    found = by_severity(row.findings.values_list("severity", flat=True))
    lines = [f"Findings: {counted(found)}."] if row.mode == Mode.PHASED else []
    lines += [f"Calls: {row.tool_calls.count()}. Cost: {both_usd(row.cost_total_usd, row.cost_actual_usd)}."]
    notice_create(
        owner_id=row.owner_id,
        kind=NoticeKind.RUN_STOPPED,
        title=f"Run {row.status}: {worded('reason', str(reason))}, {purposes([row])[row.pk]}",
        body="\n".join([*lines, f"Receipt: {receipt_path(row)}"]),
        session_id=row.pk,
        now=now,
    )


def _is_own_halt(row: AgentSession) -> bool:
    """The owner has halted it, or all work with it. A halt of its own came before that of all work, which left it."""
    everything = Halt.objects.filter(scope=HaltScope.ORGANISATION, requested_at__gte=row.created_at)
    halt = Halt.objects.filter(session=row).order_by("-pk").first() or everything.order_by("-pk").first()
    return halt is not None and halt.requested_by_id == row.owner_id
