"""Agents: made, changed and deleted by people. Who changed one last is remembered: four eyes leave that person out.

While sessions of an agent are under way its approval mode can only be tightened; nobody widens what a run may do
without being asked while it runs.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition
from agents.enums import ApprovalMode, BudgetScope, Mode
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.ledger.boundary import demand_birth, demand_on
from agents.ledger.budgets import budget_set_cap
from agents.loop.heartbeat import heartbeat_of, heartbeat_start, heartbeat_stop
from agents.loop.reads import running
from agents.models import Agent, AgentSession
from agents.people.access import SYSTEM, actor_of, demand_access
from agents.roster.loops import loop_is_awaited, loop_restart, loop_start, loop_stop
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

# An agent as a whole: its loop with the sensors, and its heartbeat, start and stop together, under its lock.


BY_ITSELF: Final = (Mode.LOOP, Mode.HEARTBEAT)


@dataclass(frozen=True)
class UnderWay:
    """What an agent has going on by itself."""

    loop: AgentSession | None = None
    heartbeat: AgentSession | None = None


def agent_under_way(agent: Agent) -> UnderWay:
    newest = {row.mode: row for row in running(agent.pk, *BY_ITSELF).reverse()}
    return UnderWay(newest.get(Mode.LOOP), newest.get(Mode.HEARTBEAT))


def agent_is_going(agent: Agent) -> bool:
    return running(agent.pk, *BY_ITSELF).exists()


@transaction.atomic
def agent_start(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> UnderWay:
    """Starts what its definition has, and leaves alone what is under way."""
    definition = _paced(_locked(agent))
    beats = heartbeat_of(definition) is not None
    before = agent_under_way(agent)
    begun = UnderWay(
        loop=loop_start(agent=agent, by=by, now=now, actor=actor) if definition.is_autonomous else None,
        heartbeat=heartbeat_start(agent=agent, by=by, now=now, actor=actor) if beats else None,
    )
    if begun != before:
        agent_record(agent, "agent.started", actor_of(by, actor), now=now)
    return begun


def _paced(agent: Agent) -> AgentDefinition:
    """Its definition, if there is something in it that the agent does by itself."""
    definition = definition_of(agent)
    if not definition.is_autonomous and heartbeat_of(definition) is None:
        raise Invalid(
            f"The agent {agent.name} does nothing by itself: its definition has neither autonomy with enabled: true "
            "nor a heartbeat."
        )
    return definition


def demand_startable(agent: Agent) -> None:
    """Refuses what `agent_start` would refuse as things stand. Nothing is written."""
    _paced(agent)
    demand_on(agent)
    if not agent_is_going(agent):
        demand_birth(agent.owner_id)


@transaction.atomic
def agent_stop(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> bool:
    """Ends both, and a loop that would begin anew with the next day does not; sessions that triggers and chats have
    begun are not touched. False when there was nothing to stop."""
    row = _locked(agent)
    awaited = loop_is_awaited(row)
    loops = loop_stop(agent=row, by=by, now=now, actor=actor)
    beats = heartbeat_stop(agent=row, by=by, now=now, actor=actor)
    stopped = bool(awaited or loops.requested or beats.requested)
    if stopped:
        agent_record(row, "agent.stopped", actor_of(by, actor), now=now)
    return stopped


@transaction.atomic
def agent_fit(*, agent: Agent, definition: AgentDefinition, now: datetime, actor: str) -> bool:
    """Ends what a new definition does not have any more; True if that was something. The caller records it: words to
    the record come after all locks."""
    ended = 0
    if not definition.is_autonomous:
        ended += loop_stop(agent=agent, by=None, now=now, actor=actor).requested
    if heartbeat_of(definition) is None:
        ended += heartbeat_stop(agent=agent, by=None, now=now, actor=actor).requested
    return bool(ended)


@transaction.atomic
def agent_restart(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> UnderWay:
    """Begins anew, with an empty hot state and a full cap."""
    agent = _locked(agent)
    heartbeat_stop(agent=agent, by=by, now=now, actor=actor)
    if definition_of(agent).is_autonomous:
        loop_restart(agent=agent, by=by, now=now, actor=actor)
    return agent_start(agent=agent, by=by, now=now, actor=actor)


def _locked(agent: Agent) -> Agent:
    return Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)


def agent_record(agent: Agent, kind: str, actor: str, *, now: datetime) -> None:
    named = str(agent.public_id)
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor, subject=f"agent:{named}", details={"agent_id": named})


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
