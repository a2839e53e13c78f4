"""Self-test: prove that the brakes refuse, with the real guard, a throw-away session and a probe as handler.

Everything happens in a transaction that is rolled back, so a probe leaves no row. A guard that refuses too little, or
too much, is reported brake by brake; a worker that fails the test takes no work.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from agents.enums import BudgetPeriod, BudgetScope, HaltScope, HaltState, Level, Outcome, Phase, Status, ToolIntent
from agents.exceptions import CostCapReached, LeaseLost, LqopsError, SessionHalted, ToolNotGranted, Unarmed
from agents.guard.calls import plan_call
from agents.guard.guard import guarded_batch, guarded_tool_call
from agents.guard.intents import override, request_of
from agents.guard.tools import Tool
from agents.models import AgentSession, Budget, Halt, Installation, ModelPrice
from agents.sessions.schema import require_allowed_version
from agents.skills.skill import SkillContext
from agents.types import Capability, ToolResult
from audit import recorder
from audit.kinds import TOOL_CALL
from audit.models import AuditEvent

AS_IT_SHOULD_BE = "as it should be"
_MODEL = "lqops-self-test"
_NOW = datetime(9000, 1, 1, tzinfo=UTC)
_PARAMS = {"model": _MODEL, "prompt": "probe", "max_tokens": 1}


@dataclass(frozen=True)
class Check:
    """One thing that must hold, and whether it does. `note`: it is no fault, but somebody should know it."""

    name: str
    ok: bool
    found: str
    brake: bool = False
    note: bool = False

    @classmethod
    def of(cls, name: str, *, ok: bool, fault: str, brake: bool = False) -> "Check":
        return cls(name, ok, AS_IT_SHOULD_BE if ok else fault, brake)


class _Probe:
    """Stands in for a handler and counts its calls."""

    def __init__(self) -> None:
        self.reached = 0

    def __call__(self, context: SkillContext, params: Any) -> dict[str, Any]:
        self.reached += 1
        return {}


def run_checks() -> list[Check]:
    """Test each brake with its positive control. Leaves no row behind."""
    return [
        _check("an allowed call goes through", _allowed),
        _check("R5 refuses a halted session", _session_halt),
        _check("R5 refuses while all work is halted", _organisation_halt),
        _check("R6 refuses what the phase does not grant", _grant),
        _check("R4 refuses what the cap does not cover", _cap),
        _check("a call that needs a person waits for one", _approval),
        _check("a worker that lost its lease is refused", _fencing),
        _check("calls that are made together are refused alike", _together),
    ]


_armed = False


def is_armed() -> bool:
    """Return whether this process has passed the self-test."""
    return _armed


def arm() -> None:
    """Run the self-test once per process, and not again in its forks; raise if a brake does not refuse.

    A process of a version that the database does not allow is never armed.
    """
    global _armed  # noqa: PLW0603 one process is armed once
    if _armed:
        return
    require_allowed_version()
    failed = [check for check in run_checks() if not check.ok]
    if failed:
        raise Unarmed("; ".join(f"{check.name}: {check.found}" for check in failed))
    _armed = True


class _RollBack(Exception):
    """Undoes a probe."""


@contextmanager
def _throw_away() -> Iterator[tuple[AgentSession, _Probe]]:
    probe = _Probe()
    harmless = Capability(_MODEL, level=Level.SAFE)
    risky = Capability(_MODEL, level=Level.PRIVILEGED)
    tools = {
        ToolIntent.EMIT_FINDING: Tool(probe, harmless),
        ToolIntent.RUN_SKILL: Tool(probe, harmless, request=request_of),
        ToolIntent.RUN_PLAYBOOK: Tool(probe, risky),
    }
    try:
        with transaction.atomic(), override(tools):
            owner = get_user_model().objects.create(username=f"self-test-{uuid.uuid4()}", is_active=False)
            ModelPrice.objects.create(model=_MODEL, input_usd=Decimal(1), output_usd=Decimal(1))
            # With budgets of another day, so that today's spend decides nothing here.
            for period, day in ((BudgetPeriod.DAY, _NOW.date()), (BudgetPeriod.MONTH, _NOW.date().replace(day=1))):
                Budget.objects.create(scope=BudgetScope.INSTALLATION, period=period, day=day, cap_usd=Decimal(1))
            session = AgentSession.objects.create(
                owner=owner, status=Status.RUNNING, current_phase=Phase.TURN, max_cost_usd=Decimal(1)
            )
            # The first event of a chain may wait for other writers, so it is written before the installation's row is
            # changed: a halt of all work has to wait for the rest of the probe.
            recorder.append(session.chain, "autonomous_session.started", now=_NOW)
            Installation.objects.update(halt=None)
            yield session, probe
            raise _RollBack
    except _RollBack:
        return


def _check(name: str, probe: Callable[[], str]) -> Check:
    try:
        found = probe()
    except Exception as error:  # noqa: BLE001 a probe that breaks is a brake that is not proven
        found = f"{type(error).__name__}: {error}"
    return Check.of(name, ok=found == "", fault=found, brake=True)


def _expect(
    session: AgentSession, probe: _Probe, intent: ToolIntent, error: type[LqopsError], *, kind: str = ""
) -> str:
    """Return "" if the call is refused with that error, reaches nothing, and the refusal is recorded."""
    try:
        guarded_tool_call(session, intent, _PARAMS, now=_NOW)
    except LqopsError as raised:
        if not isinstance(raised, error):
            return f"refused by {type(raised).__name__}, not {error.__name__}"
    else:
        return "it was allowed"
    if probe.reached:
        return "the handler was reached"
    if kind and not AuditEvent.objects.filter(chain=session.chain, kind=kind).exists():
        return f"no {kind} row was written"
    return ""


def _allowed() -> str:
    with _throw_away() as (session, probe):
        free = guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}, now=_NOW)
        paid = guarded_tool_call(session, ToolIntent.RUN_SKILL, _PARAMS, now=_NOW)
        if not (free.ok and paid.ok and probe.reached == 2):  # noqa: PLR2004 one of each
            return f"free call: {free.outcome} {free.error}; paid call: {paid.outcome} {paid.error}"
    return ""


def _session_halt() -> str:
    with _throw_away() as (session, probe):
        AgentSession.objects.filter(pk=session.pk).update(halt_state=HaltState.HALT_REQUESTED)
        return _expect(
            session, probe, ToolIntent.EMIT_FINDING, SessionHalted, kind="autonomous_session.halted"
        ) or _expect(session, probe, ToolIntent.RUN_SKILL, SessionHalted)


def _organisation_halt() -> str:
    with _throw_away() as (session, probe):
        Installation.objects.update(halt=Halt.objects.create(scope=HaltScope.ORGANISATION))
        return _expect(session, probe, ToolIntent.EMIT_FINDING, SessionHalted, kind="autonomous_session.halted")


def _grant() -> str:
    with _throw_away() as (session, probe):
        AgentSession.objects.filter(pk=session.pk).update(current_phase=Phase.DELIVERY)
        return _expect(session, probe, ToolIntent.RUN_SKILL, ToolNotGranted, kind=TOOL_CALL) or _expect(
            session, probe, ToolIntent.EMIT_FINDING, ToolNotGranted
        )


def _cap() -> str:
    with _throw_away() as (session, probe):
        AgentSession.objects.filter(pk=session.pk).update(max_cost_usd=Decimal("0.000001"))
        return _expect(session, probe, ToolIntent.RUN_SKILL, CostCapReached, kind="autonomous_session.cost_cap_reached")


def _approval() -> str:
    with _throw_away() as (session, probe):
        asked: ToolResult = guarded_tool_call(session, ToolIntent.RUN_PLAYBOOK, {}, now=_NOW)
        if probe.reached:
            return "the handler was reached"
        return "" if asked.outcome in {Outcome.APPROVAL_PENDING, Outcome.DENIED} else f"it ended {asked.outcome}"


def _fencing() -> str:
    with _throw_away() as (session, probe):
        AgentSession.objects.filter(pk=session.pk).update(fencing=session.fencing + 1)
        try:
            guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}, now=_NOW)
        except LeaseLost:
            return "the handler was reached" if probe.reached else ""
        return "it was allowed"


def _together() -> str:
    with _throw_away() as (session, probe):
        allowed = _both(session)
        if not (all(result.ok for result in allowed) and probe.reached == len(allowed)):
            return "allowed calls did not go through"
    for stopped, error in (
        ({"halt_state": HaltState.HALT_REQUESTED}, SessionHalted),
        ({"current_phase": Phase.DELIVERY}, ToolNotGranted),
        ({"fencing": 1}, LeaseLost),
    ):
        with _throw_away() as (session, probe):
            AgentSession.objects.filter(pk=session.pk).update(**stopped)
            try:
                _both(session)
            except error:
                found = "the handler was reached" if probe.reached else ""
            else:
                found = f"they were allowed: {error.__name__} was expected"
        if found:
            return found
    return ""


def _both(session: AgentSession) -> list[ToolResult]:
    calls = [plan_call(session, ToolIntent.EMIT_FINDING, {}, key=key, now=_NOW) for key in ("first", "second")]
    return guarded_batch(calls)
