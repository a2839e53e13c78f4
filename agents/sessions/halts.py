"""Halts: of one session, of an agent's sessions, of all work; and the release.

A halt commits at once, whatever a worker is doing; that of all work waits for no writer of the audit log either. The
audit log names `actor` if `by` is nobody: a command run without a user, or the system.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.db.models import Q, QuerySet

from agents.enums import HaltScope, HaltState, Status, TerminalReason
from agents.exceptions import InvalidTransition
from agents.ledger.boundary import GOING_ON, halt_details, halt_message
from agents.models import AgentSession, Halt, Installation
from agents.people.access import SYSTEM, actor_of
from agents.policy.transitions import TERMINAL
from agents.sessions.ending import session_end_unheld
from agents.sessions.lifecycle import session_lock
from agents.sessions.pauses import pauses_apply, sessions_spare, spared_resume, waiting_for_person
from audit import recorder
from audit.models import SYSTEM_CHAIN, AuditEvent

logger = logging.getLogger(__name__)

MOST = 200  # sessions that the ticker halts at a time
RECORD_PATIENCE = timedelta(milliseconds=10)


class HaltAnswer(StrEnum):
    REQUESTED = "requested"
    ALREADY = "already_halted"
    OVER = "terminal"


@dataclass(frozen=True)
class HaltCount:
    """Result of halting several sessions."""

    requested: int = 0
    already_halted: int = 0
    terminal: int = 0
    failed: int = 0


@dataclass(frozen=True)
class AllHalted:
    """Result of halting all work: the halt in force, whether it is an older one, and how many sessions are active.

    Of the active ones, those that are spared stay; the others end.
    """

    halt: Halt
    already: bool
    active: int
    spared: int = 0

    @property
    def ending(self) -> int:
        return max(self.active - self.spared, 0)


@transaction.atomic
def session_halt(
    session_pk: int,
    *,
    by: User | None,
    reason: str,
    now: datetime,
    halt: Halt | None = None,
    ends_as: TerminalReason = TerminalReason.EXTERNAL_HALT,
    actor: str = SYSTEM,
) -> HaltAnswer:
    """Request a session's halt. One that nobody holds (queued, sleeping, waiting) ends in the same transaction.

    The reason it is to end with stands on its row until its worker reaches a boundary.
    """
    session = session_lock(session_pk)
    if session.status in TERMINAL:
        return HaltAnswer.OVER
    if session.halt_state in {HaltState.HALT_REQUESTED, HaltState.HALTED}:
        return HaltAnswer.ALREADY
    halt = halt or Halt.objects.create(
        scope=HaltScope.SESSION, session=session, reason=reason, requested_by=by, requested_at=now
    )
    session.halt_state = HaltState.HALT_REQUESTED
    session.terminal_reason = None if ends_as == TerminalReason.EXTERNAL_HALT else ends_as
    session.save(update_fields=["halt_state", "terminal_reason"])
    recorder.append(
        session.chain,
        "autonomous_session.halt_requested",
        now=now,
        actor=actor_of(by, actor),
        details={**halt_details(halt), "scope": halt.scope},
    )
    if session.status != Status.RUNNING:
        session_end_unheld(session, ends_as, now=now, actor=actor_of(by, actor))
    return HaltAnswer.REQUESTED


def sessions_halt(
    session_pks: list[int],
    *,
    by: User | None,
    reason: str,
    now: datetime,
    halt: Halt | None = None,
    ends_as: TerminalReason = TerminalReason.EXTERNAL_HALT,
    actor: str = SYSTEM,
) -> HaltCount:
    """Halt each session on its own, so that one failure does not keep the others running."""
    answers: list[HaltAnswer | None] = []
    for pk in session_pks:
        try:
            answers.append(session_halt(pk, by=by, reason=reason, now=now, halt=halt, ends_as=ends_as, actor=actor))
        except DatabaseError:
            logger.exception("session %s could not be halted; halt it again", pk)
            answers.append(None)
    requested, already, over = (answers.count(kind) for kind in HaltAnswer)
    return HaltCount(requested, already, over, failed=answers.count(None))


def agents_halt(
    agent_pks: Iterable[int], *, by: User | None, reason: str, now: datetime, actor: str = SYSTEM
) -> HaltCount:
    """Halt every active session of these agents. Their triggers may still fire."""
    active = AgentSession.objects.active().filter(agent__in=list(agent_pks))
    pks = list(active.order_by("pk").values_list("pk", flat=True))
    return sessions_halt(pks, by=by, reason=reason, now=now, actor=actor)


def halt_all_work(
    *, by: User | None, reason: str = "", now: datetime, actor: str = SYSTEM, spare_waiting: bool = True
) -> AllHalted:
    """Halt all work by one row that stops every call. Again, it changes nothing.

    With `spare_waiting`, runs that only wait for a person are paused instead of ended; they can make no call either.

    It waits for no call and for no other writer of the audit log; on SQLite for the one write lock that there is. Its
    audit event is committed with it and gets its place in the chain at once, or from the ticker, which also halts the
    active sessions one by one (`halted_work_end`).
    """
    halt = new = None
    while halt is None:  # again, if somebody else's halt was released in between
        new = _put_in_force(by=by, reason=reason, now=now, actor=actor, spares=spare_waiting)
        halt = new or _in_force()
    recorder.append_pending(patience=RECORD_PATIENCE)
    if halt.spares_waiting:
        sessions_spare(halt, now=now)
    active = AgentSession.objects.active_count()
    return AllHalted(halt, new is None, active, max(active - ended_by(halt).count(), 0) if halt.spares_waiting else 0)


def _put_in_force(*, by: User | None, reason: str, now: datetime, actor: str, spares: bool) -> Halt | None:
    """Return the new halt; None, writing nothing, while another is in force."""
    with transaction.atomic():
        halt = Halt.objects.create(
            scope=HaltScope.ORGANISATION,
            reason=reason,
            requested_by=by,
            requested_at=now,
            actor=actor,
            spares_waiting=spares,
        )
        if not Installation.objects.filter(pk=1, halt__isnull=True).update(halt=halt):
            transaction.set_rollback(True)
            return None
        details = halt_details(halt)
        recorder.append_soon(SYSTEM_CHAIN, "organisation.halted", now=now, actor=actor_of(by, actor), details=details)
    return halt


def _in_force() -> Halt | None:
    return Installation.objects.select_related("halt__requested_by").get(pk=1).halt


def already_halted_message(found: AllHalted) -> str:
    """Return the message for whoever halts all work while it is halted."""
    active = {0: "No run is left to end.", 1: "1 run is still ending."}.get(
        found.ending, f"{found.ending} runs are ending."
    )
    return f"{halt_message(found.halt, already=True)} {active} The halt keeps its reason."


def halted_work_end(now: datetime) -> int:
    """While all work is halted, halt active sessions one by one, so many at a time, and pause those it spares."""
    halt = _in_force()
    if halt is None:
        return 0
    if halt.spares_waiting:
        sessions_spare(halt, now=now)
    by, actor = halt.requested_by, halt.actor or SYSTEM
    return sessions_halt(_going_on(halt), by=by, reason=halt.reason, now=now, halt=halt, actor=actor).requested


def _going_on(halt: Halt, after: int = 0) -> list[int]:
    """Return active sessions that the halt is to end, so many at a time."""
    going = ended_by(halt).filter(halt_state__in=GOING_ON, pk__gt=after)
    return list(going.order_by("pk").values_list("pk", flat=True)[:MOST])


def ended_by(halt: Halt) -> QuerySet[AgentSession]:
    """Return the active sessions that the halt ends: all, or those that neither wait for a person nor are put aside."""
    active = AgentSession.objects.active()
    if not halt.spares_waiting:
        return active
    put_aside = Q(paused_at__isnull=False) & ~Q(status=Status.RUNNING)
    return active.exclude(pk__in=waiting_for_person().values("pk")).exclude(put_aside).exclude(pauses__halt=halt)


def release_all_work(*, by: User | None, now: datetime, actor: str = SYSTEM, resume_spared: bool = True) -> Halt:
    """Let new work start again. Halted sessions stay halted, including those that the halt had missed.

    Those that it spared are resumed, or stay paused for people to resume them one by one.

    The installation's row is written last, so that a release which waits for the audit log holds up no other halt.
    """
    halt = _in_force()
    if halt is None:
        raise InvalidTransition("Work is not halted; there is nothing to release.")
    after = failed = 0
    while pks := _going_on(halt, after):
        failed += sessions_halt(pks, by=by, reason=halt.reason, now=now, halt=halt, actor=actor).failed
        after = pks[-1]
    if failed:
        raise InvalidTransition(f"{failed} runs could not be halted yet, and would go on. Release again in a moment.")
    recorder.append_pending()
    if halt.spares_waiting and not resume_spared:
        sessions_spare(halt, now=now)  # no ticker may have run since the halt
    with transaction.atomic():
        if resume_spared:  # before the audit log: whoever ends a run takes its pause first, too
            spared_resume(halt, by=by, now=now)
        details = {"halt_id": halt.pk}
        recorder.append(SYSTEM_CHAIN, "organisation.released", now=now, actor=actor_of(by, actor), details=details)
        halt.released_by = by
        halt.released_at = now
        halt.save(update_fields=["released_by", "released_at"])
        if not Installation.objects.filter(pk=1, halt=halt).update(halt=None):
            raise InvalidTransition("Somebody else has released it; there is nothing to release.")
    pauses_apply(now)
    return halt


def halt_reach(halt: Halt) -> int:
    """Return how many sessions the halt has stopped, counting repeated calls."""
    asked = AuditEvent.objects.of_kind("autonomous_session.halt_requested").filter(details__halt_id=halt.pk)
    return asked.count()
