"""What admins do to accounts and groups, on record. The rows are Django's own, and Django's forms write them.

Called in the transaction of that write: either both are there, or neither is.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User

from agents.people.access import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN


def user_note_saved(*, user: User, added: bool, fields: Sequence[str], by: User | None, now: datetime) -> User:
    """Names what was changed and the groups that the user is in now."""
    groups = sorted(user.groups.values_list("pk", flat=True))
    if added:
        _record("people.user_added", f"user:{user.pk}", by=by, now=now, user_id=user.pk, groups=groups)
    else:
        details = {"user_id": user.pk, "groups": groups, "fields": sorted(fields)}
        _record("people.user_edited", f"user:{user.pk}", by=by, now=now, **details)
    return user


def user_note_password(*, user: User, by: User | None, now: datetime) -> User:
    _record("people.password_set", f"user:{user.pk}", by=by, now=now, user_id=user.pk)
    return user


def group_note_saved(*, group: Group, by: User | None, now: datetime) -> Group:
    number = group.permissions.count()
    _record("people.group_saved", f"group:{group.pk}", by=by, now=now, group_id=group.pk, permissions=number)
    return group


def group_delete(*, group: Group, by: User | None, now: datetime) -> None:
    _record("people.group_deleted", f"group:{group.pk}", by=by, now=now, group_id=group.pk)
    group.delete()


def _record(kind: str, subject: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by), subject=subject, details=details)
