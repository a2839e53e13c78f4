"""Work that one run hands on to another: its cap, its place in the tree, its halt, its result.

The cap of a started run is lent: it is taken out of the rest of the run that starts it, in the transaction that creates
it, so both happen or neither. When the started run is over, the ticker gives back what it left, once, and in the same
transaction wakes a run that waits for it and tells a loop. A halt goes down the tree. What a run reports is text of a
model: data for whoever reads it.
"""

import logging
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q

from agents.definitions.in_force import definition_of, loop_config_for
from agents.enums import ApprovalMode, HaltState, Mode, TerminalReason, WaitingOn
from agents.exceptions import Invalid, NotFound
from agents.ledger.boundary import require_enabled
from agents.ledger.budgets import micro
from agents.ledger.loans import MAX_DEPTH, loan_of
from agents.loop.turns import alert_push
from agents.models import Agent, AgentSession
from agents.models.expressions import Likely
from agents.policy.guardrails import RUN_FINISHED
from agents.policy.transitions import TERMINAL
from agents.sessions.halts import session_halt
from agents.sessions.lifecycle import session_create, session_lock, session_wake
from agents.sessions.reads import as_uuid, started_by
from agents.sessions.transcripts import answers_of
from agents.types import ZERO
from audit import recorder
from audit.models import SYSTEM_CHAIN

logger = logging.getLogger(__name__)

MOST: Final = 200
RESULT_CHARS: Final = 8_000
SHOWN_FINDINGS: Final = 20
NAMES_LISTED: Final = 20
_HALTS: Final = (TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT)
_STOPPING: Final = (HaltState.HALT_REQUESTED, HaltState.HALTED)


# --- Starting ---


def cap_lend(parent: AgentSession, *, stated: Decimal | None, callee_cap: Decimal | None = None) -> Decimal:
    """Take a loan out of the rest of a run and return it (`loan_of`). The caller starts the run that gets it.

    In one transaction with that: a process that dies in between leaves neither.
    """
    row = session_lock(parent.pk)
    if row.depth >= MAX_DEPTH:
        raise Invalid(f"This run was started {MAX_DEPTH} levels deep; it cannot start another.")
    cap = loan_of(row, stated=stated, callee_cap=callee_cap)
    AgentSession.objects.filter(pk=row.pk).update(max_cost_usd=F("max_cost_usd") - micro(cap))
    return cap


def record_handed_on(parent: AgentSession, child: AgentSession, *, now: datetime) -> None:
    """Append to the chain of the run that starts another: which, and with what cap."""
    details = {"child_id": str(child.public_id), "cap_usd": str(child.max_cost_usd)}
    recorder.append(parent.chain, "run.handed_on", now=now, details=details)


@transaction.atomic
def agent_run_within(
    parent: AgentSession, agent: Agent, task: str, *, max_cost_usd: Decimal | None, now: datetime
) -> AgentSession:
    """Start a run of another agent of the same owner with a task, within what is left of the cap."""
    require_enabled(agent)
    _require_no_cycle(parent, agent)
    _require_not_looser(parent, agent)
    cap = cap_lend(parent, stated=max_cost_usd, callee_cap=definition_of(agent).max_cost_usd)
    actor = started_by(parent)
    child = session_create(
        owner=parent.owner,
        agent=agent,
        mode=Mode.CHAT,
        max_cost_usd=cap,
        token_budget=loop_config_for(agent, {}).token_budget,
        params={"message": task, "way": "goal"},
        depth=parent.depth + 1,
        parent=parent,
        asked_by=actor,
        now=now,
    )
    child.params["chat"] = str(child.public_id)
    child.save(update_fields=["params"])
    record_handed_on(parent, child, now=now)
    details = {"session_id": str(child.public_id), "cap_usd": str(child.max_cost_usd)}
    subject = f"session:{child.public_id}"
    recorder.append(SYSTEM_CHAIN, "autonomous_trigger.run_now", now=now, actor=actor, subject=subject, details=details)
    return child


def ancestors_of(session: AgentSession) -> list[AgentSession]:
    """Return the runs that led to this one, the nearest first."""
    found: list[AgentSession] = []
    parent_pk = session.parent_id
    while parent_pk is not None and len(found) <= MAX_DEPTH:
        parent = AgentSession.objects.select_related("agent").get(pk=parent_pk)
        found.append(parent)
        parent_pk = parent.parent_id
    return found


def _require_no_cycle(parent: AgentSession, agent: Agent) -> None:
    if agent.pk in {row.agent_id for row in (parent, *ancestors_of(parent))}:
        raise Invalid(f"{agent.name} is at work in this tree of runs already; it cannot be handed its own work.")


