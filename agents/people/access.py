"""Whether somebody may act on what belongs to a user. A stranger is told that there is nothing, not that it is not his.

`by=None` is the machine itself: a command, the ticker. It may do what staff may, but never what only the owner may.
"""

from django.contrib.auth.models import User

from agents.exceptions import NotAllowed, NotFound

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
