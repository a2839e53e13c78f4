"""What time or a crash has left undone, found in the rows and handed on: sleepers, sessions that the queue lost, and
sessions whose worker is gone. Each sweep takes a bounded number of rows and leaves the rest for the next.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Count, F, Q, Window
from django.db.models.functions import RowNumber

from agents.conf import max_running_per_user, requeue_after
from agents.enums import Status
from agents.models import AgentSession
from agents.queue import TaskName, enqueue, waiting
from agents.sessions.lifecycle import session_enqueue, session_wake

MOST = 200
AGES = 10
LOST_AGAIN_AFTER = timedelta(seconds=10)


def sleepers_wake(now: datetime) -> int:
    """Puts sleeping sessions whose time has come back into the queue."""
    due = AgentSession.objects.filter(status=Status.SLEEPING, next_wake_at__lte=now).order_by("next_wake_at")
    return sum(session_wake(pk, now=now) for pk in list(due.values_list("pk", flat=True)[:MOST]))


def queued_again(now: datetime) -> int:
    """Hands queued sessions to the queue that it never got, or has kept for so long that it may have lost them.

    A session that was sent back because its owner had enough of them running goes again when there is room.
    """
    kept_long = AgentSession.objects.filter(_handed_over_by(now, requeue_after()), status=Status.QUEUED)
    pks = [*kept_long.order_by("enqueued_at", "pk").values_list("pk", flat=True)[:MOST], *_sent_back_with_room()]
    return sum(session_enqueue(pk, now=now) for pk in pks)


def _handed_over_by(now: datetime, after: timedelta) -> Q:
    """Handed over so long ago that it may be lost, or at a time still to come: then the clock was set back since."""
    return Q(enqueued_at__lte=_passed_over(now, after)) | Q(enqueued_at__gt=now + after)


def _passed_over(now: datetime, after: timedelta) -> datetime:
    """What was handed over until then is not in the queue any more, as far as can be told: what waits came later.

    While workers are away nothing is taken, and so nothing is handed over again and again.
    """
    found = waiting(now)
    if found.count and found.oldest_at is None:
        return now - AGES * after  # Redis keeps no times; after so long it is tried all the same
    return min(now - after, found.oldest_at - timedelta(microseconds=1)) if found.oldest_at else now - after


def _sent_back_with_room() -> Iterator[int]:
    """The first of each owner who has room, then the second, …: nobody's backlog keeps anybody else waiting."""
    most = max_running_per_user()
    running = AgentSession.objects.taking_room().values_list("owner_id").annotate(Count("pk"))
    taken = Counter(dict(running))
    full = [owner for owner, number in taken.items() if number >= most]
    turn = Window(RowNumber(), partition_by=F("owner_id"), order_by=F("id").asc())
    sent_back = AgentSession.objects.filter(status=Status.QUEUED, enqueued_at__isnull=True).exclude(owner_id__in=full)
    first = sent_back.annotate(turn=turn).filter(turn__lte=most).order_by("turn", "pk")
    for pk, owner, place in first.values_list("pk", "owner_id", "turn")[:MOST]:
        if taken[owner] + place <= most:
            yield pk


def lost_again(now: datetime) -> int:
    """Asks for the takeover of sessions whose worker was not heard of for a whole lease; again when nobody answered."""
    asked_long_ago = _handed_over_by(now, LOST_AGAIN_AFTER)
    unasked = AgentSession.objects.lost(now).filter(Q(enqueued_at__isnull=True) | asked_long_ago)
    pks = list(unasked.order_by("lease_until").values_list("pk", flat=True)[:MOST])
    for pk in pks:
        enqueue(TaskName.RUN_SESSION, pk)
        AgentSession.objects.filter(pk=pk).update(enqueued_at=now)
    return len(pks)
