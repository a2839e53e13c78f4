"""Rows that nobody needs: long texts that no row names, ended browser sessions, read notices, and the like."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from django.contrib.sessions.models import Session as BrowserSession
from django.db import models
from django.db.models import Q, QuerySet

from agents.enums import OutboxStatus
from agents.models import Message, Notification, SharedText, StreamPart, ToolCall
from agents.models.shared_texts import AT_ONCE, NOTED_AGAIN, named_texts
from agents.policy.transitions import TERMINAL
from agents.queue import failed_tasks
from audit.rows import AsStored

AT_A_TIME: Final = 1_000

# By the name in reports: the rows that may go, given the time before which things are old, and the present time.
Rows = Callable[[datetime, datetime], QuerySet[Any]]


def _read_notices(before: datetime, _now: datetime) -> QuerySet[Any]:
    sent = ~Q(copies__status=OutboxStatus.PENDING)
    return Notification.objects.filter(sent, read_at__isnull=False, created_at__lt=before)


OLD_ROWS: Final[dict[str, Rows]] = {
    "ended browser sessions": lambda _before, now: BrowserSession.objects.filter(expire_date__lt=now),
    "read notices": _read_notices,
    "stream parts of ended runs": lambda before, _now: StreamPart.objects.filter(
        session__status__in=sorted(TERMINAL), created_at__lt=before
    ),
    "failed tasks of the queue": lambda before, _now: failed_tasks(before),
}


def count_old_rows(before: datetime, *, now: datetime) -> dict[str, int]:
    return {name: rows(before, now).count() for name, rows in OLD_ROWS.items()}


def delete_old_rows(before: datetime, *, now: datetime) -> dict[str, int]:
    """Delete the rows, some at a time, and return how many of each kind."""
    return {name: _delete(rows(before, now)) for name, rows in OLD_ROWS.items()}


def _delete(rows: QuerySet[Any]) -> int:
    gone = 0
    while pks := list(rows.order_by("pk").values_list("pk", flat=True)[:AT_A_TIME]):
        models.QuerySet(rows.model).filter(pk__in=pks).delete()
        gone += len(pks)
    return gone


# --- Long texts ---
#
# A text that was used since is noted as such, in the transaction of the row that names it or before. So a text without
# a note can only be named by rows that are as old: those of runs that are kept although they are.


def delete_unnamed_texts(before: datetime) -> int:
    """Delete the texts that were last used before this time and that no row names any more."""
    old = SharedText.objects.filter(used_at__lt=before - NOTED_AGAIN)
    if not old.exists():
        return 0
    named = set(_named_before(before))
    gone, last = 0, ""
    while digests := list(old.filter(digest__gt=last).order_by("digest").values_list("digest", flat=True)[:AT_ONCE]):
        last = digests[-1]
        unnamed = [digest for digest in digests if digest not in named]
        gone += old.filter(digest__in=unnamed).delete()[0]
    return gone


def _named_before(before: datetime) -> Iterator[str]:
    columns = (
        (ToolCall.objects.filter(started_at__lt=before), ("arguments", "result")),
        (Message.objects.filter(created_at__lt=before), ("content",)),
    )
    for rows, names in columns:
        raw = [AsStored(name) for name in names]
        for values in rows.order_by("pk").values_list(*raw).iterator(chunk_size=AT_A_TIME):
            for value in values:
                yield from named_texts(value)
