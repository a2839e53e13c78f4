"""Pauses: of one session, of an agent, of a trigger's runs, of all work; and the resumption.

A pause is a row of its own. The sessions that it covers are marked (`paused_at`), each under its own lock, and the mark
is what the guard, a claim and a worker that rests its session look at. So a call that has begun ends normally, no other
begins, and the session waits for `resume`. Whatever is left half done here, the ticker finishes (`pauses_apply`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.db.models import Case, Exists, OuterRef, Q, QuerySet, Value, When

from agents.enums import PauseScope, Status, WaitingOn
from agents.exceptions import InvalidTransition
from agents.ledger.boundary import GOING_ON, current_halt
from agents.ledger.loans import MAX_DEPTH
from agents.models import Agent, AgentSession, Halt, Installation, Pause, Trigger
from agents.people.access import SYSTEM, actor_of, require_access, require_halt_permission, require_start_permission
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import check_move, session_lock, session_wake
from audit import recorder
from audit.kinds import usernames
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.rows import digest

logger = logging.getLogger(__name__)

MOST: Final = 200  # sessions that are marked or resumed at a time
CHANGE_RUN: Final = "agents.change_agentsession"
# Every page asks this: composed by the ORM it would take several times as long.
_STOPPED: Final = """SELECT halt_id IS NOT NULL,
    EXISTS (SELECT 1 FROM agents_pause WHERE scope = %s AND resumed_at IS NULL)
    FROM agents_installation WHERE id = 1"""
_FOR_A_PERSON: Final = (WaitingOn.APPROVAL, WaitingOn.INPUT, WaitingOn.OPERATOR, WaitingOn.RESUME)


@dataclass(frozen=True)
class Paused:
    """Result of pausing several sessions: the pause in force, whether it is an older one, and how many it holds up."""

    pause: Pause
    already: bool
    sessions: int


# --- One session ---


@transaction.atomic
def session_pause(
    session_pk: int, *, by: User | None, reason: str = "", now: datetime, actor: str = SYSTEM
) -> AgentSession:
    """Pause a session: the call in flight ends, no other begins. Pausing twice changes nothing."""
    row = session_lock(session_pk)
    require_access(by, owner_id=row.owner_id, permission=CHANGE_RUN)
    if row.status in TERMINAL:
        raise InvalidTransition("The run is over; there is nothing to pause.")
    if row.halt_state not in GOING_ON:
        raise InvalidTransition("The run is being halted. A halt is final: it cannot be paused.")
    pause, _ = _open(PauseScope.SESSION, session=row, by=by, reason=reason, now=now, actor=actor)
    if pause.halt_id is not None:  # a halt of all work spared it: it is a person's pause from now on
        pause.halt, pause.reason, pause.requested_by, pause.actor = None, reason, by, actor
        pause.save(update_fields=["halt", "reason", "requested_by", "actor"])
    if row.paused_at is None:
        _mark(row, pause, now=now)
    return row


@transaction.atomic
def session_resume(session_pk: int, *, by: User | None, now: datetime, actor: str = SYSTEM) -> AgentSession:
    """End the pause of one session. It stays paused while a pause of its agent, its trigger or all work covers it.

    While all work is halted it goes on after the release: woken before, it would be ended.
    """
    row = session_lock(session_pk)
    require_access(by, owner_id=row.owner_id, permission=CHANGE_RUN)
    _require_may_resume(by)
    closed = _close(Pause.objects.filter(session=row), by=by, now=now)
    other = _covering(row)
    if closed is None:
        raise InvalidTransition(pause_message(other) if other else "The run is not paused; there is nothing to resume.")
    if other is None and not _is_all_halted():
        _unmark(row, closed, now=now, actor=actor_of(by, actor))
    return row


# --- An agent, a trigger, all work ---


def agent_pause(*, agent: Agent, by: User | None, reason: str = "", now: datetime, actor: str = SYSTEM) -> Paused:
    """Pause an agent: its runs are put aside, and those that start meanwhile wait. Pausing twice changes nothing."""
    with transaction.atomic():
        require_access(by, owner_id=agent.owner_id, permission=CHANGE_RUN)
        pause, new = _open(PauseScope.AGENT, agent=agent, by=by, reason=reason, now=now, actor=actor)
        if new:
            _record_agent("agent.paused", pause, agent, now=now, actor=actor_of(by, actor))
    return Paused(pause, not new, _apply_now(pause, now))


def agent_resume(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> Pause:
    """End the pause of an agent. Runs that were paused one by one stay paused."""
    with transaction.atomic():
        require_access(by, owner_id=agent.owner_id, permission=CHANGE_RUN)
        _require_may_resume(by)
        closed = _close(Pause.objects.filter(agent=agent), by=by, now=now)
        if closed is None:
            raise InvalidTransition(f"Agent {agent.name} is not paused; there is nothing to resume.")
        _record_agent("agent.resumed", closed, agent, now=now, actor=actor_of(by, actor))
    pauses_apply(now)
    return closed


def work_pause(*, by: User | None, reason: str = "", now: datetime, actor: str = SYSTEM) -> Paused:
    """Pause all work: every run is put aside, and what starts meanwhile waits. Pausing twice changes nothing."""
    if by is not None:
        require_halt_permission(by)
    with transaction.atomic():
        pause, new = _open(PauseScope.ORGANISATION, by=by, reason=reason, now=now, actor=actor)
        if new:
            details = _details(pause)
            recorder.append(SYSTEM_CHAIN, "organisation.paused", now=now, actor=actor_of(by, actor), details=details)
    return Paused(pause, not new, _apply_now(pause, now))


def work_resume(*, by: User | None, now: datetime, actor: str = SYSTEM) -> Pause:
    """End the pause of all work. Runs and agents that were paused on their own stay paused."""
    if by is not None:
        require_halt_permission(by)
    with transaction.atomic():
        closed = _close(Pause.objects.filter(scope=PauseScope.ORGANISATION), by=by, now=now)
        if closed is None:
            raise InvalidTransition("Work is not paused; there is nothing to resume.")
        details = {"pause_id": closed.pk}
        recorder.append(SYSTEM_CHAIN, "organisation.resumed", now=now, actor=actor_of(by, actor), details=details)
    pauses_apply(now)
    return closed


def trigger_runs_pause(trigger: Trigger, *, by: User | None, reason: str, now: datetime) -> None:
    """Pause the runs that a trigger has now. The caller has locked and paused the trigger, and applies it later."""
    pause, is_new = _open(PauseScope.TRIGGER, trigger=trigger, by=by, reason=reason, now=now, actor=SYSTEM)
    if not is_new:  # it covers the runs that came since, too
        Pause.objects.filter(pk=pause.pk).update(requested_at=now)


def trigger_runs_resume(trigger: Trigger, *, by: User | None, now: datetime) -> None:
    """End the pause of a trigger's runs, if there is one. The caller applies it later."""
    _close(Pause.objects.filter(trigger=trigger), by=by, now=now)


