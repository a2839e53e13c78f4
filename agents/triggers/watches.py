"""Document watches: each watch on a collection fires once per attachment.

A session belongs to the watch's owner, whoever attached the document. Firing never fails the attaching: it happens
after the commit, and the ticker fires what was missed. A watch that is paused, has no room in its hour, or fails, has a
queue of its own: it holds up no other watch, and nothing in it is given up.
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
from agents.models import AgentSession, Attachment, Notification, Postponement, Trigger
from agents.people.notifications import notification_create
from agents.policy.run_spec import RunSpec
from agents.triggers.firing import HOUR, Fired, Reason, Refused, all_work_halted, trigger_fire

logger = logging.getLogger(__name__)

HOURS: Final = 24
DAY: Final = HOURS * HOUR
PAUSE: Final = timedelta(minutes=1)  # after a failure
TOLD_AT: Final = 60  # failures: after an hour of trying, with that pause
# A watch that was refused for these reasons fires later; a watch that is switched off does not.
_LATER: Final = frozenset({Reason.RATE, Reason.PAUSED, Reason.STORM})

# The outcome for a watch; None if it failed.
Answer = Fired | Refused | None


def watches_fire(attachment_pk: int, *, now: datetime) -> list[Fired | Refused]:
    """Fire every active watch on the collection of a new attachment. Called again, it starts nothing.

    What a watch has no room for in this hour, or fails at, waits in its queue. While all work is halted nothing fires;
    the ticker makes up for it after the release.
    """
    if all_work_halted():
        return []
    unfired = Attachment.objects.select_related("document", "collection").defer("document__text")
    attachment = unfired.filter(pk=attachment_pk, watches_fired_at__isnull=True).first()
    if attachment is None:
        return []
    # A watch with a queue takes nothing past it.
    answers: list[tuple[Trigger, Answer]] = [
        (watch, Refused(Reason.RATE) if is_behind else _fire(watch, attachment, now=now))
        for watch, is_behind in _watches_to_fire(attachment)
    ]
    if not any(_is_refused(answer, Reason.HALTED) for _, answer in answers):
        _mark_fired(attachment, answers, now=now)
    return [answer for _, answer in answers if answer is not None]


def watches_fire_unfired(*, now: datetime, limit: int = 100) -> int:
    """Fire what a lost process or a halt has left, and what was postponed, owner by owner.

    At most `limit` of each, so that nobody's long queue keeps anybody else waiting. Returns how many sessions were
    started.
    """
    if all_work_halted():
        return 0
    unfired = Attachment.objects.filter(watches_fired_at__isnull=True)
    pks: list[int] = []
    if unfired.exists():
        turn = Window(RowNumber(), partition_by=F("collection__owner_id"), order_by=F("id").asc())
        pks = list(unfired.annotate(turn=turn).order_by("turn", "pk").values_list("pk", flat=True)[:limit])
    answers: list[Answer] = [answer for pk in pks for answer in watches_fire(pk, now=now)]
    answers += _fire_postponed(now=now, limit=limit)
    return sum(isinstance(answer, Fired) and answer.first for answer in answers)


# --- New attachments ---


def _watches_to_fire(attachment: Attachment) -> list[tuple[Trigger, bool]]:
    """Return the watches to fire, and whether they have a queue.

    Documents written by runs, and documents that were removed, fire nothing. A watch that is paused is fired and
    refuses: the document waits in its queue. One whose owner has opted out refuses for good; the audit log shows it.
    """
    if _is_gone(attachment) or attachment.document.origin == DocumentOrigin.ARTIFACT:
        return []
    watching = Trigger.objects.filter(
        kind=TriggerKind.WATCH, collection=attachment.collection_id, enabled=True, deleted_at__isnull=True
    )
    fired = AgentSession.objects.filter(trigger=OuterRef("pk"), slot=_slot(attachment))
    queue = Postponement.objects.filter(trigger=OuterRef("pk"))
    to_fire = watching.filter(~Exists(fired))
    behind = set(to_fire.filter(Exists(queue)))
    return [(watch, watch in behind) for watch in to_fire.order_by("pk")]


@transaction.atomic
def _mark_fired(attachment: Attachment, answers: list[tuple[Trigger, Answer]], *, now: datetime) -> None:
    """Mark the attachment after the last watch. A crash before this fires nothing twice: the slots are taken."""
    if not Attachment.objects.filter(pk=attachment.pk, watches_fired_at__isnull=True).update(watches_fired_at=now):
        return
    for watch, answer in answers:
        if answer is None or (isinstance(answer, Refused) and answer.reason in _LATER):
            again = {"due_at": _again_at(answer, now), "failures": int(answer is None)}
            Postponement.objects.get_or_create(trigger=watch, attachment=attachment, defaults=again)
            _notify_if_behind(watch, now=now)


# --- Postponed ---


def _fire_postponed(*, now: datetime, limit: int) -> Iterator[Answer]:
    """Fire one of each owner's queue, then the next of each, until all are empty, blocked or `limit` is reached."""
    if not Postponement.objects.exists():
        return
    Postponement.objects.filter(trigger__in=Trigger.objects.filter(deleted_at__isnull=False)).delete()
    owners: dict[int, deque[Trigger]] = {}
    for watch in _due_again(now)[:limit]:
        owners.setdefault(watch.owner_id, deque()).append(watch)
    left = limit
    while owners and left > 0:
        for owner_id, watches in list(owners.items())[:left]:
            watch = watches.popleft()
            answer, moved_on = _fire_next(watch, now=now)
            if moved_on:
                watches.append(watch)
            if not watches:
                del owners[owner_id]
            left -= 1
            yield answer


