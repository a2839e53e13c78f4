"""A run that somebody asks for now, from the admin, the API or a command: the same brakes, the same receipt."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import TriggerKind
from agents.exceptions import Invalid
from agents.models import (
    Agent,
    AgentSession,
    Collection,
    Document,
    InboundEvent,
    Playbook,
    Project,
    PromptSkill,
    Trigger,
)
from agents.services.actors import actor_of
from agents.services.ownership import demand_access
from agents.services.sessions import session_create
from agents.services.spawning import collection_params, given_params, target_params
from agents.services.trigger_fields import checked_cap, demand_owned, demand_skill, plain
from audit import recorder
from audit.models import SYSTEM_CHAIN

QUERY_CHARS = 500


@transaction.atomic
def run_now(
    *,
    owner: User,
    by: User | None,
    now: datetime,
    playbook: Playbook | None = None,
    skill: PromptSkill | None = None,
    collection: Collection | None = None,
    document: Document | None = None,
    project: Project | None = None,
    agent: Agent | None = None,
    trigger: Trigger | None = None,
    max_cost_usd: Decimal | None = None,
    emit_artifacts: bool = False,
    query: str = "",
    event: InboundEvent | None = None,
    restarted_from: AgentSession | None = None,
) -> AgentSession:
    """One session by exactly one playbook or skill, or by what a trigger goes by; what is said here goes first.

    It reads the document, or what matches the query, or the whole collection, and the event if there is one; it is
    never a baseline. A trigger that is paused or switched off can be run, too: a person has decided it.
    """
    demand_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    bound = {"collection": collection, "document": document, "project": project, "agent": agent, "playbook": playbook}
    for name, row in {**bound, "trigger": trigger, "event": event, "session": restarted_from}.items():
        demand_owned(name, row, owner.pk)
    target = _target(playbook, demand_skill("skill", skill), trigger)
    collection = collection or (trigger.collection if trigger else None)
    asked = given_params(
        document=document and str(document.public_id),
        query=plain("query", query, QUERY_CHARS),
        emit_artifacts=emit_artifacts,
        event=event and {"id": str(event.public_id)},
    )
    session = session_create(
        owner=owner,
        agent=_demand_on(agent or (trigger.agent if trigger else None)),
        trigger=trigger,
        project=project or (trigger.project if trigger else None),
        max_cost_usd=checked_cap("max_cost_usd", max_cost_usd),
        params={**target, **collection_params(collection), **asked},
        restarted_from=restarted_from,
        # A trigger lends what it goes by and its budget; it is a person who made it run.
        trigger_kind=TriggerKind.MANUAL,
        now=now,
    )
    _record(session, by=by, now=now, playbook=playbook, skill=skill, collection=collection)
    return session


def _target(playbook: Playbook | None, skill: PromptSkill | None, trigger: Trigger | None) -> dict[str, Any]:
    """What the run goes by: the one thing that was named."""
    targets = (playbook is not None) + (skill is not None)
    if trigger is None and targets != 1:
        raise Invalid(f"A run needs exactly one playbook or skill; {targets} were given.")
    if trigger is not None and targets:
        raise Invalid("A trigger brings its own playbook or skill: name the trigger alone, or the other alone.")
    if trigger is not None:
        return target_params(trigger)
    return given_params(playbook=playbook and str(playbook.public_id), skill=skill and skill.name)


def _demand_on(agent: Agent | None) -> Agent | None:
    if agent is not None and not agent.enabled:
        raise Invalid(f"The agent {agent.name} is switched off: switch it on, or choose another.")
    return agent


def _record(session: AgentSession, *, by: User | None, now: datetime, **rows: Any) -> None:
    rows |= {"trigger": session.trigger, "project": session.project}
    recorder.append(
        SYSTEM_CHAIN,
        "autonomous_trigger.run_now",
        now=now,
        actor=actor_of(by),
        subject=f"session:{session.public_id}",
        details={
            "session_id": str(session.public_id),
            "cap_usd": str(session.max_cost_usd),
            **{f"{name}_id": str(row.public_id) for name, row in rows.items() if row is not None},
        },
    )
