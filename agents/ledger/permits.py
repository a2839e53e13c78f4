"""What lets a session be born, read under a lock that it shares with other births: the opt-in of its owner, and that
work is not halted. Whoever changes one of these waits for the births that have seen it, or they see the change.
"""

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import TerminalReason
from agents.exceptions import Invalid, NotAllowed, SessionHalted
from agents.models import Agent, Halt, Installation, Profile, agents_may_run

TO_RELEASE = "Release it first: *Release* in the admin, `manage.py release`, or POST /api/v1/release."


def demand_birth(owner_pk: int) -> None:
    """Raises unless a session may be born for this owner now."""
    if not is_opted_in(owner_pk):
        raise NotAllowed("Agents run only for users who have opted in.")
    demand_work_goes_on()


def demand_on(agent: Agent | None) -> Agent | None:
    """The agent, unless it is switched off: then it is given no work."""
    if agent is not None and not agent.enabled:
        raise Invalid(f"The agent {agent.name} is switched off: switch it on, or choose another.")
    return agent


def may_run_for(user_pk: int) -> bool:
    """True for a user who has opted in and is not deactivated, as far as can be seen now."""
    return User.objects.filter(agents_may_run(), pk=user_pk).exists()


def is_opted_in(user_pk: int) -> bool:
    """The same, of a birth: opting out then waits for this transaction, and finds its session."""
    profiles, users = Profile._meta.db_table, User._meta.db_table
    rows = Profile.objects.raw(
        f"SELECT p.* FROM {profiles} p JOIN {users} u ON u.id = p.user_id "  # noqa: S608
        f"WHERE p.user_id = %s AND u.is_active{_shared('p')}",
        [user_pk],
    )
    return any(profile.opted_in for profile in rows)


def demand_work_goes_on() -> None:
    """Raises while all work is halted; a halt then waits for this transaction, and finds its session."""
    rows = Installation.objects.raw(
        f"SELECT * FROM {Installation._meta.db_table} WHERE id = 1{_shared()}"  # noqa: S608
    )
    halt = rows[0].halt
    if halt is not None:
        raise SessionHalted(TerminalReason.EXTERNAL_HALT, f"{halt_told(halt)} {TO_RELEASE}")


def current_halt() -> Halt | None:
    """The halt of all work that stands now, if one does; without a lock, to tell of it."""
    return Halt.objects.select_related("requested_by").filter(pk__in=Installation.objects.values("halt_id")).first()


def halt_told(halt: Halt, *, already: bool = False) -> str:
    """Who has halted all work, since when, and why."""
    by = halt.requested_by.get_username() if halt.requested_by else "somebody unnamed"
    why = f": {halt.reason.rstrip('.')}" if halt.reason else ""
    return (
        f"All work is {'already ' if already else ''}halted by {by} since {halt.requested_at:%Y-%m-%d %H:%M} UTC{why}."
    )


def _shared(table: str = "") -> str:
    """SQLite's transaction is the lock."""
    of = f" OF {table}" if table else ""
    return f" FOR SHARE{of}" if transaction.get_connection().vendor == "postgresql" else ""