def _due_again(now: datetime) -> QuerySet[Trigger]:
    """Return live watches whose next in the queue is due: the first of each owner, then the second.

    One that is due in more than an hour was postponed by a clock that was ahead.
    """
    first = Postponement.objects.filter(trigger=OuterRef("pk")).order_by("pk")
    watches = Trigger.objects.live().filter(kind=TriggerKind.WATCH).exclude(agent__enabled=False)
    heads = watches.annotate(head=Subquery(first.values("pk")[:1]), due_at=Subquery(first.values("due_at")[:1]))
    turn = Window(RowNumber(), partition_by=F("owner_id"), order_by=F("head").asc())
    due = heads.filter(Q(due_at__lte=now) | Q(due_at__gt=now + HOUR))
    return due.annotate(turn=turn).order_by("turn", "head")


def _fire_next(watch: Trigger, *, now: datetime) -> tuple[Answer, bool]:
    """Return the outcome for the first in the queue, and whether it left the queue."""
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
        _postpone_again(row, watch, now=now)
    else:
        Postponement.objects.filter(pk=row.pk).update(due_at=_again_at(answer, now))
    return answer, isinstance(answer, Fired)


@transaction.atomic
def _postpone_again(row: Postponement, watch: Trigger, *, now: datetime) -> None:
    """Move it to the end of the queue, so that it blocks no other. It is never given up; its owner is told once."""
    row.delete()
    failures = row.failures + 1
    again = {"due_at": _again_at(None, now), "failures": failures}
    Postponement.objects.create(trigger=watch, attachment=row.attachment, **again)
    if failures == TOLD_AT:
        body = f"No run could be started for {row.attachment.document.name} in an hour. It is tried every minute."
        _notify_owner(watch, f"Watch cannot start a run: {watch.name}", body, now=now)


# --- Common to both ---


def _fire(watch: Trigger, attachment: Attachment, *, now: datetime) -> Answer:
    inputs = RunSpec.of(document=attachment.document, collection=attachment.collection)
    try:
        return trigger_fire(trigger=watch, slot=_slot(attachment), inputs=inputs, now=now, can_wait=True)
    except Exception:  # the other watches are fired all the same, and this one again later
        logger.exception("watch %s could not be fired for attachment %s", watch.public_id, attachment.pk)
        return None


def _again_at(answer: Answer, now: datetime) -> datetime:
    if isinstance(answer, Refused):
        return now + timedelta(seconds=answer.retry_after)
    return now + PAUSE


def _notify_if_behind(watch: Trigger, *, now: datetime) -> None:
    """Notify the owner when more waits than the watch can take in a day; at most once a day."""
    in_a_day = HOURS * watch.max_runs_per_hour
    if len(watch.postponements.order_by("pk")[in_a_day : in_a_day + 2]) != 1:
        return
    title = f"Watch is more than a day behind: {watch.name}"
    sent = Notification.objects.filter(owner_id=watch.owner_id, title=title, created_at__gt=now - DAY)
    if not sent.exists():
        body = f"It may start {watch.max_runs_per_hour} runs per hour. Nothing is lost; a higher limit catches up."
        _notify_owner(watch, title, body, now=now)


def _notify_owner(watch: Trigger, title: str, body: str, *, now: datetime) -> None:
    page = f"/admin/agents/trigger/{watch.pk}/change/"
    notification_create(
        owner_id=watch.owner_id, kind=NoticeKind.WATCH_BEHIND, title=title, body=body, now=now, page=page
    )


def _is_gone(attachment: Attachment) -> bool:
    return bool(attachment.detached_at or attachment.document.deleted_at or attachment.collection.deleted_at)


def _slot(attachment: Attachment) -> str:
    return f"attach:{attachment.pk}"


def _is_refused(answer: Answer, reason: Reason) -> bool:
    return isinstance(answer, Refused) and answer.reason == reason
