"""Which agent a command means: one lookup for all of them."""

from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.ask.naming import rows_by_id
from agents.models import Agent

SHOWN = 10
AGENT_HELP = "The agent's name, its public id, or enough of the beginning of that."


def agent_named(said: str, *, owner: User | None = None) -> Agent:
    """The one agent of that public id, or of that name, or whose public id begins so; the owner's, if one is given.

    A whole public id goes first: nobody takes another agent's place by naming his own like it.
    """
    rows = Agent.objects.select_related("owner").order_by("pk")
    if owner is not None:
        rows = rows.filter(owner=owner)
    found = list(rows.filter(public_id=said)) if _is_whole_id(said) else []
    found = found or list(rows.filter(name=said)) or rows_by_id(rows, said.lower())
    if not found:
        raise CommandError(f"{owner} has no agent {said!r}." if owner else f"There is no agent {said!r}.")
    if len(found) > 1:
        listed = "".join(f"\n  {agent.public_id}  {agent.name}  of {agent.owner}" for agent in found[:SHOWN])
        raise CommandError(f"Several agents are meant by {said!r}: say the public id of one.{listed}")
    return found[0]


def _is_whole_id(said: str) -> bool:
    try:
        UUID(said)
    except ValueError:
        return False
    return True
