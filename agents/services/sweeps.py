"""What time or a crash has left undone, found in the rows and handed on: sleepers, sessions that the queue lost, and
sessions whose worker is gone. Each sweep takes a bounded number of rows and leaves the rest for the next.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.db.models import Count, Q

from agents.conf import max_running_per_user, requeue_after
from agents.enums import Status
from agents.models import AgentSession
from agents.queue import TaskName, enqueue, waiting
from agents.services.sessions import session_enqueue, session_wake

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
    queued = AgentSession.objects.filter(status=Status.QUEUED)
    kept_long = queued.filter(enqueued_at__lte=_passed_over(now, requeue_after())).order_by("enqueued_at", "pk")
    sent_back = queued.filter(enqueued_at__isnull=True).order_by("pk")
    pks = [
        *kept_long.values_list("pk", flat=True)[:MOST],
        *_with_room(sent_back.values_list("pk", "owner_id")[:MOST]),
    ]
    return sum(session_enqueue(pk, now=now) for pk in pks)


def _passed_over(now: datetime, after: timedelta) -> datetime:
    """What was handed over until then is not in the queue any more, as far as can be told: what waits came later.

    While workers are away nothing is taken, and so nothing is handed over again and again.
    """
    found = waiting(now)
    if found.count and found.oldest_at is None:
        return now - AGES * after  # Redis keeps no times; after so long it is tried all the same
    return min(now - after, found.oldest_at - timedelta(microseconds=1)) if found.oldest_at else now - after


def _with_room(sent_back: Iterable[tuple[int, int]]) -> Iterator[int]:
    rows = list(sent_back)
    running = AgentSession.objects.filter(status=Status.RUNNING, owner_id__in={owner for _, owner in rows})
    taken = Counter(dict(running.values_list("owner_id").annotate(Count("pk")))) if rows else Counter[int]()
    for pk, owner in rows:
        if taken[owner] < max_running_per_user():
            taken[owner] += 1
            yield pk


def lost_again(now: datetime) -> int:
    """Asks for the takeover of sessions whose worker was not heard of for a whole lease; again when nobody answered."""
    passed_over = Q(enqueued_at__lte=_passed_over(now, LOST_AGAIN_AFTER))
    unasked = AgentSession.objects.lost(now).filter(Q(enqueued_at__isnull=True) | passed_over)
    pks = list(unasked.order_by("lease_until").values_list("pk", flat=True)[:MOST])
    for pk in pks:
        enqueue(TaskName.RUN_SESSION, pk)
        AgentSession.objects.filter(pk=pk).update(enqueued_at=now)
    return len(pks)
