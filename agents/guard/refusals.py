"""Refusals: record each in the caller's transaction and return what to raise after it."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from agents.enums import Brake, HaltState, Level, Outcome, Status, TerminalReason
from agents.exceptions import (
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    RunsAwaited,
    SessionHalted,
    TooDear,
    ToolNotGranted,
)
from agents.guard.calls import Call, refused_skill_audit
from agents.ledger.boundary import halt_details, read_for_update
from agents.ledger.loans import loan_text, runs_to_await
from agents.models import AgentSession
from agents.policy.brakes import (
    AlreadyStopped,
    Busy,
    CapPassed,
    HaltNow,
    NotGranted,
    SharedSpentUp,
    SpentUp,
    is_for_own_cap,
)
from agents.policy.transitions import TERMINAL
from agents.sessions.ending import result_of
from agents.sessions.lifecycle import session_row, totals
from agents.skills.skill import Skill
from agents.types import ZERO, ToolResult
from audit import recorder
from audit.kinds import TOOL_CALL
from audit.models import SYSTEM_CHAIN, SkillAudit

Refusal = Exception | ToolResult


def refuse_call(
    session: AgentSession,
    label: Mapping[str, str],
    phase: str,
    outcome: Outcome,
    *,
    now: datetime,
    brake: Brake | None,
    over: bool = False,
    skill_call: SkillAudit | None = None,
    **more: Any,
) -> None:
    """Write one `tool_call` row: what was called, and what refused it.

    The chain of a session that is over is closed, so `system` gets the row.
    """
    details = {**label, "phase": phase, "outcome": outcome, "brake": brake, **more}
    recorder.append(
        SYSTEM_CHAIN if over else session.chain,
        TOOL_CALL,
        now=now,
        subject=f"session:{session.public_id}",
        details={name: value for name, value in details.items() if value not in {None, ""}},
        skill_call=skill_call,
    )


def refuse_skill(
    session: AgentSession,
    skill: Skill,
    level: Level,
    arguments: Mapping[str, Any],
    why: str,
    *,
    brake: Brake,
    now: datetime,
) -> None:
    """Record a skill call that is refused before it becomes one, such as one with unusable arguments."""
    audited = refused_skill_audit(session, skill, level, arguments, why, now=now)
    label = {"tool": skill.intent, "name": skill.name}
    with transaction.atomic():
        seen = read_for_update(session).boundary
        over = seen.status in TERMINAL
        refuse_call(session, label, seen.phase, Outcome.DENIED, now=now, brake=brake, over=over, skill_call=audited)


def refuse_stopped(call: Call, stop: AlreadyStopped | HaltNow | NotGranted, *, phase: str) -> Exception:
    """R5 and R6. The first call at a requested halt ends the run; later ones find it ended."""
    session = call.session
    refuse = partial(refuse_call, session, call.label, phase, now=call.now)
    match stop:
        case HaltNow(halt_id, reason):
            refused = {**call.label, "phase": phase, "brake": Brake.HALT}
            brake_session(session, TerminalReason(reason), now=call.now, **halt_details(halt_id), **refused)
            return SessionHalted(reason)
        case AlreadyStopped(reason):
            over = AgentSession.objects.filter(pk=session.pk, status__in=sorted(TERMINAL)).exists()
            refuse(Outcome.DENIED, brake=Brake.HALT, detail=reason, over=over)
            return SessionHalted(reason)
        case _:
            refuse(Outcome.TOOL_NOT_GRANTED, brake=Brake.GRANT)
            return ToolNotGranted(call.intent, phase)


def refuse_unaffordable(call: Call, verdict: CapPassed | SpentUp | SharedSpentUp | Busy) -> Refusal:
    """R4. Only the session's own cap latches; each refusal names the budget that refused.

    A session without money for the call waits while runs that it started hold a part of its cap.
    """
    session = call.session
    refuse = partial(refuse_call, session, call.label, call.phase, Outcome.DENIED, now=call.now, brake=Brake.COST)
    if is_for_own_cap(verdict) and (awaited := runs_to_await(session, now=call.now)):
        refuse(detail="cap_lent", budget="session")
        return RunsAwaited(awaited)
    match verdict:
        case CapPassed(projected, cap):
            AgentSession.objects.filter(pk=session.pk).update(cost_cap_reached=True)
            amounts = {"projected_usd": str(projected), "cap_usd": str(cap)}
            refused = {**call.label, "phase": call.phase, "brake": Brake.COST}
            brake_session(session, TerminalReason.COST_CAP_REACHED, now=call.now, **amounts, **refused)
            return CostCapReached(projected, cap, loan_text(session_row(session.pk)))
        case SpentUp("cost", needed, left) if (own := session.max_cost_usd) is not None:
            projected = own - left + needed
            refuse(detail="dimension:cost", budget="session", projected_usd=str(projected), cap_usd=str(own))
            message = f"The next question could cost up to {needed} USD; {left} USD was left of the session's cap."
            message = f"{message} {loan_text(session_row(session.pk))}".strip()
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


def refuse_too_dear(call: Call) -> TooDear:
    """R4, of a model with fallbacks: they are asked first. If none of them serves, the refusal itself is written."""
    label, denied = call.label, Outcome.DENIED
    refuse_call(call.session, label, call.phase, denied, now=call.now, brake=Brake.COST, detail=TooDear.code)
    return TooDear(call.model)


def brake_session(session: AgentSession, reason: TerminalReason, *, now: datetime, **details: Any) -> None:
    """Write the one terminal row of a run that a brake ended; the runner records the terminal status."""
    held = AgentSession.objects.filter(pk=session.pk, fencing=session.fencing, status=Status.RUNNING)
    if not held.exclude(halt_state=HaltState.HALTED).update(halt_state=HaltState.HALTED, terminal_reason=reason):
        return  # it has ended already
    row = AgentSession.objects.get(pk=session.pk)
    at_cap = reason == TerminalReason.COST_CAP_REACHED
    kind = "autonomous_session.cost_cap_reached" if at_cap else "autonomous_session.halted"
    ended = {"reason": reason, "result": result_of(row, reason)[0], **totals(row, calls=row.tool_calls.count())}
    recorder.append(session.chain, kind, now=now, details={**ended, **details})