def sessions_spare(halt: Halt, *, now: datetime) -> int:
    """Pause the sessions that wait for a person instead of halting them with all work. Return how many."""
    waiting = waiting_for_person().filter(paused_at__isnull=True, halt_state__in=GOING_ON)

    def spare(row: AgentSession, at: datetime) -> bool:
        if row.status != Status.WAITING or row.paused_at is not None:
            return False
        facts: dict[str, Any] = {"by": halt.requested_by, "reason": halt.reason, "now": at, "actor": halt.actor}
        pause, _ = _open(PauseScope.SESSION, session=row, halt=halt, **facts)
        _mark(row, pause, now=at)
        return True

    return sum(_each(list(waiting.order_by("pk").values_list("pk", flat=True)), spare, now))


def spared_resume(halt: Halt, *, by: User | None, now: datetime) -> int:
    """End the pauses of the sessions that a halt spared; the caller applies it later. Return how many."""
    return Pause.objects.open().filter(halt=halt).update(resumed_at=now, resumed_by=by)


def waiting_for_person() -> QuerySet[AgentSession]:
    """Return the active sessions that only wait for a person, those that are paused included.

    Also those that wait for a run below them which does.
    """
    waiting = AgentSession.objects.filter(status=Status.WAITING)
    found = for_a_person = Q(waiting_on__in=_FOR_A_PERSON)
    for _ in range(MAX_DEPTH):
        below = waiting.filter(found, parent=OuterRef("pk"))
        found = for_a_person | Q(Exists(below), waiting_on=WaitingOn.RUNS)
    return waiting.filter(found)


def _require_may_resume(by: User | None) -> None:
    """A run that goes on costs money, like one that starts."""
    if by is not None:
        require_start_permission(by)


def _open(
    scope: PauseScope, *, by: User | None, reason: str, now: datetime, actor: str, **target: Any
) -> tuple[Pause, bool]:
    """Return the pause in force of this thing, and whether it is new."""
    facts = {"reason": reason, "requested_by": by, "requested_at": now, "actor": actor}
    return Pause.objects.get_or_create(scope=scope, resumed_at=None, **target, defaults=facts)


