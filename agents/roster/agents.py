"""Agents: made, changed and deleted by people. Who changed one last is remembered: four eyes leave that person out.

While sessions of an agent are under way its approval mode can only be tightened; nobody widens what a run may do
without being asked while it runs.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import ApprovalMode, BudgetScope
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.ledger.budgets import budget_set_cap
from agents.models import Agent, AgentSession
from agents.people.access import actor_of, demand_access
from agents.roster.lifecycles import agent_stop
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

WAIVER: Final = "allow_high_risk"
FIELDS: Final = frozenset({"name", "mode", "enabled", "max_cost_per_day_usd", WAIVER})
NAME_CHARS: Final = 120


@transaction.atomic
def agent_create(*, owner: User, name: str, by: User | None, now: datetime, **fields: Any) -> Agent:
    """An agent with no history. Without a mode it is `semi`."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_agent")
    given = _checked({"name": name, **fields})
    _demand_superuser(given, by)
    if Agent.objects.filter(owner=owner, name=given["name"]).exists():
        raise Invalid(f"{owner} has an agent named {given['name']!r} already; choose another name.")
    agent = Agent.objects.create(owner=owner, edited_by=by, created_at=now, **given)
    details = {"agent_id": str(agent.public_id), "mode": agent.mode, "cap_usd": _text(agent.max_cost_per_day_usd)}
    _record(agent, "agent.created", by=by, now=now, **details, **({WAIVER: True} if agent.allow_high_risk else {}))
    return agent


@transaction.atomic
def agent_edit(*, agent: Agent, by: User | None, now: datetime, **changes: Any) -> Agent:
    """Changes what differs. A new daily cap holds for today's books too: the very next call is judged by it.

    An agent that is switched off stops what it does by itself; runs of its triggers go on to their end.
    """
    demand_access(by, owner_id=agent.owner_id, permission="agents.change_agent")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    changed = {name: value for name, value in _checked(changes).items() if getattr(row, name) != value}
    if not changed:
        return row
    _demand_superuser(changed, by)
    if "mode" in changed:
        _check_mode(row, changed["mode"])
    if changed.get(WAIVER):
        _demand_at_rest(row, "calls of high risk cannot be allowed now")
    if "name" in changed and Agent.objects.filter(owner_id=row.owner_id, name=changed["name"]).exists():
        raise Invalid(f"There is an agent named {changed['name']!r} already; choose another name.")
    fields = sorted(changed)
    if "max_cost_per_day_usd" in changed:
        cap = changed.pop("max_cost_per_day_usd")
        budget_set_cap(scope=BudgetScope.AGENT, subject_id=row.pk, cap_usd=cap, actor=actor_of(by), now=now)
    Agent.objects.filter(pk=row.pk).update(**changed, edited_by=by)
    row.refresh_from_db()
    if not row.enabled and "enabled" in changed:
        agent_stop(agent=row, by=None, now=now, actor=actor_of(by))
    details = {
        "agent_id": str(row.public_id),
        "fields": fields,
        "mode": row.mode,
        "cap_usd": _text(row.max_cost_per_day_usd),
    }
    waived = {WAIVER: row.allow_high_risk} if WAIVER in changed else {}
    _record(row, "agent.edited", by=by, now=now, **details, **waived)
    return row


@transaction.atomic
def agent_delete(*, agent: Agent, by: User | None, now: datetime) -> None:
    """Deletes an agent that has never run and spawns nothing; one with a history is switched off instead."""
    demand_access(by, owner_id=agent.owner_id, permission="agents.delete_agent")
    if agent.sessions.exists() or agent.triggers.exists():
        raise InvalidTransition(f"Agent {agent.name!r} has sessions or triggers; switch it off instead of deleting it.")
    _record(agent, "agent.deleted", by=by, now=now, agent_id=str(agent.public_id))
    agent.delete()


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(fields.keys() - FIELDS)
    if unknown:
        raise Invalid(f"An agent has no {', '.join(unknown)}; it has {', '.join(sorted(FIELDS))}.")
    given = dict(fields)
    if "name" in given:
        given["name"] = redact(str(given["name"])).strip()
        if not 0 < len(given["name"]) <= NAME_CHARS:
            raise Invalid(f"The name of an agent has 1 to {NAME_CHARS} characters, not {len(given['name'])}.")
    if "mode" in given and given["mode"] not in ApprovalMode.values:
        raise Invalid(f"{given['mode']!r} is no approval mode; choose one of {', '.join(ApprovalMode.values)}.")
    if not isinstance(given.get(WAIVER, False), bool):
        raise Invalid(f"{WAIVER} is {given[WAIVER]!r}; it must be true or false.")
    return given


def _demand_superuser(given: dict[str, Any], by: User | None) -> None:
    """Nobody else lets calls of high risk run unasked; whoever may change an agent may take it back."""
    if given.get(WAIVER) and not (by is not None and by.is_active and by.is_superuser):
        raise NotAllowed(f"{WAIVER}: only a superuser may let calls of high risk run without asking a person.")


def _check_mode(agent: Agent, mode: str) -> None:
    modes = list(ApprovalMode)
    if modes.index(ApprovalMode(mode)) < modes.index(ApprovalMode(agent.mode)):
        _demand_at_rest(agent, f"its mode {agent.mode} can be tightened now, not loosened to {mode}")


def _demand_at_rest(agent: Agent, what: str) -> None:
    under_way = AgentSession.objects.active().filter(agent=agent).count()
    if under_way:
        going = "1 session" if under_way == 1 else f"{under_way} sessions"
        verb, them, their = ("is", "it", "its") if under_way == 1 else ("are", "them", "their")
        raise InvalidTransition(
            f"{going} of {agent.name!r} {verb} under way: {what}. Halt {them}, or wait for {their} end."
        )


def _record(agent: Agent, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    subject = f"agent:{agent.public_id}"
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by), subject=subject, details=details)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
