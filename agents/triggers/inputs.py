"""Inputs that no run has read: start the runs that are due, and let people retry or dismiss what was given up."""

import logging
from datetime import datetime, timedelta
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import InputState
from agents.exceptions import InvalidTransition
from agents.ledger.inputs import input_record, input_taken
from agents.models import Trigger, UnreadInput
from agents.models.sessions import RETRY
from agents.people.access import actor_of, require_access
from agents.triggers.firing import Refused, all_work_halted, inputs_again, trigger_fire

logger = logging.getLogger(__name__)

PAUSE: Final = timedelta(minutes=1)  # after a firing that failed or was refused
PERMISSION: Final = "agents.change_agentsession"
DECIDABLE: Final = frozenset({InputState.RETRYING, InputState.GIVEN_UP, InputState.DISMISSED})


def inputs_fire(*, now: datetime, limit: int = 100) -> int:
    """Start a run for each unread input that is due; return how many. What belongs to a resting trigger waits.

    Nobody reads what a deleted trigger left: whoever deleted it has decided.
    """
    retrying = UnreadInput.objects.filter(state=InputState.RETRYING)
    if not retrying.exists() or all_work_halted():
        return 0
    deleted = Trigger.objects.filter(deleted_at__isnull=False)
    retrying.filter(trigger__in=deleted).update(state=InputState.DISMISSED, due_at=None)
    live = Trigger.objects.live().exclude(agent__enabled=False)
    due = retrying.filter(due_at__lte=now, trigger__in=live).order_by("due_at", "pk")
    return sum(_try(pk, now=now) for pk in list(due.values_list("pk", flat=True)[:limit]))


def _try(pk: int, *, now: datetime) -> bool:
    try:
        return _fire(pk, now=now)
    except Exception:  # the others are read all the same
        logger.exception("unread input %s could not be read again; it is tried later", pk)
        UnreadInput.objects.filter(pk=pk, state=InputState.RETRYING).update(due_at=now + PAUSE)
        return False


@transaction.atomic
def _fire(pk: int, *, now: datetime) -> bool:
    row = _locked(pk)
    if row is None or row.state != InputState.RETRYING:
        return False
    answer = trigger_fire(
        trigger=row.trigger,
        slot=f"{RETRY}{row.session_id}",
        inputs=inputs_again(row.session),
        restarted_from=row.session,
        asked_by=actor_of(row.retried_by) if row.retried_by else row.session.metadata.get("asked_by", ""),
        now=now,
    )
    if isinstance(answer, Refused):
        row.due_at = now + max(timedelta(seconds=answer.retry_after), PAUSE)
        row.save(update_fields=["due_at"])
        return False
    input_taken(row.session, answer.session)
    return answer.first


def _locked(pk: int) -> UnreadInput | None:
    rows = UnreadInput.objects.select_for_update(of=("self",)).select_related("trigger", "session", "retried_by")
    return rows.filter(pk=pk).first()


@transaction.atomic
def input_retry(*, unread_input: UnreadInput, by: User | None, now: datetime) -> UnreadInput:
    """Have it read at once, with a new count of tries."""
    row = _decided(unread_input, by)
    if row.trigger.deleted_at is not None:
        raise InvalidTransition("Its trigger was deleted. Run its last run again instead.")
    row.state = InputState.RETRYING
    row.due_at = now
    row.tries = 0
    row.retried_by = by
    row.save(update_fields=["state", "due_at", "tries", "retried_by"])
    input_record(row, "input.retried", now=now, by=by)
    return row


@transaction.atomic
def input_dismiss(*, unread_input: UnreadInput, by: User | None, now: datetime) -> UnreadInput:
    """Leave it unread. It can still be retried."""
    row = _decided(unread_input, by)
    row.state = InputState.DISMISSED
    row.due_at = None
    row.save(update_fields=["state", "due_at"])
    input_record(row, "input.dismissed", now=now, by=by)
    return row


def _decided(unread_input: UnreadInput, by: User | None) -> UnreadInput:
    """Return the row, locked, if this person may decide on it and no run is reading it."""
    row = _locked(unread_input.pk)
    if row is None:
        raise InvalidTransition("A run has read it in the meantime.")
    require_access(by, owner_id=row.owner_id, permission=PERMISSION)
    if row.state not in DECIDABLE:
        raise InvalidTransition("A run is reading it now. Wait until it is over.")
    return row