def _close(pauses: QuerySet[Pause], *, by: User | None, now: datetime) -> Pause | None:
    """End the pause in force among these; None if there is none, or somebody else was faster."""
    found = pauses.filter(resumed_at__isnull=True).first()
    if found is None or not pauses.filter(pk=found.pk, resumed_at__isnull=True).update(resumed_at=now, resumed_by=by):
        return None
    return found


def _record_agent(kind: str, pause: Pause, agent: Agent, *, now: datetime, actor: str) -> None:
    agent_id = str(agent.public_id)
    details = {"agent_id": agent_id, **(_details(pause) if kind == "agent.paused" else {"pause_id": pause.pk})}
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor, subject=f"agent:{agent_id}", details=details)


def _details(pause: Pause) -> dict[str, Any]:
    """Return what an audit event says of a pause: its id, and the digest of its reason, which is text of a person."""
    return {"pause_id": pause.pk, "reason_digest": digest(pause.reason)}


# --- Marking the sessions that a pause covers ---


def pauses_apply(now: datetime) -> int:
    """Mark sessions that a pause covers, and resume those that none covers any more; so many at a time."""
    return sum(_each(_to_mark(), _mark_if_covered, now)) + sum(_each(_to_resume(), _unmark_if_free, now))


def session_put_aside_if_paused(row: AgentSession, *, now: datetime) -> bool:
    """Put a session aside that a worker is about to take. The caller has locked the row, and leaves it alone."""
    if row.paused_at is None:
        pause = _covering(row)
        if pause is None:
            return False
        _note(row, pause, now=now)
    _put_aside(row)
    return True


def _apply_now(pause: Pause, now: datetime) -> int:
    pauses_apply(now)
    held = AgentSession.objects.filter(paused_at__isnull=False, completed_at__isnull=True)
    return held.filter(agent=pause.agent_id).count() if pause.agent_id else held.count()


def _covering(row: AgentSession) -> Pause | None:
    return Pause.objects.open().of(row).select_related("requested_by", "agent", "trigger").order_by("pk").first()


def _to_mark() -> list[int]:
    """Return sessions that go on although a pause covers them; those that a worker holds come first."""
    if not Pause.objects.open().exists():
        return []
    going = AgentSession.objects.filter(completed_at__isnull=True, paused_at__isnull=True, halt_state__in=GOING_ON)
    held_first = Case(When(status=Status.RUNNING, then=Value(0)), default=Value(1))
    covered = going.filter(Exists(Pause.objects.open().of())).order_by(held_first, "pk")
    return list(covered.values_list("pk", flat=True)[:MOST])


def _to_resume() -> list[int]:
    held = AgentSession.objects.filter(paused_at__isnull=False, completed_at__isnull=True)
    if not held.exists() or _is_all_halted():
        return []
    free = held.filter(~Exists(Pause.objects.open().of())).order_by("pk")
    return list(free.values_list("pk", flat=True)[:MOST])


def _is_all_halted() -> bool:
    return Installation.objects.filter(pk=1, halt__isnull=False).exists()


def _each(pks: list[int], act: Callable[[AgentSession, datetime], bool], now: datetime) -> list[bool]:
    """Act on each session under its lock, in a transaction of its own. One that fails is found again."""
    done = []
    for pk in pks:
        try:
            with transaction.atomic():
                done.append(act(session_lock(pk), now))
        except DatabaseError:
            logger.exception("the pause of session %s could not be applied; it is tried again", pk)
    return done


def _mark_if_covered(row: AgentSession, now: datetime) -> bool:
    pause = _covering(row)
    if pause is None or row.paused_at is not None or row.status in TERMINAL:
        return False
    _mark(row, pause, now=now)
    return True


def _unmark_if_free(row: AgentSession, now: datetime) -> bool:
    if row.paused_at is None or row.status in TERMINAL or _covering(row) is not None:
        return False
    last = Pause.objects.filter(resumed_at__isnull=False).of(row).order_by("-resumed_at").first()
    actor = actor_of(last.resumed_by) if last else SYSTEM
    _unmark(row, last, now=now, actor=actor)
    return True


def _mark(row: AgentSession, pause: Pause, *, now: datetime) -> None:
    _note(row, pause, now=now)
    row.save(update_fields=["paused_at"])
    if row.status == Status.QUEUED:
        _put_aside(row)