def _require_not_looser(parent: AgentSession, agent: Agent) -> None:
    """Refuse an agent that needs fewer approvals: work handed on must not pass by a person."""
    modes = list(ApprovalMode)
    mode = parent.agent.mode if parent.agent else ApprovalMode.MANUAL
    waives = agent.allow_high_risk and not (parent.agent and parent.agent.allow_high_risk)
    waived = set(agent.waived_skills) - set(parent.agent.waived_skills if parent.agent else ())
    if modes.index(ApprovalMode(agent.mode)) < modes.index(ApprovalMode(mode)) or waives or waived:
        raise Invalid(
            f"{agent.name} needs fewer approvals than you: its calls would pass by the people who decide on yours."
        )


def agent_to_start(parent: AgentSession, name: str) -> Agent:
    """Return the owner's agent of that name; the error lists the names that there are."""
    rows = Agent.objects.filter(owner_id=parent.owner_id, archived_at__isnull=True).exclude(pk=parent.agent_id or 0)
    found = rows.filter(name=name).first()
    if found is None:
        names = ", ".join(rows.order_by("name").values_list("name", flat=True)[:NAMES_LISTED]) or "none"
        raise NotFound(f"There is no other agent named {name!r}; there are: {names}.")
    return found


# --- Results ---


def run_result(parent: AgentSession, run_id: str) -> dict[str, Any]:
    """Return the state and result of a run that this one started; in a chat, that any of its messages started."""
    known = as_uuid(run_id)
    mine = Q(parent=parent)
    if parent.mode == Mode.CHAT and parent.params.get("chat"):
        mine |= Q(parent__in=AgentSession.objects.of_chat(parent.owner_id, parent.params["chat"]).values("pk"))
    child = AgentSession.objects.filter(mine, public_id=known).first() if known else None
    if child is None:
        raise NotFound(f"This run has started no run {run_id}.")
    is_over = child.status in TERMINAL
    answer = answers_of([child]).get(child.pk, "") if child.mode == Mode.CHAT else ""
    findings = child.findings.order_by("pk").values_list("severity", "title")[:SHOWN_FINDINGS]
    return {
        "run": str(child.public_id),
        "status": child.status,
        "is_over": is_over,
        "result": child.run_result,
        "reason": child.result_reason,
        "answer": answer[:RESULT_CHARS],
        "findings": [{"severity": severity, "title": title} for severity, title in findings],
        "spent_usd": str(child.spent_usd),
    }


# --- Duties of the ticker ---


def children_attend(now: datetime) -> int:
    """Halt the runs below halted ones, and give back the rest of those that are over. Return how many.

    In the order of the index `session_lent`, or SQLite reads all runs.
    """
    lent = AgentSession.objects.filter(parent__isnull=False, handed_back_at__isnull=True)
    below = lent.exclude(status__in=sorted(TERMINAL)).exclude(halt_state__in=_STOPPING)
    halted = below.filter(Q(parent__halt_state=HaltState.HALT_REQUESTED) | Q(parent__terminal_reason__in=_HALTS))
    over = lent.filter(Likely(Q(status__in=sorted(TERMINAL))))
    done = 0
    for pk in list(halted.order_by("parent_id", "pk").values_list("pk", flat=True)[:MOST]):
        session_halt(pk, by=None, reason="The run that started it was halted.", now=now)
        done += 1
    for pk, parent_pk in list(over.order_by("parent_id", "pk").values_list("pk", "parent_id")[:MOST]):
        try:
            done += _hand_back(pk, parent_pk, now=now)
        except Exception:  # the others come back all the same, and their callers go on
            logger.exception("run %s could not give back what it left; it is tried again", pk)
    return done


@transaction.atomic
def _hand_back(child_pk: int, parent_pk: int, *, now: datetime) -> bool:
    """Give the rest of a run's cap to the nearest run above it that is not over, and tell a loop of the end, once."""
    heir = _nearest_active(parent_pk)
    if heir is not None:
        heir = session_lock(heir.pk)
        if heir.status in TERMINAL:
            return False  # it has ended meanwhile: next time the rest goes to the run above it
    child = session_lock(child_pk)
    if child.handed_back_at is not None:
        return False
    AgentSession.objects.filter(pk=child_pk).update(handed_back_at=now)
    if heir is None:
        return True
    rest = child.left_usd or ZERO
    if heir.max_cost_usd is not None and rest > ZERO:
        AgentSession.objects.filter(pk=heir.pk).update(max_cost_usd=F("max_cost_usd") + micro(rest))
    if heir.pk == parent_pk and heir.mode == Mode.LOOP:
        text = f"{child.public_id}: {child.status}, {child.run_result}. run_result shows what came of it."
        alert_push(heir, name=RUN_FINISHED, text=text, source_name="run", now=now, dedupe=f"run:{child.public_id}")
    details = {"child_id": str(child.public_id), "rest_usd": str(rest)}
    recorder.append(heir.chain, "run.handed_back", now=now, details=details)
    if heir.waiting_on == WaitingOn.RUNS:
        session_wake(heir.pk, now=now)
    return True


def _nearest_active(parent_pk: int) -> AgentSession | None:
    parent = AgentSession.objects.get(pk=parent_pk)
    line = (parent, *ancestors_of(parent))
    return next((row for row in line if row.status not in TERMINAL), None)
