"""Delegations: while away, a person who decides on approvals names somebody who decides in their place.

The right stays its owner's: it ends with their permission or account, counts once for a quorum, and is not passed on.
Which calls it holds for is decided in agents/sessions/second_eyes.py.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from agents.enums import NoticeKind
from agents.exceptions import Invalid, NotAllowed
from agents.models import Delegation
from agents.people.access import DECIDE_PERMISSION, record_act
from agents.people.notifications import notification_create

LONGEST: Final = timedelta(days=90)
END_PERMISSION: Final = "agents.change_profile"


def delegations_in_force(now: datetime) -> QuerySet[Delegation]:
    """Return those that hold now: begun, not over, not ended, between active accounts."""
    rows = Delegation.objects.filter(ended_at__isnull=True, created_at__lte=now, until__gt=now)
    return rows.filter(owner__is_active=True, delegate__is_active=True).select_related("owner", "delegate")


def holders(by: User, now: datetime) -> list[User]:
    """Return in whose right this person decides: their own first, then of those who named them while away."""
    if not by.is_active:
        return []
    named = delegations_in_force(now).filter(delegate_id=by.pk).order_by("pk")
    return [user for user in (by, *(row.owner for row in named)) if user.has_perm(DECIDE_PERMISSION)]


def is_approver(by: User, now: datetime) -> bool:
    """Return whether this person decides on approvals at all: in their own right or for somebody who is away."""
    return by.has_perm(DECIDE_PERMISSION) or bool(holders(by, now))


def delegation_create(*, owner: User, delegate: User, until: datetime, by: User | None, now: datetime) -> Delegation:
    """Name somebody who decides until then. It takes the place of an earlier delegation of the same person."""
    if by is not None and by.pk != owner.pk:
        raise NotAllowed("Only the person who is away can name a delegate.")
    if not owner.is_active or not owner.has_perm(DECIDE_PERMISSION):
        raise NotAllowed(
            f"{owner} may not decide on approvals ({DECIDE_PERMISSION}), so there is nothing to hand over."
        )
    if delegate.pk == owner.pk or not delegate.is_active:
        raise Invalid("Name another person, with an active account.")
    if not now < until <= now + LONGEST:
        raise Invalid(f"A delegation ends later than now and at most {LONGEST.days} days from now.")
    if away := delegations_in_force(now).filter(owner_id=delegate.pk).first():
        raise Invalid(f"{delegate} is away too ({away}). Name somebody who is there.")
    try:
        with transaction.atomic():
            _end(Delegation.objects.filter(owner_id=owner.pk), by=by, now=now)
            row = Delegation.objects.create(owner_id=owner.pk, delegate_id=delegate.pk, until=until, created_at=now)
            details = {"delegate_id": delegate.pk, "until": until.isoformat()}
            _record(row, "delegation.created", by=by, now=now, **details)
            _notify(row, now=now)
    except IntegrityError as error:
        raise Invalid("Another delegation was made at the same moment. Look at it, and try again.") from error
    return row


@transaction.atomic
def delegation_end(*, delegation: Delegation, by: User | None, now: datetime) -> Delegation:
    """End a delegation at once. Ending it again changes nothing."""
    concerned = {delegation.owner_id, delegation.delegate_id}
    if by is not None and by.pk not in concerned and not by.has_perm(END_PERMISSION):
        raise NotAllowed(f"A delegation is ended by its two people, or with the permission {END_PERMISSION}.")
    _end(Delegation.objects.filter(pk=delegation.pk), by=by, now=now)
    delegation.refresh_from_db()
    return delegation


def _end(rows: QuerySet[Delegation], *, by: User | None, now: datetime) -> None:
    """End the open ones; one whose time is over is closed without an event."""
    for row in rows.filter(ended_at__isnull=True):
        ended = Delegation.objects.filter(Q(ended_at__isnull=True), pk=row.pk).update(ended_at=min(now, row.until))
        if ended and row.until > now:
            _record(row, "delegation.ended", by=by, now=now, delegate_id=row.delegate_id)


def _notify(row: Delegation, *, now: datetime) -> None:
    notification_create(
        owner_id=row.delegate_id,
        kind=NoticeKind.DELEGATED,
        title=f"You decide on approvals for {row.owner}",
        body=f"Until {row.until:%-d %B %Y, %H:%M} UTC, where a call binds neither of you.",
        now=now,
        page="/admin/agents/approval/",
    )


def _record(row: Delegation, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    details |= {"delegation_id": str(row.public_id), "owner_id": row.owner_id}
    record_act(kind, by=by, now=now, subject=f"delegation:{row.public_id}", **details)
