"""Schedules: fire those that are due, each in a transaction of its own, so that a bad one stops no other.

What was missed while nothing ran is made up for once, if it is not too long ago. The next run is computed when a firing
is decided, so of two processes that look at once the second finds nothing due.

The first run of a schedule is its baseline and reads nothing. A later run reads what was attached after the run before
it and up to itself, or what of that matches its query. That end is written on the collection (on all of the owner's,
for a schedule with a query alone) before the run is started; whatever is attached later counts as new. If there is more
than one run can read, it reads the first part, and the next run begins there (`read_up_to`). All of this is decided
when the schedule fires. A run that fails is followed by another for the same period (agents/ledger/inputs.py).
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from agents.enums import TriggerKind
from agents.exceptions import Invalid
from agents.knowledge.search import documents_new_in, readable_until
from agents.ledger.trigger_health import BAD_CRON, trigger_lock, trigger_record, trigger_stop
from agents.models import AgentSession, Collection, Trigger
from agents.policy import schedule
from agents.policy.run_spec import RunSpec
from agents.triggers.firing import Fired, Reason, Refused, all_work_halted, trigger_fire

logger = logging.getLogger(__name__)

# A firing that the ticker reaches a little late is on time, also for a schedule without catch-up.
ON_TIME: Final = timedelta(minutes=2)
_JUST_BEFORE: Final = timedelta(microseconds=1)
_NOT_NOW: Final = frozenset({Reason.HALTED, Reason.OPTED_OUT})


def schedules_fire(*, now: datetime, limit: int = 100) -> int:
    """Fire what is due, longest due first; return how many sessions were started. While halted, nothing moves."""
    due = list(Trigger.objects.due(now).order_by("next_run_at", "pk").values_list("pk", "collection_id")[:limit])
    if not due or all_work_halted():
        return 0
    return sum(_try(pk, collection_pk, now=now) for pk, collection_pk in due)


def next_schedule(now: datetime) -> datetime | None:
    """Return when the next schedule is due."""
    live = Trigger.objects.live().filter(kind=TriggerKind.SCHEDULE, next_run_at__isnull=False)
    return live.order_by("next_run_at").values_list("next_run_at", flat=True).first()


def schedules_replan(*, now: datetime) -> int:
    """After the clock was set back, move next runs that lie too far ahead.

    Times that were fired while the clock was ahead are not fired again: their slots are taken.
    """
    planned = Trigger.objects.filter(kind=TriggerKind.SCHEDULE, deleted_at__isnull=True, next_run_at__gt=now)
    return sum(_replan(row, now=now) for row in list(planned.only("cron", "zone", "next_run_at")))


def _replan(row: Trigger, *, now: datetime) -> bool:
    try:
        next_run_at = schedule.next_after(row.cron, row.zone, now)
    except Invalid:
        return False  # it is paused when it is due
    unchanged = Trigger.objects.filter(pk=row.pk, cron=row.cron, zone=row.zone, next_run_at=row.next_run_at)
    return bool(unchanged.filter(next_run_at__gt=next_run_at).update(next_run_at=next_run_at))


def _try(trigger_pk: int, collection_pk: int | None, *, now: datetime) -> bool:
    try:
        _set_read(trigger_pk, collection_pk, now)
        return _fire(trigger_pk, collection_pk, now=now)
    except Invalid as error:
        logger.warning("schedule %s is paused: %s", trigger_pk, error)
        _stop_unreadable(trigger_pk, now=now)
    except Exception:  # the other schedules are fired all the same
        logger.exception("schedule %s could not be fired; it is tried again", trigger_pk)
    return False


def _set_read(trigger_pk: int, collection_pk: int | None, now: datetime) -> None:
    """Mark its collection as read up to now; for a schedule with a query alone, each of its owner's.

    Each in a transaction of its own: it waits for whoever is attaching, and everybody who attaches later sees it.
    """
    behind = Collection.objects.filter(Q(read_at__isnull=True) | Q(read_at__lt=now))
    all_there = {"owner__lqops_triggers": trigger_pk, "deleted_at__isnull": True}
    read = all_there if collection_pk is None else {"pk": collection_pk}
    for pk in list(behind.filter(**read).values_list("pk", flat=True)):
        behind.filter(pk=pk).update(read_at=now)


@transaction.atomic
def _stop_unreadable(trigger_pk: int, *, now: datetime) -> None:
    row = trigger_lock(trigger_pk)
    if row is not None and row.paused_at is None:
        trigger_stop(row, BAD_CRON, now=now)


@transaction.atomic
def _fire(trigger_pk: int, collection_pk: int | None, *, now: datetime) -> bool:
    """Decide on one schedule under its lock. Whoever holds it, or has just changed it, decides instead."""
    locked = Trigger.objects.due(now).select_for_update(skip_locked=True, no_key=True, of=("self",))
    row = locked.filter(pk=trigger_pk, collection=collection_pk).first()
    if row is None or row.next_run_at is None:
        return False
    slot_at, due = schedule.missed_since(row.cron, row.zone, after=row.next_run_at - _JUST_BEFORE, now=now)
    next_run_at = schedule.next_after(row.cron, row.zone, now)
    since, until, waiting = _period(row, now=now)
    inputs = RunSpec.of(
        collection=row.collection,
        since=since and since.isoformat(),
        until=until.isoformat() if waiting else None,
        baseline=since is None,
        put_off=waiting,
    )
    answer = _decide(row, slot_at, due, inputs, now=now)
    if isinstance(answer, Refused) and answer.reason in _NOT_NOW:
        return False
    row.next_run_at = next_run_at
    fired = isinstance(answer, Fired) and answer.first
    if fired:
        # What was read while the clock was ahead is not read again.
        row.last_run_at = max(now, row.last_run_at or now)
        read = max(until, since or until)
        row.read_up_to = read if read < row.last_run_at else None
    row.save(update_fields=["next_run_at", "last_run_at", "read_up_to"])
    return fired


def _period(row: Trigger, *, now: datetime) -> tuple[datetime | None, datetime, int]:
    """Return since and until of a run, and how many documents are left for the next because they do not fit."""
    since = row.last_run_at and (row.read_up_to or row.last_run_at)
    if since is None or row.collection is None or row.query:
        return since, now, 0
    listed = documents_new_in(owner_id=row.owner_id, collection=row.collection, after=since, until=now)
    until = readable_until(listed) or now
    return since, until, sum(sized.attached_at > until for sized in listed)


def _decide(
    row: Trigger, slot_at: datetime | None, due: int, inputs: RunSpec, *, now: datetime
) -> Fired | Refused | None:
    """Fire the last time that was due, or record why not."""
    if slot_at is None:
        return None
    slot = f"cron:{int(slot_at.timestamp())}"
    if now - slot_at > max(ON_TIME, timedelta(minutes=row.catch_up_minutes)):
        _record_skipped(row, "missed", slot=slot, missed=due, now=now)
        return None
    if AgentSession.objects.active().filter(trigger=row).exists():
        _record_skipped(row, "overlap", slot=slot, missed=due, now=now)
        return None
    answer = trigger_fire(trigger=row, slot=slot, inputs=inputs, now=now)
    if due > 1 and isinstance(answer, Fired):
        _record_skipped(row, "missed", slot=slot, missed=due - 1, now=now)
    return answer


def _record_skipped(row: Trigger, reason: str, *, slot: str, missed: int, now: datetime) -> None:
    trigger_record(row, "autonomous_schedule.skipped", now=now, reason=reason, slot=slot, missed=missed)
