"""Tells watches of what was attached to their collections, each of them once per attachment.

Whoever attached it, a session belongs to the watch's owner. Telling never fails the attaching: it happens after that
has committed, and what was not told then is told by the ticker.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import F, Window
from django.db.models.functions import RowNumber

from agents.enums import DocumentOrigin, TriggerKind
from agents.models import AgentSession, Attachment, Trigger
from agents.services.firing_limits import Reason, Refused, all_work_halted
from agents.services.spawning import Fired, trigger_fire
from agents.services.trigger_health import trigger_record

logger = logging.getLogger(__name__)

GIVE_UP_AFTER: Final = timedelta(hours=24)


def watches_fire(attachment_pk: int, *, now: datetime) -> list[Fired | Refused]:
    """Tells every live watch on the collection of a new attachment. Said again, it spawns nothing.

    A watch that fails, or has no room in this hour, stops no other and is told again by the ticker, for a day. While
    all work is halted nobody is told; that is made up for after the release.
    """
    return _tell(attachment_pk, full=set(), now=now)


def watches_fire_unfired(*, now: datetime, limit: int = 100) -> int:
    """What a lost process, a halt or a full hour has left untold: the first of each collection, then the second, …

    So a collection with a long queue keeps no other one waiting. Returns how many sessions were spawned.
    """
    turn = Window(RowNumber(), partition_by=F("collection_id"), order_by=F("id").asc())
    unfired = Attachment.objects.filter(watches_fired_at__isnull=True).annotate(turn=turn)
    pks = list(unfired.order_by("turn", "pk").values_list("pk", flat=True)[:limit])
    full: set[int] = set()
    answers = [answer for pk in pks for answer in _tell(pk, full=full, now=now)]
    return sum(isinstance(answer, Fired) and answer.first for answer in answers)


def _tell(attachment_pk: int, *, full: set[int], now: datetime) -> list[Fired | Refused]:
    """`full` are the watches that were found without room in this sweep; they are not asked again in it."""
    if all_work_halted():
        return []
    unfired = Attachment.objects.select_related("document", "collection").filter(watches_fired_at__isnull=True)
    attachment = unfired.filter(pk=attachment_pk).first()
    if attachment is None:
        return []
    answers = {watch: None if watch.pk in full else _fire(watch, attachment, now=now) for watch in _untold(attachment)}
    given = [answer for answer in answers.values() if answer is not None]
    if any(_refused_for(answer, Reason.HALTED) for answer in given):
        return given
    full |= {watch.pk for watch, answer in answers.items() if _refused_for(answer, Reason.RATE)}
    left = [watch for watch, answer in answers.items() if answer is None or _refused_for(answer, Reason.RATE)]
    if not left or now - attachment.attached_at >= GIVE_UP_AFTER:
        _mark_told(attachment, left, now=now)
    return given


def _untold(attachment: Attachment) -> list[Trigger]:
    """Nobody is told of what a run itself has written, or of what is no longer there to be read."""
    document = attachment.document
    gone = attachment.detached_at or document.deleted_at or attachment.collection.deleted_at
    if gone or document.origin == DocumentOrigin.ARTIFACT:
        return []
    watching = Trigger.objects.live().filter(kind=TriggerKind.WATCH, collection=attachment.collection_id)
    told = AgentSession.objects.filter(trigger__in=watching, slot=_slot(attachment)).values_list("trigger_id")
    return list(watching.exclude(pk__in=[pk for (pk,) in told]).order_by("pk"))


def _fire(watch: Trigger, attachment: Attachment, *, now: datetime) -> Fired | Refused | None:
    params = {"document": str(attachment.document.public_id), "collection": str(attachment.collection.public_id)}
    try:
        return trigger_fire(trigger=watch, slot=_slot(attachment), params=params, now=now, can_wait=True)
    except Exception:  # whatever it was: the other watches are told, and this one again later
        logger.exception("watch %s could not be told of attachment %s", watch.public_id, attachment.pk)
        return None


@transaction.atomic
def _mark_told(attachment: Attachment, given_up: list[Trigger], *, now: datetime) -> None:
    """After the last watch. A crash before this tells nobody twice: the slots are taken."""
    marked = Attachment.objects.filter(pk=attachment.pk, watches_fired_at__isnull=True).update(watches_fired_at=now)
    for watch in given_up if marked else []:
        slot = _slot(attachment)
        trigger_record(watch, "autonomous_trigger.refused", now=now, reason=Reason.GAVE_UP, slot=slot)


def _slot(attachment: Attachment) -> str:
    return f"attach:{attachment.pk}"


def _refused_for(answer: Fired | Refused | None, reason: Reason) -> bool:
    return isinstance(answer, Refused) and answer.reason == reason
