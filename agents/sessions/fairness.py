"""Which waiting run is next, when a run gives up its worker, and whether the queue holds enough tasks.

A task of the queue only says that there is work; the worker that takes it asks here. The order: runs whose worker was
lost; then urgent runs (chats, and runs that a person has just answered); then the rest. Within each of the last two the
owner who was served least recently comes first, then that owner's trigger that was served least recently, then the run
that has waited longest. Owners and triggers are found by skipping through an index, so a long backlog costs nothing.
"""

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection

from agents.conf import clock, slice_lifetime
from agents.database_clock import shared
from agents.enums import Status, Urgency
from agents.models import AgentSession
from agents.queue import TaskName, count_tasks, enqueue

MOST: Final = 200  # tasks that are sent at a time
SHORT_SLICE: Final = timedelta(seconds=5)
_ROWS: Final = AgentSession._meta.db_table
# The status is written out: an index with a condition is not found for a parameter. Each step of a skip names the whole
# order of the index `session_next`, or PostgreSQL takes another index and filters the backlog.
_WAITING: Final = f"FROM {_ROWS} s WHERE s.status = '{Status.QUEUED.value}' AND s.urgency = %(urgency)s"
_BY_OWNER: Final = "ORDER BY s.owner_id, s.trigger_id, s.enqueued_at, s.id LIMIT 1"
_BY_TRIGGER: Final = "ORDER BY s.trigger_id, s.enqueued_at, s.id LIMIT 1"
# One waiting run of each owner
_OWNERS: Final = f"""
    WITH RECURSIVE owners(run) AS (
        SELECT (SELECT s.id {_WAITING} {_BY_OWNER})
        UNION ALL
        SELECT (
            SELECT s.id {_WAITING}
            AND s.owner_id > (SELECT r.owner_id FROM {_ROWS} r WHERE r.id = owners.run) {_BY_OWNER}
        ) FROM owners WHERE owners.run IS NOT NULL
    )"""  # noqa: S608 names of our own
_NEXT_OWNERS: Final = f"""{_OWNERS}
    SELECT r.owner_id FROM owners JOIN {_ROWS} r ON r.id = owners.run
    ORDER BY (
        SELECT max(s.claimed_at) FROM {_ROWS} s WHERE s.owner_id = r.owner_id AND s.claimed_at <= %(now)s
    ) NULLS FIRST, r.owner_id"""  # noqa: S608
_COUNTS: Final = f"""{_OWNERS}
    SELECT r.owner_id, (SELECT count(*) FROM (SELECT 1 {_WAITING} AND s.owner_id = r.owner_id LIMIT %(most)s) found)
    FROM owners JOIN {_ROWS} r ON r.id = owners.run"""  # noqa: S608
# The run of each trigger of one owner that has waited longest; those without a trigger are the last
_OWN: Final = f"{_WAITING} AND s.owner_id = %(owner)s"
_NEXT_RUN: Final = f"""
    WITH RECURSIVE triggers(run) AS (
        SELECT (SELECT s.id {_OWN} AND s.trigger_id IS NOT NULL {_BY_TRIGGER})
        UNION ALL
        SELECT (
            SELECT s.id {_OWN}
            AND s.trigger_id > (SELECT r.trigger_id FROM {_ROWS} r WHERE r.id = triggers.run) {_BY_TRIGGER}
        ) FROM triggers WHERE triggers.run IS NOT NULL
    )
    SELECT run FROM (
        SELECT r.id AS run, (
            SELECT max(s.claimed_at) FROM {_ROWS} s
            WHERE s.owner_id = %(owner)s AND s.trigger_id = r.trigger_id AND s.claimed_at <= %(now)s
        ) AS served FROM triggers JOIN {_ROWS} r ON r.id = triggers.run
        UNION ALL
        SELECT (SELECT s.id {_OWN} AND s.trigger_id IS NULL {_BY_TRIGGER}), (
            SELECT s.claimed_at FROM {_ROWS} s
            WHERE s.owner_id = %(owner)s AND s.trigger_id IS NULL AND s.claimed_at <= %(now)s
            ORDER BY s.trigger_id DESC, s.claimed_at DESC LIMIT 1
        )
    ) lanes WHERE run IS NOT NULL ORDER BY served NULLS FIRST, run LIMIT 1"""  # noqa: S608


