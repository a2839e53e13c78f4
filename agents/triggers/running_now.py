"""A run that somebody asks for now, from the admin, the API or a command: the same brakes, the same receipt.

A trigger that is paused or switched off can be run like this: a person has decided it. `review_flagged` means what it
means on a trigger; `actor` is whom the record names if `by` is nobody.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import definition_of, walk_token_budget
from agents.enums import AnalysisMode, TriggerKind
from agents.exceptions import Invalid
from agents.ledger.boundary import demand_birth, demand_on
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
from agents.people.access import SYSTEM, actor_of, demand_access
from agents.sessions.lifecycle import session_create
from agents.text.clean import storable
from agents.triggers.firing import collection_params, given_params, target_params
from agents.triggers.trigger_fields import checked_cap, demand_owned, demand_skill, plain
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

QUERY_CHARS = 500
GOAL_CHARS = 20_000


@transaction.atomic
def run_now(
    *,
    owner: User,
    by: User | None,
    now: datetime,
    playbook: Playbook | None = None,
    skill: PromptSkill | None = None,
    goal: str = "",
    collection: Collection | None = None,
    document: Document | None = None,
    project: Project | None = None,
    agent: Agent | None = None,
    trigger: Trigger | None = None,
    max_cost_usd: Decimal | None = None,
    emit_artifacts: bool = False,
    review_flagged: bool = False,
    analysis_mode: str = "",
    query: str = "",
    event: InboundEvent | None = None,
    restarted_from: AgentSession | None = None,
    actor: str = SYSTEM,
) -> AgentSession:
    """One session by one playbook or skill, towards a goal, or both, or by a trigger's. None needs something to read.

    It reads the document, or what matches the query, or the whole collection, and the event if there is one; a run that
    is made again reads since the same time, up to the same end if one was set; only such a one can be a baseline.
    """
    demand_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    bound = {"collection": collection, "document": document, "project": project, "agent": agent, "playbook": playbook}
    _demand_owned(owner, **bound, trigger=trigger, event=event, session=restarted_from)
    target = _target(playbook, demand_skill("skill", skill), _checked_goal(goal), trigger)
    mode = _checked_mode(analysis_mode, target, trigger)
    collection = collection or (trigger.collection if trigger else None)
    asked = _asked(document, query, event, mode, emit_artifacts=emit_artifacts, review_flagged=review_flagged)
    params = {**target, **collection_params(collection), **_as_before(restarted_from, trigger), **asked}
    runs, asked_by = demand_on(agent or (trigger.agent if trigger else None)), actor_of(by, actor)
    session = session_create(
        owner=owner,
        agent=runs,
        trigger=trigger,
        project=project or (trigger.project if trigger else None),
        max_cost_usd=_cap(max_cost_usd, target, runs),
        token_budget=walk_token_budget(runs, params),
        params=_with_something_to_read(params, trigger),
        restarted_from=restarted_from,
        trigger_kind=TriggerKind.MANUAL,  # a trigger lends what it goes by; it is a person who made it run
        asked_by=asked_by,
        now=now,
    )
    return _recorded(session, asked_by, now=now, playbook=playbook, skill=skill, collection=collection)


def demand_run(*, owner: User, agent: Agent | None, trigger: Trigger | None = None) -> None:
    """Refuses what `run_now` would refuse as things stand, for what was asked for. Nothing is written."""
    demand_on(agent or (trigger.agent if trigger else None))
    if trigger is not None:
        _with_something_to_read({**target_params(trigger), **collection_params(trigger.collection)}, trigger)
    demand_birth(owner.pk)


def _demand_owned(owner: User, **rows: Any) -> None:
    for name, row in rows.items():
        demand_owned(name, row, owner.pk)


def _as_before(session: AgentSession | None, trigger: Trigger | None) -> dict[str, Any]:
    """What a run that is made again takes over unasked; how its steps run too, unless a trigger says that."""
    kept = ("since", "until", "baseline", "judge_citations", *(() if trigger else ("loop", "guardrails")))
    return {name: session.params[name] for name in kept if name in session.params} if session else {}


def _target(playbook: Playbook | None, skill: PromptSkill | None, goal: str, trigger: Trigger | None) -> dict[str, Any]:
    """What the run goes by: the one thing that was named."""
    targets = (playbook is not None) + (skill is not None)
    if trigger is None and (targets > 1 or not (targets or goal)):
        raise Invalid(f"A run needs exactly one playbook or skill, or a goal; {targets} were given.")
    if trigger is not None and (targets or goal):
        raise Invalid("A trigger brings its own playbook or skill: name the trigger alone, or the other alone.")
    if trigger is not None:
        return target_params(trigger)
    return given_params(playbook=playbook and str(playbook.public_id), skill=skill and skill.name, goal=goal)


def _checked_goal(goal: str) -> str:
    text = redact(storable(goal)).strip()
    if len(text) > GOAL_CHARS:
        raise Invalid(f"A goal has at most {GOAL_CHARS} characters; this one has {len(text)}.")
    return text


def _cap(given: Decimal | None, target: dict[str, Any], agent: Agent | None) -> Decimal | None:
    """What was given; else, for a goal, what its agent's definition says."""
    cap = checked_cap("max_cost_usd", given)
    return definition_of(agent).max_cost_usd if cap is None and agent and "goal" in target else cap


def _checked_mode(mode: str, target: dict[str, Any], trigger: Trigger | None) -> str:
    """What was asked for; `single` needs no saying where nothing else would hold, and steps need none for a goal."""
    if mode and mode not in AnalysisMode.values:
        raise Invalid(f"analysis_mode is {mode!r}; it must be one of {', '.join(AnalysisMode.values)}.")
    if "goal" in target:
        if mode == AnalysisMode.SINGLE:
            raise Invalid("A goal is worked towards in steps: leave analysis_mode out, or say agentic.")
        return AnalysisMode.AGENTIC.value
    return "" if trigger is None and mode == AnalysisMode.SINGLE else str(mode)


def _asked(
    document: Document | None, query: str, event: InboundEvent | None, mode: str, **flags: bool
) -> dict[str, Any]:
    """What somebody said of this one run."""
    return given_params(
        document=document and str(document.public_id),
        query=plain("query", query, QUERY_CHARS),
        event=event and {"id": str(event.public_id)},
        analysis_mode=mode,
        **flags,
    )


def _with_something_to_read(params: dict[str, Any], trigger: Trigger | None) -> dict[str, Any]:
    """A trigger with nothing to read by hand was made for other things. Whoever names a playbook or skill alone gets a
    run that says that it was given nothing."""
    if trigger is None or any(params.get(name) for name in ("goal", "document", "query", "collection", "event")):
        return params
    raise Invalid(
        f"The trigger {trigger.name} has nothing to read when it is run by hand: name a document or a collection, or "
        "give the trigger a collection or a query."
    )


def _recorded(session: AgentSession, actor: str, *, now: datetime, **rows: Any) -> AgentSession:
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
    return session