def _note(row: AgentSession, pause: Pause, *, now: datetime) -> None:
    row.paused_at = now
    actor = actor_of(pause.requested_by, pause.actor or SYSTEM)
    details = {**_details(pause), "scope": pause.scope}
    recorder.append(row.chain, "autonomous_session.pause_requested", now=now, actor=actor, details=details)


def _put_aside(row: AgentSession) -> None:
    """Let a session wait for `resume` that no worker holds. Whoever held it before can no longer write."""
    check_move(row.status, Status.WAITING)
    row.status = Status.WAITING
    row.waiting_on = WaitingOn.RESUME
    row.next_wake_at = None
    row.enqueued_at = None
    row.lease_owner = ""
    row.lease_until = None
    row.fencing += 1
    row.save(
        update_fields=[
            "status",
            "waiting_on",
            "next_wake_at",
            "enqueued_at",
            "lease_owner",
            "lease_until",
            "fencing",
            "recoveries",
            "paused_at",
        ]
    )


def _unmark(row: AgentSession, pause: Pause | None, *, now: datetime, actor: str) -> None:
    """Take the mark away and put the session back into the queue, if it waits for just that."""
    row.paused_at = None
    row.save(update_fields=["paused_at"])
    details = {"pause_id": pause.pk, "scope": pause.scope} if pause else {}
    recorder.append(row.chain, "autonomous_session.resume_requested", now=now, actor=actor, details=details)
    if row.waiting_on == WaitingOn.RESUME:
        session_wake(row.pk, now=now)
        row.refresh_from_db()


# --- Reading ---


def work_paused() -> Pause | None:
    """Return the pause of all work in force, if any; without a lock, for display."""
    paused = Pause.objects.open().filter(scope=PauseScope.ORGANISATION)
    return paused.select_related("requested_by").first()


def work_stopped() -> tuple[Halt | None, Pause | None]:
    """Return the halt and the pause of all work in force; by one small statement while there is neither."""
    with connection.cursor() as cursor:
        cursor.execute(_STOPPED, [PauseScope.ORGANISATION])
        is_halted, is_paused = cursor.fetchone() or (False, True)  # a new database has no such row yet
    return current_halt() if is_halted else None, work_paused() if is_paused else None


def pauses_open(limit: int) -> list[Pause]:
    """Return the pauses in force of runs, agents and all work, newest first. Those of triggers are on the triggers."""
    rows = Pause.objects.open().exclude(scope=PauseScope.TRIGGER)
    joins = ("requested_by", "agent", "session__owner", "session__agent", "session__trigger")
    return list(rows.select_related(*joins).order_by("-pk")[:limit])


TRIGGER_PAUSED: Final = "autonomous_trigger.paused"


def triggers_paused(limit: int) -> list[tuple[Trigger, Pause | None, str]]:
    """Return the paused triggers, newest first.

    Each comes with the pause that holds up its runs, if there is one, and the name of the person who paused it.
    """
    rows = list(Trigger.objects.filter(paused_at__isnull=False, deleted_at__isnull=True).order_by("-paused_at")[:limit])
    held = {
        pause.trigger_id: pause
        for pause in Pause.objects.open().filter(trigger__in=rows).select_related("requested_by")
    }
    paused = AuditEvent.objects.filter(kind=TRIGGER_PAUSED, at__in=[row.paused_at for row in rows])
    actors = {str(event.details.get("trigger_id")): event.actor for event in paused}
    names = usernames(actors.values())
    return [(row, held.get(row.pk), names.get(actors.get(str(row.public_id), ""), "")) for row in rows]


def pauses_of(row: AgentSession) -> list[Pause]:
    """Return the pauses in force that hold a session up, oldest first."""
    pauses = Pause.objects.open().of(row).select_related("requested_by", "agent", "trigger", "session")
    return list(pauses.order_by("pk"))


_NAMED: Final[dict[str, str]] = {
    PauseScope.SESSION: "The run",
    PauseScope.AGENT: "Agent {agent}",
    PauseScope.TRIGGER: "Trigger {trigger}",
    PauseScope.ORGANISATION: "All work",
}


def pause_message(pause: Pause) -> str:
    """Say what is paused, by whom, since when, and why."""
    what = _NAMED[pause.scope].format(
        agent=pause.agent.name if pause.agent else "", trigger=pause.trigger.name if pause.trigger else ""
    )
    by = pause.requested_by.get_username() if pause.requested_by else "somebody unnamed"
    why = f": {pause.reason.rstrip('.')}" if pause.reason else ""
    return f"{what} is paused by {by} since {pause.requested_at:%Y-%m-%d %H:%M} UTC{why}."
