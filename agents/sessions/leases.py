"""Leases: one holder per session, with a fencing number; sweeps for sleeping, waiting and idle sessions.

The number rises with every claim and stands in the WHERE of every write by a worker, so a worker that was thought dead
and comes back can write nothing.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.db.models import Exists, Q, QuerySet

from agents.conf import lease_lifetime
from agents.database_clock import both_clocks, difference_text, shared, time_to_claim
from agents.enums import HaltState, Mode, NoticeKind, Status, TerminalReason, Urgency, WaitingOn
from agents.exceptions import InvalidTransition
from agents.ledger.journal import journal_recover
from agents.ledger.outages import WAIT, fallbacks_serve, outage_try_now, owners_tell, probers_due
from agents.models import AgentSession, Installation, Pause
from agents.models.expressions import CountOf, Likely
from agents.people.access import actor_of, require_access
from agents.people.notifications import notification_create
from agents.sessions.ending import session_end_unheld
from agents.sessions.fairness import next_run
from agents.sessions.lifecycle import halt_reason, log_run, session_lock, session_wake
from agents.sessions.pauses import pause_message, pauses_of, session_put_aside_if_paused
from audit import recorder

logger = logging.getLogger(__name__)

CLAIM_TRIES = 20

# Taken after the session's row and before any chain, by claims alone, so no lock order can conflict.
_CLAIM_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"  # on SQLite the transaction is the lock


def lease_claim(session_pk: int, *, owner: str, now: datetime) -> AgentSession | None:
    """Claim a queued session, or one whose worker was lost. Return None if there is nothing to take.

    A host whose clock is too far from the database's takes nothing.
    """
    at = time_to_claim(now)
    return _claim(session_pk, owner=owner, now=at) if at else None


@transaction.atomic
def _claim(session_pk: int, *, owner: str, now: datetime) -> AgentSession | None:
    """Claim it by the database's time.

    Attempts are counted here, before any work, so that a session which kills its workers comes to an end.
    """
    row = session_lock(session_pk)
    lost = row.is_lost(now)
    if row.status != Status.QUEUED and not lost:
        return None
    unknown = lost and journal_recover(row, now=now)
    takes_room = not lost and row.mode != Mode.SENSOR and row.urgency == Urgency.BATCH
    state = _claim_state(row, takes_room=takes_room)
    if _is_stopped(row, state):
        session_end_unheld(row, halt_reason(row), now=now, actor="system")
        return None
    if lost and not _may_go_on(row, unknown=unknown, now=now):
        return None
    if (state.has_pauses or row.paused_at) and session_put_aside_if_paused(row, now=now):
        return None
    if takes_room and state.running >= settings.LQOPS_MAX_RUNNING_PER_USER:
        return None
    first = row.started_at is None
    row.status = Status.RUNNING
    row.started_at = row.started_at or now
    row.lease_owner = owner
    row.lease_until = now + lease_lifetime()
    row.fencing += 1
    row.last_activity_at = now
    row.enqueued_at = None
    row.claimed_at = now
    row.save(
        update_fields=[
            "status",
            "started_at",
            "enqueued_at",
            "claimed_at",
            "lease_owner",
            "lease_until",
            "fencing",
            "last_activity_at",
            "recoveries",
        ]
    )
    if first:
        row.called_keys = set()
        recorder.append(
            row.chain, "autonomous_session.started", now=now, details=started_details(row), after=recorder.EMPTY
        )
        log_run(row, "started", mode=row.mode, trigger=row.trigger_kind)
    else:
        if lost:
            log_run(row, "taken over from a lost worker", logging.WARNING, recoveries=row.recoveries)
        details = {"cause": "takeover" if lost else "queue", "recoveries": row.recoveries, "fencing": row.fencing}
        recorder.append(row.chain, "autonomous_session.resumed", now=now, details=details)
    return row


def lease_claim_now(session: AgentSession, *, owner: str, now: datetime) -> AgentSession:
    """Claim a new session for somebody who waits for it; raise InvalidTransition if that is not possible now."""
    if not (clocks := both_clocks()).may_claim:
        off = difference_text(clocks.ahead)
        raise InvalidTransition(f"This host starts nothing: its clock is {off} the database's. Set the clock (NTP).")
    claimed = lease_claim(session.pk, owner=owner, now=now)
    if claimed is not None:
        return claimed
    for pause in pauses_of(session):
        raise InvalidTransition(f"{pause_message(pause)} Resume it first.")
    raise InvalidTransition(f"{session.owner} has as many active runs as allowed; try again later.")


def lease_next(*, owner: str, now: datetime, only_urgent: bool = False) -> AgentSession | None:
    """Claim the run that is to be worked on next. Return None if there is none, or others were faster many times."""
    at = time_to_claim(now)
    if at is None:
        return None
    for _ in range(CLAIM_TRIES):
        pk = next_run(at, only_urgent=only_urgent)
        if pk is None:
            return None
        try:
            session = _claim(pk, owner=owner, now=at)
        except Exception:  # one run that cannot be claimed must not keep all others waiting
            logger.exception("session %s could not be claimed; it is tried again later", pk)
            _put_back(pk, now=at)
            continue
        if session is not None:
            return session
    return None


def _put_back(session_pk: int, *, now: datetime) -> None:
    """Let a session wait behind the others of its trigger, urgent or not; a lost one, for another lease."""
    rows = AgentSession.objects.filter(pk=session_pk)
    rows.filter(status=Status.QUEUED).update(enqueued_at=now, claimed_at=now, urgency=Urgency.BATCH)
    rows.lost(now).update(lease_until=now + lease_lifetime())


@transaction.atomic
def leases_renew(held: Iterable[tuple[int, int]], *, now: datetime) -> int:
    """Renew the leases of sessions that are still held under these fencing numbers; return of how many.

    A row that its own run is writing is left for the next time: nobody waits for the others meanwhile.
    """
    which = reduce(or_, (Q(pk=pk, fencing=fencing) for pk, fencing in held))
    rows = AgentSession.objects.filter(which, status=Status.RUNNING)
    if connection.features.has_select_for_update_skip_locked:
        rows = AgentSession.objects.filter(pk__in=rows.select_for_update(no_key=True, skip_locked=True).values("pk"))
    return rows.update(lease_until=shared(now) + lease_lifetime())


def _may_go_on(row: AgentSession, *, unknown: bool, now: datetime) -> bool:
    """Return False if the lost session was given up, or is parked for a call of unknown outcome."""
    if row.recoveries >= settings.LQOPS_MAX_RECOVERIES:
        session_end_unheld(row, TerminalReason.WORKER_LOST, now=now, actor="system")
        return False
    row.recoveries += 1
    if unknown:
        row.status = Status.WAITING
        row.waiting_on = WaitingOn.OPERATOR
        row.lease_owner = ""
        row.lease_until = None
        row.fencing += 1
        row.save(update_fields=["status", "waiting_on", "lease_owner", "lease_until", "fencing", "recoveries"])
        notification_create(
            owner_id=row.owner_id,
            kind=NoticeKind.OUTCOME_UNKNOWN,
            title="A run waits: the outcome of a call is unknown",
            body="Its worker was lost during the call. Record what happened, and the run continues.",
            session_id=row.pk,
            now=now,
        )
    return not unknown


class _ClaimState(NamedTuple):
    """The halt of all work, pauses, and how many sessions of this owner are running: they decide on a claim too."""

    halt_id: int | None
    has_pauses: bool
    running: int


def _claim_state(row: AgentSession, *, takes_room: bool) -> _ClaimState:
    """Look at all of it by one statement. Claims of one owner that take room are judged one by one."""
    if takes_room and connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_CLAIM_LOCK, [f"claim:{row.owner_id}"])
    running = AgentSession.objects.taking_room().filter(owner_id=row.owner_id)
    look = Installation.objects.filter(pk=1).values_list("halt_id", Exists(Pause.objects.open()), CountOf(running))
    return _ClaimState(*(look.first() or (None, True, 0)))


def _is_stopped(row: AgentSession, state: _ClaimState) -> bool:
    if row.halt_state in {HaltState.HALT_REQUESTED, HaltState.HALTED}:
        return True
    # A paused session is put aside, and makes no call: the halt of all work may spare it.
    return row.paused_at is None and state.halt_id is not None


def started_details(row: AgentSession) -> dict[str, str | int | None]:
    return {
        "mode": row.mode,
        "owner_id": row.owner_id,
        "agent_id": row.agent_id,
        "project_id": row.project_id,
        "trigger_kind": row.trigger_kind,
        "trigger_ref": row.trigger_ref,
        "asked_by": row.metadata.get("asked_by"),
        "parent_id": str(row.parent.public_id) if row.parent else None,
        "restarted_from": str(row.restarted_from.public_id) if row.restarted_from else None,
        "max_cost_usd": None if row.max_cost_usd is None else str(row.max_cost_usd),
        "definition_version": row.definition_version,
        "definition_digest": row.definition_digest or None,
    }


# --- Sweeps: sleepers, and sessions that wait for a model ---
# Each sweep takes a bounded number of rows and leaves the rest to the next.


MOST = 200


def sleepers_wake(now: datetime) -> int:
    """Put sleeping sessions whose time has come back into the queue."""
    return _wake_due(AgentSession.objects.filter(Likely(Q(status=Status.SLEEPING))), now)


def next_sleeper(now: datetime) -> datetime | None:
    """Return when the next sleeping session is to be woken."""
    sleeping = AgentSession.objects.filter(Likely(Q(status=Status.SLEEPING)), next_wake_at__isnull=False)
    return sleeping.order_by("next_wake_at").values_list("next_wake_at", flat=True).first()


def model_waiters_wake(now: datetime) -> int:
    """Wake sessions whose model is back or whose patience is over, and one for each model that is to be tried."""
    if not _model_waiters().exists():
        return 0
    fallbacks_serve(now)
    owners_tell(now, most=MOST)
    probers = sum(session_wake(pk, now=now) for pk in probers_due(now))
    return probers + _wake_due(_model_waiters(), now)


def runs_waiters_wake(now: datetime) -> int:
    """Wake sessions that have waited for the runs they started as long as they may."""
    return _wake_due(AgentSession.objects.filter(status=Status.WAITING, waiting_on=WaitingOn.RUNS), now)


def next_runs_waiter(now: datetime) -> datetime | None:
    """Return when the next session has waited for the runs that it started as long as it may."""
    waiting = AgentSession.objects.filter(status=Status.WAITING, waiting_on=WaitingOn.RUNS)
    return waiting.order_by("next_wake_at").values_list("next_wake_at", flat=True).first()


def next_model_waiter(now: datetime) -> datetime | None:
    """Return now while a session waits for a model: it may be tried, or served by another, at any time."""
    return now if _model_waiters().exists() else None


def _model_waiters() -> QuerySet[AgentSession]:
    return AgentSession.objects.filter(status=Status.WAITING, waiting_on=WaitingOn.MODEL)


@transaction.atomic
def session_try_now(session_pk: int, *, by: User | None, now: datetime) -> AgentSession:
    """Have the model that a run waits for tried at once, by this run."""
    row = session_lock(session_pk)
    require_access(by, owner_id=row.owner_id, permission="agents.change_agentsession")
    if row.waiting_on != WaitingOn.MODEL:
        raise InvalidTransition("The run does not wait for a model; there is nothing to try.")
    model = row.metadata[WAIT]["model"]
    outage_try_now(model, now=now)
    details = {"model": model}
    recorder.append(row.chain, "session.try_now", now=now, actor=actor_of(by), details=details)
    session_wake(row.pk, now=now)
    row.refresh_from_db()
    return row


def _wake_due(rows: QuerySet[AgentSession], now: datetime) -> int:
    due = rows.filter(next_wake_at__lte=now).order_by("next_wake_at")
    return sum(session_wake(pk, now=now) for pk in list(due.values_list("pk", flat=True)[:MOST]))


# --- Watchdog: mark a running session that does nothing, then halt it if it stays idle as long again ---
#
# A call in flight counts as activity, however long it takes. Sessions that sleep, wait or queue are not idle; their
# own limits apply. A guarded call that passes takes the mark away (ledger/journal.py).


def idle_sweep(now: datetime) -> int:
    """Halt the idle sessions first, then mark, so that none is marked and halted in one sweep.

    Each in a transaction of its own; one that fails is found again by the next sweep.
    """
    halted = [pk for pk in _candidates(HaltState.IDLE, now) if _apply_if_still_idle(_halt, pk, now)]
    marked = [pk for pk in _candidates(HaltState.RUNNING, now) if _apply_if_still_idle(_mark_idle, pk, now)]
    return len(halted) + len(marked)


def _candidates(state: HaltState, now: datetime) -> list[int]:
    rows = AgentSession.objects.filter(status=Status.RUNNING, halt_state=state).order_by("pk")
    idle = [row for row in rows.only("last_activity_at", "idle_halt_minutes") if _is_idle(row, state, now)]
    return [row.pk for row in idle if _is_silent(row)]


def _is_silent(row: AgentSession) -> bool:
    """Return whether no call of the session is in flight."""
    return not row.tool_calls.open().exists()


def _is_idle(row: AgentSession, state: HaltState, now: datetime) -> bool:
    """Return whether it has been idle long enough to leave its state."""
    limits = {HaltState.RUNNING: 1, HaltState.IDLE: 2}
    return now - row.last_activity_at >= limits[state] * timedelta(minutes=row.idle_halt_minutes)


def _apply_if_still_idle(step: Callable[[AgentSession, datetime], None], pk: int, now: datetime) -> bool:
    """Take the step if the session, now locked, is still as idle as when it was found."""
    state = HaltState.IDLE if step is _halt else HaltState.RUNNING
    try:
        with transaction.atomic():
            row = session_lock(pk)  # calls open and settle under it, so none can begin before the step is committed
            same = row.status == Status.RUNNING and row.halt_state == state
            if not same or not _is_idle(row, state, now) or not _is_silent(row):
                return False
            step(row, now)
    except DatabaseError:
        logger.exception("the idle check of session %s failed; it is tried again", pk)
        return False
    return True


def _mark_idle(row: AgentSession, now: datetime) -> None:
    row.halt_state = HaltState.IDLE
    row.save(update_fields=["halt_state"])
    idle = int((now - row.last_activity_at).total_seconds())
    recorder.append(row.chain, "session.paused", now=now, details={"idle_seconds": idle})


def _halt(row: AgentSession, now: datetime) -> None:
    """Halt it and take its fencing number: the worker that holds it may be alive and hang."""
    row.fencing += 1
    row.save(update_fields=["fencing"])
    session_end_unheld(row, TerminalReason.IDLE_TIMEOUT, now=now, actor="system")
