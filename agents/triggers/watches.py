"""Tells watches of what was attached to their collections, each of them once per attachment.

Whoever attached it, a session belongs to the watch's owner. Telling never fails the attaching: it happens after that
has committed, and what was not told then is told by the ticker. A watch without room in its hour, or that fails, has a
queue of its own: it holds up no other watch, and nothing in it grows old while work is halted or the watch is paused.
"""

import logging
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery, Window
from django.db.models.functions import RowNumber

from agents.enums import DocumentOrigin, NoticeKind, TriggerKind
from agents.ledger.trigger_health import trigger_record
from agents.models import AgentSession, Attachment, Notification, Postponement, Trigger
from agents.people.notifications import notice_create
from agents.policy.run_spec import RunSpec
from agents.triggers.firing import HOUR, Fired, Reason, Refused, all_work_halted, trigger_fire

logger = logging.getLogger(__name__)

HOURS: Final = 24
DAY: Final = HOURS * HOUR
PAUSE: Final = timedelta(minutes=1)  # after a failure
MOST_FAILURES: Final = 1_440  # with that pause: a day of trying

# What came of telling a watch; None: it failed.
Answer = Fired | Refused | None


def watches_fire(attachment_pk: int, *, now: datetime) -> list[Fired | Refused]:
    """Tells every watch in use on the collection of a new attachment. Said again, it spawns nothing.

    What a watch has no room for in this hour, or fails at, waits in the watch's queue. While all work is halted nobody
    is told; that is made up for after the release.
    """
    if all_work_halted():
        return []
    unfired = Attachment.objects.select_related("document", "collection").defer("document__text")
    attachment = unfired.filter(pk=attachment_pk, watches_fired_at__isnull=True).first()
    if attachment is None:
        return []
    # A watch that has a queue takes nothing past it.
    answers: list[tuple[Trigger, Answer]] = [
        (watch, Refused(Reason.RATE) if is_behind else _fire(watch, attachment, now=now))
        for watch, is_behind in _untold(attachment)
    ]
    if not any(_is_refused(answer, Reason.HALTED) for _, answer in answers):
        _mark_told(attachment, answers, now=now)
    return [answer for _, answer in answers if answer is not None]


def watches_fire_unfired(*, now: datetime, limit: int = 100) -> int:
    """What a lost process or a halt has left untold, and what was put off; of each at most the limit, owner by owner.

    So nobody's long queue keeps anybody else waiting. Returns how many sessions were spawned.
    """
    if all_work_halted():
        return 0
    turn = Window(RowNumber(), partition_by=F("collection__owner_id"), order_by=F("id").asc())
    unfired = Attachment.objects.filter(watches_fired_at__isnull=True).annotate(turn=turn)
    pks = list(unfired.order_by("turn", "pk").values_list("pk", flat=True)[:limit])
    answers: list[Answer] = [answer for pk in pks for answer in watches_fire(pk, now=now)]
    answers += _tell_postponed(now=now, limit=limit)
    return sum(isinstance(answer, Fired) and answer.first for answer in answers)


# --- What is new ---


def _untold(attachment: Attachment) -> list[tuple[Trigger, bool]]:
    """The watches to tell, and whether they have a queue.

    Nobody is told of what a run itself has written, or of what is no longer there to be read. A watch that is paused,
    or whose owner has opted out, is told and refuses: so the record says that it has let something pass.
    """
    if _is_gone(attachment) or attachment.document.origin == DocumentOrigin.ARTIFACT:
        return []
    watching = Trigger.objects.filter(
        kind=TriggerKind.WATCH, collection=attachment.collection_id, enabled=True, deleted_at__isnull=True
    )
    told = AgentSession.objects.filter(trigger__in=watching, slot=_slot(attachment)).values_list("trigger_id")
    untold = list(watching.exclude(pk__in=[pk for (pk,) in told]).order_by("pk"))
    queue = Postponement.objects.filter(trigger=OuterRef("pk"))
    behind = set(Trigger.objects.filter(Exists(queue), pk__in=[watch.pk for watch in untold]))
    return [(watch, watch in behind) for watch in untold]


@transaction.atomic
def _mark_told(attachment: Attachment, answers: list[tuple[Trigger, Answer]], *, now: datetime) -> None:
    """After the last watch. A crash before this tells nobody twice: the slots are taken."""
    if not Attachment.objects.filter(pk=attachment.pk, watches_fired_at__isnull=True).update(watches_fired_at=now):
        return
    for watch, answer in answers:
        if answer is None or _is_refused(answer, Reason.RATE):
            again = {"due_at": _again_at(answer, now), "failures": int(answer is None)}
            Postponement.objects.get_or_create(trigger=watch, attachment=attachment, defaults=again)
            _tell_owner_if_behind(watch, now=now)


# --- What was put off ---


