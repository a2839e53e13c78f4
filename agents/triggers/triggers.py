"""Triggers: made, changed, paused and deleted by people. What they spawn is decided in triggers/firing.py.

A deleted trigger stays as a row, for the sessions that name it; nobody can change it or make it fire any more.
"""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import BudgetScope, TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.ledger.budgets import budget_set_cap
from agents.ledger.trigger_health import BY_HAND, trigger_lock, trigger_record, trigger_stop
from agents.models import Trigger
from agents.people.access import actor_of, demand_access
from agents.policy import schedule
from agents.triggers.signing import OLD_SECRET_LASTS, secret_of
from agents.triggers.trigger_fields import checked_cap, checked_fields, demand_whole
from audit.kinds import LABEL

REASON_CHARS: Final = 24
_DAY_CAP: Final = "max_cost_per_day_usd"
_WHEN: Final = frozenset({"cron", "zone", "enabled"})


@transaction.atomic
def trigger_create(*, owner: User, kind: str, name: str, by: User | None, now: datetime, **fields: Any) -> Trigger:
    """A trigger of the owner's. Everything it binds to has to be the owner's too; a schedule knows when it is due."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_trigger")
    given = checked_fields(kind, {"name": name, **fields}, owner_id=owner.pk)
    trigger = Trigger(owner=owner, kind=kind, edited_by=by, created_at=now, **given)
    demand_whole(trigger)
    trigger.next_run_at = _next_run(trigger, now)
    trigger.save()
    agent_id = str(trigger.agent.public_id) if trigger.agent else None
    cap = _text(trigger.max_cost_usd)
    trigger_record(
        trigger, "autonomous_trigger.created", now=now, by=by, kind=trigger.kind, cap_usd=cap, agent_id=agent_id
    )
    return trigger


@transaction.atomic
def trigger_edit(*, trigger: Trigger, by: User | None, now: datetime, **changes: Any) -> Trigger:
    """Changes what differs, for sessions to come; those under way keep what they were given. None clears a binding."""
    row = _own(trigger.pk, by)
    given = checked_fields(row.kind, changes, owner_id=row.owner_id)
    changed = {name: value for name, value in given.items() if getattr(row, name) != value}
    if not changed:
        return row
    if row.kind == TriggerKind.WATCH and "collection" in changed:
        raise Invalid("A watch keeps the collection that it was made for: make another watch for another collection.")
    old_cap, row.edited_by = row.max_cost_usd, by
    for name, value in changed.items():
        setattr(row, name, value)
    demand_whole(row)
    if changed.keys() & _WHEN:
        row.next_run_at = _next_run(row, now)
    row.save(update_fields=[*(changed.keys() - {_DAY_CAP}), "next_run_at", "edited_by"])
    if _DAY_CAP in changed:
        _set_day_cap(row, by=by, now=now)
    if "max_cost_usd" in changed:
        _record_cap(row, old_cap, by=by, now=now)
    trigger_record(row, "autonomous_trigger.edited", now=now, by=by, fields=sorted(changed))
    return row


@transaction.atomic
def trigger_delete(*, trigger: Trigger, by: User | None, now: datetime) -> Trigger:
    """Takes a trigger out of use for good. Its sessions stay, and go on."""
    row = _own(trigger.pk, by, verb="delete")
    row.deleted_at, row.edited_by = now, by
    row.save(update_fields=["deleted_at", "edited_by"])
    trigger_record(row, "autonomous_trigger.deleted", now=now, by=by)
    return row


@transaction.atomic
def triggers_set_cap(
    *, triggers: Iterable[Trigger], cap: Decimal | None, by: User | None, now: datetime
) -> list[Trigger]:
    """Sets the cap of the sessions to come, for all of them or for none; None is the installation's default."""
    checked = checked_cap("cap", cap)
    # All locks before the first word to the record: see the order in trigger_health.
    rows = [_own(pk, by) for pk in sorted({trigger.pk for trigger in triggers})]
    changed = [(row, row.max_cost_usd) for row in rows if row.max_cost_usd != checked]
    for row, _ in changed:
        row.max_cost_usd, row.edited_by = checked, by
        row.save(update_fields=["max_cost_usd", "edited_by"])
    for row, old in changed:
        _record_cap(row, old, by=by, now=now)
    return rows


