"""One holder: a session is worked on under a lease with a fencing number, renewed by a heartbeat, taken over when lost.

The number rises with every claim and stands in the WHERE of every write of a worker, so a worker that was thought dead
and wakes up again can write nothing.
"""

from datetime import datetime

from django.db import connection, transaction

from agents.conf import lease_lifetime, max_recoveries, max_running_per_user
from agents.enums import HaltState, Mode, NoticeKind, Status, TerminalReason, WaitingOn
from agents.ledger.journal import journal_recover
from agents.models import AgentSession, Installation
from agents.people.notifications import notice_create
from agents.sessions.ending import session_end_unheld
from agents.sessions.lifecycle import halt_reason, session_lock
from audit import recorder

# Taken after the session's row and before any chain, by claims alone: there is no other order to meet.
_TURN = {
    "postgresql": "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
    "sqlite": "SELECT %s",  # the transaction has taken the write lock
}


@transaction.atomic
def lease_claim(session_pk: int, *, owner: str, now: datetime) -> AgentSession | None:
    """Takes a queued session, or one whose worker was lost. None when there is nothing to take.

    Attempts are counted here, before any work: a session that kills its workers comes to an end.
    """
    row = session_lock(session_pk)
    lost = row.is_lost(now)
    if row.status != Status.QUEUED and not lost:
        return None
    unknown = lost and journal_recover(row, now=now)
    if _is_stopped(row):
        session_end_unheld(row, halt_reason(row), now=now, actor="system")
        return None
    if lost and not _may_go_on(row, unknown=unknown, now=now):
        return None
    if not lost and row.mode != Mode.SENSOR and not _has_room(row):
        AgentSession.objects.filter(pk=row.pk).update(enqueued_at=None)  # the ticker hands it over when there is room
        return None
    first = row.started_at is None
    row.status, row.started_at = Status.RUNNING, row.started_at or now
    row.lease_owner, row.lease_until, row.fencing = owner, now + lease_lifetime(), row.fencing + 1
    row.last_activity_at, row.enqueued_at = now, None
    row.save(
        update_fields=[
            "status",
            "started_at",
            "enqueued_at",
            "lease_owner",
            "lease_until",
            "fencing",
            "last_activity_at",
            "recoveries",
        ]
    )
    if first:
        recorder.append(row.chain, "autonomous_session.started", now=now, details=session_birth(row))
    else:
        details = {"cause": "takeover" if lost else "queue", "recoveries": row.recoveries, "fencing": row.fencing}
        recorder.append(row.chain, "autonomous_session.resumed", now=now, details=details)
    return row


def lease_renew(session: AgentSession, *, now: datetime) -> bool:
    """Says that the worker is alive. False when the session is no longer its own."""
    return (
        AgentSession.objects.filter(pk=session.pk, fencing=session.fencing, status=Status.RUNNING).update(
            lease_until=now + lease_lifetime()
        )
        == 1
    )


def _may_go_on(row: AgentSession, *, unknown: bool, now: datetime) -> bool:
    """False when the lost session has been given up, or is parked because a call of it may have taken effect."""
    if row.recoveries >= max_recoveries():
        session_end_unheld(row, TerminalReason.WORKER_LOST, now=now, actor="system")
        return False
    row.recoveries += 1
    if unknown:
        row.status, row.waiting_on = Status.WAITING, WaitingOn.OPERATOR
        row.lease_owner, row.lease_until, row.fencing = "", None, row.fencing + 1
        row.save(update_fields=["status", "waiting_on", "lease_owner", "lease_until", "fencing", "recoveries"])
        notice_create(
            owner_id=row.owner_id,
            kind=NoticeKind.OUTCOME_UNKNOWN,
            title="A run waits: nobody knows whether a call took effect",
            body="Its worker was lost while the call was out. Say what happened, and the run goes on.",
            session_id=row.pk,
            now=now,
        )
    return not unknown


def _has_room(row: AgentSession) -> bool:
    """False while enough sessions of the same owner are running. Claims for one owner are judged one by one."""
    with connection.cursor() as cursor:
        cursor.execute(_TURN[connection.vendor], [f"claim:{row.owner_id}"])
    running = AgentSession.objects.taking_room().filter(owner_id=row.owner_id).count()
    return running < max_running_per_user()


def _is_stopped(row: AgentSession) -> bool:
    if row.halt_state in {HaltState.HALT_REQUESTED, HaltState.HALTED}:
        return True
    return Installation.objects.filter(pk=1, halt__isnull=False).exists()


def session_birth(row: AgentSession) -> dict[str, str | int | None]:
    return {
        "mode": row.mode,
        "owner_id": row.owner_id,
        "agent_id": row.agent_id,
        "project_id": row.project_id,
        "trigger_kind": row.trigger_kind,
        "trigger_ref": row.trigger_ref,
        "asked_by": row.metadata.get("asked_by"),
        "restarted_from": str(row.restarted_from.public_id) if row.restarted_from else None,
        "max_cost_usd": None if row.max_cost_usd is None else str(row.max_cost_usd),
        "definition_version": row.definition_version,
        "definition_digest": row.definition_digest or None,
    }
