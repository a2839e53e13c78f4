"""The life of a session: birth, phases, rest, end. The only writer of its status, with sessions/leases.py.

Every move locks the session's row, checks the state it starts from (and, for a worker, its fencing number), writes,
and records, in one transaction.
"""

import logging
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import connection, transaction

from agents.conf import default_session_cap
from agents.enums import (
    ApprovalStatus,
    Mode,
    Outcome,
    Phase,
    QuestionStatus,
    Status,
    TerminalReason,
    TriggerKind,
    WaitingOn,
)
from agents.exceptions import InvalidTransition, LeaseLost
from agents.ledger.boundary import demand_birth
from agents.models import Agent, AgentSession, Alert, Approval, Project, Question, ToolCall, Trigger
from agents.policy.costs import usd
from agents.policy.transitions import STATUS_MOVES
from agents.queue import TaskName, enqueue
from audit import recorder

logger = logging.getLogger(__name__)


@transaction.atomic
def session_create(
    *,
    owner: User,
    now: datetime,
    mode: Mode = Mode.PHASED,
    agent: Agent | None = None,
    trigger: Trigger | None = None,
    project: Project | None = None,
    slot: str = "",
    max_cost_usd: Decimal | None = None,
    token_budget: int = 0,
    params: dict[str, Any] | None = None,
    restarted_from: AgentSession | None = None,
    depth: int = 0,
    trigger_kind: TriggerKind | None = None,
    asked_by: str = "",
    wake_at: datetime | None = None,
) -> AgentSession:
    """A queued session with a cap: its own, else its trigger's, else the installation's default. Never without one.

    It is handed to the queue in the same transaction, unless it begins with a sleep.
    """
    demand_birth(owner.pk)
    cap = max_cost_usd if max_cost_usd is not None else (trigger.max_cost_usd if trigger else None)
    session = AgentSession.objects.create(
        owner_id=owner.pk,
        **by_definition(agent),
        trigger=trigger,
        project=project,
        mode=mode,
        status=Status.SLEEPING if wake_at else Status.QUEUED,
        next_wake_at=wake_at,
        current_phase=Phase.INTAKE if mode == Mode.PHASED else Phase.TURN,
        trigger_kind=trigger_kind or (trigger.kind if trigger else TriggerKind.MANUAL),
        trigger_ref=str(trigger.public_id) if trigger else "",
        slot=slot,
        max_cost_usd=usd(default_session_cap() if cap is None else cap),
        token_budget=token_budget,
        params=params or {},
        restarted_from=restarted_from,
        depth=depth,
        metadata={"asked_by": asked_by} if asked_by else {},
        created_at=now,
        last_activity_at=now,
    )
    if wake_at is None:
        session_enqueue(session.pk, now=now)
    return session


def by_definition(agent: Agent | None) -> dict[str, Any]:
    """The agent, and the version of its definition that the session keeps, whatever is written later."""
    if agent is None or not agent.definition_version:
        return {"agent": agent}
    version, digest = agent.definition_version, agent.definition_digest
    return {"agent": agent, "definition_version": version, "definition_digest": digest}


def session_enqueue(session_pk: int, *, now: datetime) -> bool:
    """Hands a queued session to the queue. When the queue cannot take it, the ticker hands it over again later."""
    try:
        with transaction.atomic():
            AgentSession.objects.filter(pk=session_pk, status=Status.QUEUED).update(enqueued_at=now)
            enqueue(TaskName.RUN_SESSION, session_pk)
    except Exception:  # whatever the broker raises, the session itself is safe in its row
        logger.exception("session %s could not be handed to the queue; it will be tried again", session_pk)
        return False
    return True


def session_lock(session_pk: int) -> AgentSession:
    """The session's row, locked until the transaction ends. SQLite's transaction is the lock."""
    lock = "FOR NO KEY UPDATE" if connection.features.has_select_for_update else ""
    table = AgentSession._meta.db_table
    for row in AgentSession.objects.raw(f"SELECT * FROM {table} WHERE id = %s {lock}", [session_pk]):  # noqa: S608
        return row
    raise AgentSession.DoesNotExist(f"There is no session {session_pk}.")


def halt_reason(row: AgentSession) -> TerminalReason:
    """What a session that was asked to halt ends as: what the asker said, else that somebody stopped it."""
    return TerminalReason(row.terminal_reason or TerminalReason.EXTERNAL_HALT)


def held(session: AgentSession) -> AgentSession:
    """The locked row of a session that this worker holds; a worker that lost it is refused."""
    row = session_lock(session.pk)
    if row.fencing != session.fencing or row.status != Status.RUNNING:
        raise LeaseLost(
            f"Session {row.public_id} is {row.status} under number {row.fencing}; this worker held number "
            f"{session.fencing} and may not write."
        )
    return row


@transaction.atomic
def session_enter_phase(session: AgentSession, phase: Phase, *, now: datetime) -> None:
    """Moves a held session on to a phase and records it. Re-entering the phase it is in changes nothing."""
    row = held(session)
    if row.current_phase == phase and row.metadata.get("phase_entered") == phase:
        return
    before, row.current_phase = row.current_phase, phase
    row.metadata["phase_entered"] = phase
    row.save(update_fields=["current_phase", "metadata"])
    session.current_phase = phase
    details = {"from_phase": before, "to_phase": phase}
    recorder.append(row.chain, "autonomous_session.phase_transition", now=now, details=details)


@transaction.atomic
def session_wake(session_pk: int, *, now: datetime) -> bool:
    """Puts a sleeping or waiting session back into the queue. False when it is neither."""
    woken = AgentSession.objects.filter(pk=session_pk, status__in=(Status.SLEEPING, Status.WAITING)).update(
        status=Status.QUEUED, waiting_on="", next_wake_at=None, last_activity_at=now
    )
    if woken:
        session_enqueue(session_pk, now=now)
    return bool(woken)


def totals(row: AgentSession) -> dict[str, Any]:
    return {
        "charged_usd": str(row.cost_total_usd),
        "actual_usd": str(row.cost_actual_usd),
        "tokens": row.total_tokens,
        "calls": row.tool_calls.count(),
    }


def check_move(before: str, after: Status) -> None:
    if after not in STATUS_MOVES.get(before, frozenset()):
        raise InvalidTransition(f"A session cannot go from {before} to {after}.")


# Whether a session that is about to lie down still has something to lie down for. The caller holds its row.
#
# What it would wait for, or wake for, may have come while it was at work; then nobody would wake it.


WAKES: Final = "wake_early_if"  # in a session's metadata: the names of alerts that end its sleep
HEARD: Final = "heard"  # in a session's metadata: the events that came since the agent last lay down
CHAT_MESSAGE: Final = "chat_message"  # the alert that somebody has spoken with the agent


def is_awaited(row: AgentSession, waiting_on: WaitingOn) -> bool:
    """False when nothing is left to wait for: a decision that came first would otherwise wake nobody."""
    if waiting_on == WaitingOn.APPROVAL:
        return Approval.objects.filter(session=row, status=ApprovalStatus.PENDING).exists()
    if waiting_on == WaitingOn.OPERATOR:
        return ToolCall.objects.filter(session=row, outcome=Outcome.UNKNOWN).exists()
    return Question.objects.filter(session=row, status=QuestionStatus.PENDING).exists()


def wakes_for(row: AgentSession, name: str) -> bool:
    return name in (row.metadata.get(WAKES) or ())


def is_called(row: AgentSession) -> bool:
    """True when an alert that ends its sleep is there already."""
    names = row.metadata.get(WAKES)
    return bool(names) and Alert.objects.pending().filter(session=row, name__in=names).exists()