@transaction.atomic
def trigger_pause(*, trigger: Trigger, by: User | None, now: datetime, reason: str = BY_HAND) -> Trigger:
    """Keeps a trigger from firing until it is resumed. Pausing what is paused changes nothing."""
    if len(reason) > REASON_CHARS or not LABEL.fullmatch(reason) or not reason:
        raise Invalid(
            f"The reason {reason!r} must be one word of at most {REASON_CHARS} characters, such as {BY_HAND}."
        )
    row = _own(trigger.pk, by)
    if row.paused_at is None:
        trigger_stop(row, reason, now=now, by=by)
    return row


@transaction.atomic
def trigger_resume(*, trigger: Trigger, by: User | None, now: datetime) -> Trigger:
    """Lets a paused trigger fire again, with a clean slate. What the pause left out is not made up for."""
    row = _own(trigger.pk, by)
    if row.paused_at is None:
        return row
    demand_whole(row)
    row.paused_at, row.pause_reason = None, ""
    row.failed_in_a_row = row.empty_in_a_row = 0
    row.next_run_at = _next_run(row, now)
    row.save(update_fields=["paused_at", "pause_reason", "failed_in_a_row", "empty_in_a_row", "next_run_at"])
    trigger_record(row, "autonomous_trigger.resumed", now=now, by=by)
    return row


@transaction.atomic
def trigger_rotate_secret(*, trigger: Trigger, by: User | None, now: datetime) -> str:
    """A new signing secret, returned for whoever signs. The one before it counts for a day more."""
    row = _own(trigger.pk, by)
    secret_demand_kind(row)
    row.secret_generation += 1
    row.old_secret_until, row.edited_by = now + OLD_SECRET_LASTS, by
    row.save(update_fields=["secret_generation", "old_secret_until", "edited_by"])
    generation = row.secret_generation
    trigger_record(row, "autonomous_trigger.secret_rotated", now=now, by=by, generation=generation)
    return trigger_secret(row)


def trigger_secret(trigger: Trigger, generation: int | None = None) -> str:
    """The secret with which messages to this trigger are signed; of the present generation unless another is named."""
    secret_demand_kind(trigger)
    return secret_of(trigger.public_id, trigger.secret_generation if generation is None else generation)


def secret_demand_kind(trigger: Trigger) -> None:
    if trigger.kind != TriggerKind.EVENT:
        raise Invalid(f"A {trigger.kind} takes no signed messages: only event triggers have a secret.")


def _own(trigger_pk: int, by: User | None, *, verb: str = "change") -> Trigger:
    """The locked row of a trigger that is in use and that this person may act on."""
    row = trigger_lock(trigger_pk)
    if row is None or row.deleted_at is not None:
        raise NotFound("There is no such trigger.")
    demand_access(by, owner_id=row.owner_id, permission=f"agents.{verb}_trigger")
    return row


def _next_run(trigger: Trigger, now: datetime) -> datetime | None:
    if trigger.kind != TriggerKind.SCHEDULE:
        return None
    return schedule.next_after(trigger.cron, trigger.zone, now)


def _set_day_cap(row: Trigger, *, by: User | None, now: datetime) -> None:
    """For today's books too: the very next call is judged by it."""
    cap = row.max_cost_per_day_usd
    budget_set_cap(scope=BudgetScope.TRIGGER, subject_id=row.pk, cap_usd=cap, actor=actor_of(by), now=now)


def _record_cap(row: Trigger, old: Decimal | None, *, by: User | None, now: datetime) -> None:
    cap, before = _text(row.max_cost_usd), _text(old)
    trigger_record(row, "autonomous_trigger.cap_set", now=now, by=by, cap_usd=cap, old_cap_usd=before)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
