"""A run that somebody asks for now, from the admin, the API or a command: the same brakes, the same receipt.

A trigger that is paused or switched off can be run like this: a person has decided it. `review_flagged` means what it
means on a trigger; `actor` is whom the record names if `by` is nobody.
"""

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
from agents.services.actors import SYSTEM, actor_of
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
    review_flagged: bool = False,
    query: str = "",
    event: InboundEvent | None = None,
    restarted_from: AgentSession | None = None,
    actor: str = SYSTEM,
) -> AgentSession:
    """One session by exactly one playbook or skill, or by what a trigger goes by; what is said here goes first.

    It reads the document, or what matches the query, or the whole collection, and the event if there is one; a run that
    is made again reads since the same time, and only such a one can be a baseline. A paused trigger can be run, too.
    """
    demand_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    bound = {"collection": collection, "document": document, "project": project, "agent": agent, "playbook": playbook}
    for name, row in {**bound, "trigger": trigger, "event": event, "session": restarted_from}.items():
        demand_owned(name, row, owner.pk)
    target = _target(playbook, demand_skill("skill", skill), trigger)
    collection = collection or (trigger.collection if trigger else None)
    asked = _asked(document, query, event, emit_artifacts=emit_artifacts, review_flagged=review_flagged)
    read = {**collection_params(collection), **_as_before(restarted_from)}
    params, asked_by = {**target, **read, **asked}, actor_of(by, actor)
    _demand_something_to_read(params, trigger)
    session = session_create(
        owner=owner,
        agent=_demand_on(agent or (trigger.agent if trigger else None)),
        trigger=trigger,
        project=project or (trigger.project if trigger else None),
        max_cost_usd=checked_cap("max_cost_usd", max_cost_usd),
        params=params,
        restarted_from=restarted_from,
        # A trigger lends what it goes by and its budget; it is a person who made it run.
        trigger_kind=TriggerKind.MANUAL,
        asked_by=asked_by,
        now=now,
    )
    _record(session, asked_by, now=now, playbook=playbook, skill=skill, collection=collection)
    return session


def _as_before(session: AgentSession | None) -> dict[str, Any]:
    """What a run that is made again takes over, and nobody is asked for."""
    kept = ("since", "baseline", "judge_citations")
    return {name: session.params[name] for name in kept if name in session.params} if session else {}


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


def _asked(document: Document | None, query: str, event: InboundEvent | None, **flags: bool) -> dict[str, Any]:
    """What somebody said of this one run."""
    return given_params(
        document=document and str(document.public_id),
        query=plain("query", query, QUERY_CHARS),
        event=event and {"id": str(event.public_id)},
        **flags,
    )


def _demand_something_to_read(params: dict[str, Any], trigger: Trigger | None) -> None:
    """A run over nothing would end without a question, and look like one that found nothing."""
    if any(params.get(name) for name in ("document", "query", "collection", "event")):
        return
    if trigger is None:
        raise Invalid("A run needs something to read: name a document, a collection or a query.")
    raise Invalid(
        f"The trigger {trigger.name} has nothing to read when it is run by hand: name a document or a collection, or "
        "give the trigger a collection or a query."
    )


def _demand_on(agent: Agent | None) -> Agent | None:
    if agent is not None and not agent.enabled:
        raise Invalid(f"The agent {agent.name} is switched off: switch it on, or choose another.")
    return agent


def _record(session: AgentSession, actor: str, *, now: datetime, **rows: Any) -> None:
    rows |= {"trigger": session.trigger, "project": session.project}
    recorder.append(
        SYSTEM_CHAIN,
        "autonomous_trigger.run_now",
        now=now,
        actor=actor,
        subject=f"session:{session.public_id}",
        details={
            "session_id": str(session.public_id),
            "cap_usd": str(session.max_cost_usd),
            **{f"{name}_id": str(row.public_id) for name, row in rows.items() if row is not None},
        },
    )
