"""People are told of faults of the installation: once when one begins, and not again while it comes and goes.

The ticker looks; while no ticker works, web processes and supervisors do (agents/ticker.py). Of several that see the
same fault at once, one tells.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from agents.enums import NoticeKind
from agents.models import Alarm
from agents.people.notifications import notify_operators
from agents.sessions.control_room import TICKER, Fault, health

logger = logging.getLogger(__name__)

TEXT_CHARS: Final = 500
CONFIRMED: Final = timedelta(seconds=10)  # a fault of a moment is no news
QUIET: Final = timedelta(hours=1)  # a fault that comes back sooner is the same one


def alarms_update(now: datetime, *, by_ticker: bool = False) -> int:
    """Tell people of faults that have begun, and note those that are over. Return how many are new.

    A new one is told of at a later look, when it is confirmed.
    """
    found = [fault for fault in health(now).faults if fault.tells and not (by_ticker and fault.code == TICKER)]
    new = [fault for fault in found if _note(fault, now)]
    over = Alarm.objects.filter(ended_at__isnull=True).exclude(code__in=[fault.code for fault in found])
    for alarm in over:
        if Alarm.objects.filter(pk=alarm.pk, ended_at__isnull=True).update(ended_at=now):
            logger.info("over: %s", alarm.text)
    return len(new)


@transaction.atomic
def _note(fault: Fault, now: datetime) -> bool:
    """Note a fault. Return True if it is new: not confirmed yet, or people were told of it just now."""
    text = fault.text[:TEXT_CHARS]
    alarm, is_new = Alarm.objects.get_or_create(code=fault.code, defaults={"text": text, "since": now})
    row = Alarm.objects.filter(pk=alarm.pk)
    if alarm.ended_at is not None:
        told_at = alarm.told_at if alarm.ended_at > now - QUIET else None
        row.filter(ended_at__isnull=False).update(ended_at=None, since=now, text=text, told_at=told_at)
        return told_at is None
    if is_new or now - alarm.since < CONFIRMED:
        return alarm.told_at is None
    if not row.filter(told_at__isnull=True).update(told_at=now):
        return False
    logger.warning("%s", fault.text)
    notify_operators(NoticeKind.FAULT, title=fault.text, body=fault.text, now=now, page="/admin/health/")
    return True