def urgent_waits() -> bool:
    """Return whether somebody waits for a run: a chat, or one that a person has just answered."""
    return bool(_select(_NEXT_OWNERS, urgency=Urgency.URGENT))


def next_run(now: datetime, *, only_urgent: bool = False) -> int | None:
    """Return the primary key of the run to work on next. It may be taken by others at any time."""
    if only_urgent:
        return _first(Urgency.URGENT, now, without=())
    lost: int | None = AgentSession.objects.lost(now).order_by("lease_until").values_list("pk", flat=True).first()
    if lost is not None:
        return lost
    return _first(Urgency.URGENT, now, without=()) or _first(Urgency.BATCH, now, without=_full_owners())


def _first(urgency: Urgency, now: datetime, *, without: Collection[int]) -> int | None:
    owners = [owner for (owner,) in _select(_NEXT_OWNERS, urgency=urgency, now=now) if owner not in without]
    for owner in owners[:1]:
        for (pk,) in _select(_NEXT_RUN, urgency=urgency, owner=owner, now=now):
            return int(pk)
    return None


def tasks_send(now: datetime) -> int:
    """Send tasks for waiting runs if the queue holds fewer than could be worked on.

    Whatever the queue has lost is replaced by this. It never holds many more tasks than runs, however long workers are
    away. Runs of an owner who has no room are not counted: no worker could take them.
    """
    if not has_work():
        return 0
    most, running = int(settings.LQOPS_MAX_RUNNING_PER_USER), _running()
    batch = _select(_COUNTS, urgency=Urgency.BATCH, most=most)
    due: int = sum(max(min(number, most - running[owner]), 0) for owner, number in batch)
    due += sum(number for _, number in _select(_COUNTS, urgency=Urgency.URGENT, most=MOST))
    due += AgentSession.objects.lost(now)[:MOST].count()
    due = min(due, MOST)
    missing = due - count_tasks(most=due)
    for _ in range(missing):
        enqueue(TaskName.RUN_SESSION, 0)
    return missing


def has_work() -> bool:
    """Return whether a session waits for a worker, or has one and may lose it."""
    return AgentSession.objects.filter(status__in=(Status.QUEUED, Status.RUNNING)).exists()


def slice_is_over(session: AgentSession, started_at: datetime) -> bool:
    """Return whether the run should give up its worker at this boundary.

    At the end of its slice; earlier if the worker is needed more by others: by an urgent or lost run, or by an owner
    without any worker while this one has several.
    """
    worked = clock() - started_at
    if worked >= slice_lifetime():
        return True
    return worked >= SHORT_SLICE and session.urgency == Urgency.BATCH and _is_needed_elsewhere(session)


def _is_needed_elsewhere(session: AgentSession) -> bool:
    if AgentSession.objects.lost(shared(clock())).exists() or _select(_NEXT_OWNERS, urgency=Urgency.URGENT):
        return True
    running = _running()
    if running[session.owner_id] <= 1:
        return False
    return any(not running[owner] for (owner,) in _select(_NEXT_OWNERS, urgency=Urgency.BATCH))


def _full_owners() -> list[int]:
    return [owner for owner, running in _running().items() if running >= settings.LQOPS_MAX_RUNNING_PER_USER]


def _running() -> Counter[int]:
    return Counter(AgentSession.objects.taking_room().values_list("owner_id", flat=True))


def _select(sql: str, **params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"now": clock(), **params})
        return list(cursor.fetchall())
