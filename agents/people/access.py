"""Access to rows of users: permission checks, actor names for the audit log, and a record of views of others' rows.

A stranger gets "not found", never "not yours". `by=None` is the system itself (a command, the ticker): it may do what
staff may do, but never what only the owner may do.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet

from agents.exceptions import NotAllowed, NotFound
from agents.models import AgentSession, ApiKey
from audit import recorder
from audit.models import SYSTEM_CHAIN

START_PERMISSION = "agents.add_agentsession"
HALT_PERMISSION = "agents.halt_everything"
LOOSEN_PERMISSION = "agents.loosen"
DECIDE_PERMISSION = "agents.resolve_approval"
NOT_FOUND: Final = "There is nothing of that kind here."


def require_access(by: User | None, *, owner_id: int, permission: str) -> None:
    """Allow the owner, users with the permission, and the system."""
    if by is None or (by.is_active and by.pk == owner_id) or by.has_perm(permission):
        return
    raise NotFound(NOT_FOUND)


def require_owner(by: User | None, *, owner_id: int) -> None:
    """Allow the owner alone: no permission replaces them, and neither does the system."""
    if by is None:
        raise NotAllowed("Only a person can decide this: name the user who does.")
    if not by.is_active or by.pk != owner_id:
        raise NotFound(NOT_FOUND)


def require_start_permission(by: User) -> None:
    """Allow users who may start runs, by asking or through the API: a run costs money, whoever owns it."""
    if not by.is_active or not by.has_perm(START_PERMISSION):
        raise NotAllowed(f"You may view but not start runs: that is for operators ({START_PERMISSION}).")


def require_halt_permission(by: User) -> None:
    """Allow users who may halt and release all work: it affects everybody's runs."""
    if not by.is_active or not by.has_perm(HALT_PERMISSION):
        raise NotAllowed(
            f"Halting and releasing all work needs the permission {HALT_PERMISSION}. You can halt your own runs."
        )


def require_may_loosen(by: User | None, loosened: Sequence[str], *, bound: Iterable[int | None]) -> None:
    """Allow those who may loosen what binds agents; with four eyes on, nobody whom it binds.

    By an API key only with the scope `admin`. A command on the host may: it has the database anyway.
    """
    if not loosened or by is None:
        return
    what = f"This loosens {', '.join(loosened)}"
    if not by.is_active or not by.has_perm(LOOSEN_PERMISSION):
        raise NotAllowed(f"{what}: that needs the permission {LOOSEN_PERMISSION} (role admin). Tightening is free.")
    key = key_of(by)
    if key is not None and ADMIN_SCOPE not in key.scopes:
        raise NotAllowed(f"{what}: that needs an API key with the scope {ADMIN_SCOPE}, or a signed-in person.")
    if settings.LQOPS_FOUR_EYES and by.pk in set(bound):
        raise NotAllowed(f"{what}, which binds yourself: with four eyes on, somebody else with the right must do it.")


def bound_owners() -> QuerySet[User, int]:
    """Return everybody who has an agent or a trigger: whom settings of the whole installation bind."""
    has_any = Q(lqops_agents__isnull=False) | Q(lqops_triggers__isnull=False)
    return get_user_model().objects.filter(has_any).values_list("pk", flat=True)


# --- Actors in the audit log. Somebody who acts by an API key carries the key ---

ADMIN_SCOPE: Final = "admin"

SYSTEM: Final = "system"
COMMAND: Final = "command"  # somebody at a terminal who gave no name


def acting_by(key: ApiKey) -> User:
    """Return the key's user, who acts by this key."""
    user: Any = copy(key.user)
    user.acts_by = key
    return user  # type: ignore[no-any-return]


def key_of(user: User) -> ApiKey | None:
    return getattr(user, "acts_by", None)


def actor_of(user: User | None, unnamed: str = SYSTEM) -> str:
    """Return the name of an actor in the audit log: the user, and the prefix of the key that they act by."""
    if user is None:
        return unnamed
    key = key_of(user)
    return f"user:{user.pk}:key:{key.prefix}" if key else f"user:{user.pk}"


def person_of(actor: str) -> int | None:
    """Return the id of the user that an actor's name stands for, also by a key; None if it names nobody."""
    kind, _, rest = actor.partition(":")
    number = rest.partition(":")[0]
    return int(number) if kind == "user" and number.isdecimal() else None


def record_act(
    kind: str, *, by: User | None, now: datetime, subject: str = "", unnamed: str = SYSTEM, **details: Any
) -> None:
    """Append an audit event about something that belongs to no run."""
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by, unnamed), subject=subject, details=details)


# --- Views of rows that belong to others. The owner's own views are not recorded ---

# Fields that name the owner of a row, and fields that name the row that it is a part of
_OWNERS: Final = ("owner", "user")
_PARENTS: Final = ("session", "agent", "channel")


def record_row_view(*, row: Model, by: User, now: datetime) -> None:
    """Record that somebody viewed a row of somebody else. A view of a part of a run is a view of the run.

    Written to the system chain: the chain of a run that has ended stays closed.
    """
    viewed, owner_id = owned_row(row)
    if viewed is None or owner_id == by.pk:
        return
    name = str(viewed._meta.model_name)
    public_id = str(viewed.public_id)
    if isinstance(viewed, AgentSession):
        record_act("session.viewed", by=by, now=now, subject=f"session:{public_id}", session_id=public_id)
    else:
        seen = {"resource": name, "resource_id": public_id}
        record_act("row.viewed", by=by, now=now, subject=f"{name}:{public_id}", **seen)


def record_list(rows: Sequence[Model], *, by: User, now: datetime) -> None:
    """Record that a list showed content of others' rows: once, however many rows there were."""
    if any(owner_id not in {None, by.pk} for _, owner_id in map(owned_row, rows)):
        record_list_of_others(resource=str(rows[0]._meta.model_name), by=by, now=now)


def record_list_of_others(*, resource: str, by: User, now: datetime, owner_id: int | None = None) -> None:
    """Record that somebody listed rows of one other user, or of everybody."""
    if owner_id != by.pk:
        record_act("row.listed", by=by, now=now, resource=resource, owner_id=owner_id)


def owned_row(row: Any) -> tuple[Any, int | None]:
    """Return the owned row that a row is a part of, and its owner's id; None for rows without an owner."""
    names = {field.name for field in row._meta.concrete_fields if field.is_relation}
    for name in _OWNERS:
        if name in names:
            return row, getattr(row, f"{name}_id")
    for name in _PARENTS:
        if name in names and getattr(row, f"{name}_id"):
            return owned_row(getattr(row, name))
    return None, None
