"""When a trigger may not fire, and the record of it, bounded however often somebody asks.

Two counts, neither of them a column: runs of the last hour are the trigger's sessions, and refusals for rate are its
refused events or, for triggers that take none, its refusals in the record. Too many of those blow the fuse: the trigger
is paused, and nothing more is written for what it refuses. All of it happens under the trigger's lock.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from agents.enums import EventOutcome, TriggerKind
from agents.ledger.boundary import may_run_for
from agents.ledger.trigger_health import STORM, subject_of, trigger_record, trigger_stop
from agents.models import AgentSession, InboundEvent, Installation, Trigger
from audit.models import AuditEvent

MAX_DEPTH: Final = 3
FUSE: Final = 3  # times the hourly limit, in refusals within an hour
HOUR: Final = timedelta(hours=1)
SAID_EVERY: Final = timedelta(minutes=1)
HALTED_RETRY_SECONDS: Final = 60
_REFUSED: Final = "autonomous_trigger.refused"


class Reason(StrEnum):
    DELETED = "deleted"
    DISABLED = "disabled"
    PAUSED = "paused"
    STORM = STORM
    OPTED_OUT = "opted_out"
    HALTED = "halted"
    DEPTH = "depth"
    RATE = "rate"
    GAVE_UP = "gave_up"


@dataclass(frozen=True)
class Refused:
    """Why a trigger did not fire, and after how many seconds it may be worth asking again; 0 is not known."""

    reason: Reason
    retry_after: int = 0


def all_work_halted() -> bool:
    return Installation.objects.filter(pk=1, halt__isnull=False).exists()


def refusal(row: Trigger, *, depth: int, now: datetime) -> Refused | None:
    """The first reason that keeps the trigger from firing now; None when it may."""
    if reason := _standing(row):
        return Refused(reason, int(HOUR.total_seconds()) if reason == Reason.STORM else 0)
    if all_work_halted():
        return Refused(Reason.HALTED, HALTED_RETRY_SECONDS)
    if depth > MAX_DEPTH:
        return Refused(Reason.DEPTH)
    wait = _rate_wait(row, now)
    return Refused(Reason.RATE, wait) if wait else None


def _standing(row: Trigger) -> Reason | None:
    if row.deleted_at is not None:
        return Reason.DELETED
    if not row.enabled or (row.agent is not None and not row.agent.enabled):
        return Reason.DISABLED
    if row.paused_at is not None:
        return Reason.STORM if row.pause_reason == STORM else Reason.PAUSED
    if not may_run_for(row.owner_id):
        return Reason.OPTED_OUT
    return None


def _rate_wait(row: Trigger, now: datetime) -> int:
    """Seconds until the trigger has room for one more run in the hour; 0 when it has. Reads a single row."""
    most = row.max_runs_per_hour
    newest_first = AgentSession.objects.filter(trigger=row).order_by("-pk").values_list("created_at", flat=True)
    taken_at = next(iter(newest_first[most - 1 : most]), None) if most else now
    if taken_at is None or taken_at <= now - HOUR:
        return 0
    return max(1, int((taken_at + HOUR - now).total_seconds()))


def refusal_record(row: Trigger, refused: Refused, *, slot: str, depth: int, now: datetime) -> None:
    """Writes down a refusal, and pauses a trigger that is asked too often. A storm leaves few rows behind."""
    if refused.reason == Reason.STORM:
        return
    is_rate = refused.reason == Reason.RATE
    if is_rate and _refused_for_rate(row, now) + 1 >= FUSE * row.max_runs_per_hour:
        trigger_stop(row, STORM, now=now)
    # A schedule cannot ask more than once a minute, and its rows are what the fuse counts; events are rows themselves.
    counted_here = is_rate and row.kind != TriggerKind.EVENT
    if counted_here or not _said_lately(row, refused.reason, now):
        trigger_record(row, _REFUSED, now=now, reason=refused.reason, slot=slot, depth=depth)


def _refused_for_rate(row: Trigger, now: datetime) -> int:
    """Refusals of the last hour, or since the trigger was last let go on: a resumed trigger starts with a new fuse."""
    since = now - HOUR
    resumed = AuditEvent.objects.filter(kind="autonomous_trigger.resumed", subject=subject_of(row), at__gt=since)
    since = resumed.order_by("-id").values_list("at", flat=True).first() or since
    if row.kind == TriggerKind.EVENT:
        events = InboundEvent.objects.filter(trigger=row, outcome=EventOutcome.REFUSED)
        return events.filter(received_at__gt=since).count()
    said = AuditEvent.objects.filter(kind=_REFUSED, subject=subject_of(row), at__gt=since)
    return said.filter(details__reason=Reason.RATE.value).count()


def _said_lately(row: Trigger, reason: Reason, now: datetime) -> bool:
    said = AuditEvent.objects.filter(kind=_REFUSED, subject=subject_of(row), at__gt=now - SAID_EVERY)
    return said.filter(details__reason=reason.value).exists()
