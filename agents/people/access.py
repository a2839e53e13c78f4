"""Whether somebody may act on what belongs to a user. A stranger is told that there is nothing, not that it is not his.

`by=None` is the machine itself: a command, the ticker. It may do what staff may, but never what only the owner may.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db.models import Model

from agents.exceptions import NotAllowed, NotFound
from agents.models import AgentSession
from audit import recorder
from audit.models import SYSTEM_CHAIN

START = "agents.add_agentsession"
LEVER = "agents.halt_everything"


def demand_access(by: User | None, *, owner_id: int, permission: str) -> None:
    """The owner, whoever holds the permission, and the machine itself pass."""
    if by is None or (by.is_active and by.pk == owner_id) or by.has_perm(permission):
        return
    raise NotFound("There is nothing of that kind here.")


def demand_owner(by: User | None, *, owner_id: int) -> None:
    """The owner alone passes: no permission and no machine stands in."""
    if by is None:
        raise NotAllowed("This is a person's decision: say who makes it.")
    if not by.is_active or by.pk != owner_id:
        raise NotFound("There is nothing of that kind here.")


def demand_start(by: User) -> None:
    """Who asks for a session, in words or through the API, needs the permission: it costs money, whoever owns it."""
    if not by.is_active or not by.has_perm(START):
        raise NotAllowed(f"You may look, but not start anything: that is for operators ({START}).")


def demand_lever(by: User) -> None:
    """Who halts and releases all work needs the permission: it reaches what belongs to everybody."""
    if not by.is_active or not by.has_perm(LEVER):
        raise NotAllowed(f"Halting and releasing all work is for operators ({LEVER}). Your own sessions you can halt.")


# --- Who did it, as the record names them ---


SYSTEM: Final = "system"
COMMAND: Final = "command"  # somebody at a terminal, who has not said who


def actor_of(user: User | None, unnamed: str = SYSTEM) -> str:
    return unnamed if user is None else f"user:{user.pk}"


# --- Who looked at whose rows. The owner's own look leaves nothing; anybody else's is on record ---


# How a row says whose it is: by a user of its own, or by what it is a part of.
_OWNERS: Final = ("owner", "user")
_WHOLES: Final = ("session", "agent")


def row_view(*, row: Model, by: User, now: datetime) -> None:
    """Notes a look at what belongs to somebody else. Whoever looks at a part of a run looks at the run.

    In `system`: the chain of a run that is over stays closed.
    """
    seen, owner_id = belonging(row)
    if seen is None or owner_id == by.pk:
        return
    name, public_id = str(seen._meta.model_name), str(seen.public_id)
    if isinstance(seen, AgentSession):
        _note("session.viewed", f"session:{public_id}", by, now, session_id=public_id)
    else:
        _note("row.viewed", f"{name}:{public_id}", by, now, resource=name, resource_id=public_id)


def rows_list(rows: Sequence[Model], *, by: User, now: datetime) -> None:
    """Notes a list that tells what its rows hold: once, however many of them are others'."""
    if any(owner_id not in {None, by.pk} for _, owner_id in map(belonging, rows)):
        others_list(resource=str(rows[0]._meta.model_name), by=by, now=now)


def others_list(*, resource: str, by: User, now: datetime, owner_id: int | None = None) -> None:
    """Notes that somebody had a list of what belongs to others: to one of them, or to everybody."""
    if owner_id != by.pk:
        _note("row.listed", "", by, now, resource=resource, owner_id=owner_id)


def belonging(row: Any) -> tuple[Any, int | None]:
    """What somebody owns of what a row shows, and who; nothing if it is nobody's."""
    names = {field.name for field in row._meta.concrete_fields if field.is_relation}
    for name in _OWNERS:
        if name in names:
            return row, getattr(row, f"{name}_id")
    for name in _WHOLES:
        if name in names and getattr(row, f"{name}_id"):
            return belonging(getattr(row, name))
    return None, None


def _note(kind: str, subject: str, by: User, now: datetime, **details: Any) -> None:
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by), subject=subject, details=details)
