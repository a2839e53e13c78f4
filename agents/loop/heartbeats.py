"""Heartbeats: a turn with a fixed prompt every so often, in a session of its own each time.

The next beat is there before the present one begins: a session that sleeps until its time. So a beat that fails does
not stop those after it, and stopping them means ending the one that sleeps.
"""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import definition_of, loop_for
from agents.definitions.schema import AgentDefinition, Heartbeat
from agents.enums import Mode
from agents.exceptions import Invalid
from agents.loop.reads import running
from agents.models import Agent, AgentSession
from agents.people.access import SYSTEM, actor_of, demand_access
from agents.policy.schedule import Hours
from agents.sessions.halts import HaltCount, sessions_halt
from agents.sessions.lifecycle import session_create

STOPPED = "The heartbeat was stopped."


def heartbeat_of(definition: AgentDefinition) -> Heartbeat | None:
    """None when there is none, or it is switched off."""
    return definition.heartbeat if definition.heartbeat and definition.heartbeat.enabled else None


def within_hours(definition: AgentDefinition, at: datetime) -> datetime:
    """That moment, or the next at which the agent's hours begin."""
    active = definition.autonomy.active_hours if definition.autonomy else None
    hours = Hours.of(active.start, active.end, definition.zone) if active else None
    return at if hours is None or hours.hold(at) else hours.next_start(at)


@transaction.atomic
def heartbeat_start(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> AgentSession:
    """The beat that comes next: one that is planned already, else the first, an interval from now."""
    demand_access(by, owner_id=agent.owner_id, permission="agents.change_agentsession")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    beat = heartbeat_of(definition_of(row))
    if beat is None or not row.enabled:
        raise Invalid(f"The agent {row.name} is switched off, or its definition has no heartbeat that is switched on.")
    planned = running(row.pk, Mode.HEARTBEAT).first()
    return planned or _plan(row, now + timedelta(seconds=beat.interval), asked_by=actor_of(by, actor), now=now)


@transaction.atomic
def heartbeat_next(session: AgentSession, agent: Agent, *, now: datetime) -> AgentSession | None:
    """The beat after this one; none when this one was told to stop. Beats that were missed are not made up for."""
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    newest = running(row.pk, Mode.HEARTBEAT).first()
    if newest is None or newest.pk != session.pk:
        return newest
    beat = heartbeat_of(definition_of(row))
    interval = timedelta(seconds=beat.interval) if beat else timedelta(0)
    planned = datetime.fromisoformat(session.params["due_at"]) + interval
    due = planned if planned > now else now + interval
    return _plan(row, due, asked_by=session.metadata.get("asked_by", SYSTEM), now=now)


@transaction.atomic
def heartbeat_stop(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> HaltCount:
    """Ends the beat under way and the one that is planned. Under the agent's lock: nobody plans another meanwhile."""
    demand_access(by, owner_id=agent.owner_id, permission="agents.change_agentsession")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    pks = list(running(row.pk, Mode.HEARTBEAT).values_list("pk", flat=True))
    return sessions_halt(pks, by=by, reason=STOPPED, now=now, actor=actor)


def _plan(agent: Agent, at: datetime, *, asked_by: str, now: datetime) -> AgentSession:
    definition = definition_of(agent)
    due = within_hours(definition, at)
    params = {"key": f"agent:{agent.public_id}:heartbeat", "due_at": due.isoformat()}
    return session_create(
        owner=agent.owner,
        agent=agent,
        mode=Mode.HEARTBEAT,
        slot=f"heartbeat:{int(due.timestamp())}",
        max_cost_usd=definition.max_cost_usd,
        token_budget=loop_for(agent, params).token_budget,
        params=params,
        asked_by=asked_by,
        wake_at=due,
        now=now,
    )