def _tell_postponed(*, now: datetime, limit: int) -> Iterator[Answer]:
    """One of each owner's, then another of each, until all queues are empty or blocked, or it is enough."""
    Postponement.objects.filter(trigger__in=Trigger.objects.filter(deleted_at__isnull=False)).delete()
    owners: dict[int, deque[Trigger]] = {}
    for watch in _due_again(now)[:limit]:
        owners.setdefault(watch.owner_id, deque()).append(watch)
    left = limit
    while owners and left > 0:
        for owner_id, watches in list(owners.items())[:left]:
            watch = watches.popleft()
            answer, moved_on = _tell_next(watch, now=now)
            if moved_on:
                watches.append(watch)
            if not watches:
                del owners[owner_id]
            left -= 1
            yield answer


def _due_again(now: datetime) -> QuerySet[Trigger]:
    """Live watches whose first in the queue is due: the first of each owner's, then the second, …

    One that is due in more than an hour was put off by a clock that was ahead.
    """
    first = Postponement.objects.filter(trigger=OuterRef("pk")).order_by("pk")
    watches = Trigger.objects.live().filter(kind=TriggerKind.WATCH).exclude(agent__enabled=False)
    heads = watches.annotate(head=Subquery(first.values("pk")[:1]), due_at=Subquery(first.values("due_at")[:1]))
    turn = Window(RowNumber(), partition_by=F("owner_id"), order_by=F("head").asc())
    due = heads.filter(Q(due_at__lte=now) | Q(due_at__gt=now + HOUR))
    return due.annotate(turn=turn).order_by("turn", "head")


def _tell_next(watch: Trigger, *, now: datetime) -> tuple[Answer, bool]:
    """What came of the first in the queue, and whether it is out of the way now."""
    queue = Postponement.objects.select_related("attachment__document", "attachment__collection")
    row = queue.defer("attachment__document__text").filter(trigger=watch).order_by("pk").first()
    if row is None:
        return None, False
    if _is_gone(row.attachment):
        row.delete()
        return None, True
    answer = _fire(watch, row.attachment, now=now)
    if isinstance(answer, Fired):
        row.delete()
    elif answer is None:
        _put_back(row, watch, now=now)
    else:
        Postponement.objects.filter(pk=row.pk).update(due_at=_again_at(answer, now))
    return answer, isinstance(answer, Fired)


@transaction.atomic
def _put_back(row: Postponement, watch: Trigger, *, now: datetime) -> None:
    """To the end of the queue: a document that cannot be told of keeps no other waiting. After a day it is given up."""
    row.delete()
    failures = row.failures + 1
    if failures < MOST_FAILURES:
        again = {"due_at": _again_at(None, now), "failures": failures}
        Postponement.objects.create(trigger=watch, attachment=row.attachment, **again)
        return
    slot = _slot(row.attachment)
    trigger_record(watch, "autonomous_trigger.refused", now=now, reason=Reason.GAVE_UP, slot=slot)
    body = f"{row.attachment.document.name} was put into its collection, and no run could be started for it."
    _tell_owner(watch, f"Watch has given up a document: {watch.name}", body, now=now)


# --- Both ---


def _fire(watch: Trigger, attachment: Attachment, *, now: datetime) -> Answer:
    inputs = RunSpec.of(document=attachment.document, collection=attachment.collection)
    try:
        return trigger_fire(trigger=watch, slot=_slot(attachment), inputs=inputs, now=now, can_wait=True)
    except Exception:  # whatever it was: the other watches are told, and this one again later
        logger.exception("watch %s could not be told of attachment %s", watch.public_id, attachment.pk)
        return None


def _again_at(answer: Answer, now: datetime) -> datetime:
    if isinstance(answer, Refused):
        return now + timedelta(seconds=answer.retry_after)
    return now + PAUSE


def _tell_owner_if_behind(watch: Trigger, *, now: datetime) -> None:
    """When more waits than the watch can take in a day; once, and again after a day at the earliest."""
    in_a_day = HOURS * watch.max_runs_per_hour
    if len(watch.postponements.order_by("pk")[in_a_day : in_a_day + 2]) != 1:
        return
    title = f"Watch is more than a day behind: {watch.name}"
    said = Notification.objects.filter(owner_id=watch.owner_id, title=title, created_at__gt=now - DAY)
    if not said.exists():
        body = f"It may start {watch.max_runs_per_hour} runs per hour. Nothing is lost; a higher limit catches up."
        _tell_owner(watch, title, body, now=now)


def _tell_owner(watch: Trigger, title: str, body: str, *, now: datetime) -> None:
    notice_create(owner_id=watch.owner_id, kind=NoticeKind.WATCH_BEHIND, title=title, body=body, now=now)


def _is_gone(attachment: Attachment) -> bool:
    return bool(attachment.detached_at or attachment.document.deleted_at or attachment.collection.deleted_at)


def _slot(attachment: Attachment) -> str:
    return f"attach:{attachment.pk}"


def _is_refused(answer: Answer, reason: Reason) -> bool:
    return isinstance(answer, Refused) and answer.reason == reason
