"""An agent as a whole: its loop with the sensors, and its heartbeat, start and stop together, under its lock."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition
from agents.enums import Mode
from agents.exceptions import Invalid
from agents.ledger.boundary import demand_birth, demand_on
from agents.loop.heartbeats import heartbeat_of, heartbeat_start, heartbeat_stop
from agents.loop.reads import running
from agents.models import Agent, AgentSession
from agents.people.access import SYSTEM, actor_of
from agents.roster.loops import loop_is_awaited, loop_restart, loop_start, loop_stop
from audit import recorder
from audit.models import SYSTEM_CHAIN

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
