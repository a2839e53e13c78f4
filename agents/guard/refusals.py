"""Refusals: record each in the caller's transaction and return what to raise after it."""

from datetime import datetime
from functools import partial
from typing import Any

from agents.enums import HaltState, Outcome, Status, TerminalReason, ToolIntent
from agents.exceptions import BudgetExceeded, BudgetRefused, CostCapReached, SessionHalted, TooDear, ToolNotGranted
from agents.models import AgentSession
from agents.policy.brakes import AlreadyStopped, Busy, CapPassed, HaltNow, NotGranted, SharedSpentUp, SpentUp
from agents.policy.transitions import TERMINAL
from agents.sessions.ending import result_of
from agents.sessions.lifecycle import totals
from agents.types import ZERO, ToolResult
from audit import recorder
from audit.models import SYSTEM_CHAIN

Refusal = Exception | ToolResult


def refuse_call(
    session: AgentSession,
    intent: ToolIntent,
    phase: str,
    outcome: Outcome,
    *,
    now: datetime,
    detail: str = "",
    over: bool = False,
    **more: Any,
) -> None:
    """Write one `tool_call` row. The chain of a session that is over is closed, so `system` gets the row."""
    details = {"tool": intent, "phase": phase, "outcome": outcome, **more}
    if detail:
        details["detail"] = detail
    recorder.append(
        SYSTEM_CHAIN if over else session.chain,
        "autonomous_session.tool_call",
        now=now,
        subject=f"session:{session.public_id}",
        details=details,
    )


def refuse_stopped(
    session: AgentSession, intent: ToolIntent, stop: AlreadyStopped | HaltNow | NotGranted, *, phase: str, now: datetime
) -> Exception:
    """R5 and R6. The first call at a requested halt ends the run; later ones find it ended."""
    match stop:
        case HaltNow(halt_id, reason):
            details = {"halt_id": halt_id} if halt_id is not None else {}
            brake_session(session, TerminalReason(reason), now=now, **details)
            return SessionHalted(reason)
        case AlreadyStopped(reason):
            over = AgentSession.objects.filter(pk=session.pk, status__in=sorted(TERMINAL)).exists()
            refuse_call(session, intent, phase, Outcome.DENIED, now=now, detail=reason, over=over)
            return SessionHalted(reason)
        case _:
            refuse_call(session, intent, phase, Outcome.TOOL_NOT_GRANTED, now=now)
            return ToolNotGranted(intent, phase)


def refuse_unaffordable(
    session: AgentSession,
    intent: ToolIntent,
    verdict: CapPassed | SpentUp | SharedSpentUp | Busy,
    *,
    phase: str,
    now: datetime,
) -> Refusal:
    """R4. Only the session's own cap latches; each refusal names the budget that refused."""
    refuse = partial(refuse_call, session, intent, phase, Outcome.DENIED, now=now)
    match verdict:
        case CapPassed(projected, cap):
            AgentSession.objects.filter(pk=session.pk).update(cost_cap_reached=True)
            amounts = {"projected_usd": str(projected), "cap_usd": str(cap)}
            brake_session(session, TerminalReason.COST_CAP_REACHED, now=now, **amounts)
            return CostCapReached(projected, cap)
        case SpentUp("cost", needed, left) if (own := session.max_cost_usd) is not None:
            projected = own - left + needed
            refuse(detail="dimension:cost", budget="session", projected_usd=str(projected), cap_usd=str(own))
            message = f"The next question could cost up to {needed} USD; {left} USD was left of the session's cap."
            return BudgetExceeded("cost", message)
        case SpentUp(dimension, needed, left):  # tokens are not known beforehand
            refuse(detail=f"dimension:{dimension}", budget="session")
            return BudgetExceeded(dimension, f"The session's tokens are used up: {needed} of {left}.")
        case SharedSpentUp(ledger, needed):
            projected = ledger.approved + needed
            refuse(detail="budget_spent", budget=ledger.name, projected_usd=str(projected), cap_usd=str(ledger.cap))
            assert ledger.cap is not None  # noqa: S101 a budget without a cap refuses nothing
            assert ledger.resets_at is not None  # noqa: S101 shared budgets have a window
            return BudgetRefused(ledger.name, ledger.cap, ledger.resets_at)
        case _:
            ledger = verdict.ledger
            refuse(detail="budget_busy", budget=ledger.name)
            message = f"Budget {ledger.name} is held by calls in flight; try again when none is."
            return ToolResult(ZERO, None, Outcome.DENIED, error=message, detail="budget_busy")


def refuse_too_dear(session: AgentSession, intent: ToolIntent, model: str, *, phase: str, now: datetime) -> TooDear:
    """R4, of a model with fallbacks: they are asked first. If none of them serves, the refusal itself is written."""
    refuse_call(session, intent, phase, Outcome.DENIED, now=now, detail=TooDear.code, model=model)
    return TooDear(model)


def brake_session(session: AgentSession, reason: TerminalReason, *, now: datetime, **details: Any) -> None:
    """Write the one terminal row of a run that a brake ended; the runner records the terminal status."""
    held = AgentSession.objects.filter(pk=session.pk, fencing=session.fencing, status=Status.RUNNING)
    if not held.exclude(halt_state=HaltState.HALTED).update(halt_state=HaltState.HALTED, terminal_reason=reason):
        return  # it has ended already
    row = AgentSession.objects.get(pk=session.pk)
    at_cap = reason == TerminalReason.COST_CAP_REACHED
    kind = "autonomous_session.cost_cap_reached" if at_cap else "autonomous_session.halted"
    ended = {"reason": reason, "result": result_of(row, reason)[0], **totals(row)}
    recorder.append(session.chain, kind, now=now, details={**ended, **details})
