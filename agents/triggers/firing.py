"""Starting runs: a trigger fires, a person runs something now, or runs a session again.

A firing is one transaction under the trigger's lock; the database holds one session per trigger and slot, so whatever
is sent twice starts one session. Every run has a cap and passes the guard. The order of locks and of audit rows stands
in ledger/trigger_health.py.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import models, transaction

from agents.definitions.in_force import definition_of, walk_token_budget
from agents.enums import AnalysisMode, EventOutcome, Mode, TriggerKind
from agents.exceptions import Invalid, InvalidTransition, NotAllowed, NotFound, SessionHalted
from agents.knowledge.search import collection_get, document_get, documents_in, documents_read
from agents.ledger.boundary import may_run_for, require_enabled, require_may_start
from agents.ledger.inputs import input_lock, input_taken
from agents.ledger.loans import MAX_DEPTH
from agents.ledger.trigger_health import STORM, subject_of, trigger_lock, trigger_record, trigger_stop
from agents.models import (
    Agent,
    AgentSession,
    Collection,
    Document,
    InboundEvent,
    Installation,
    Playbook,
    Project,
    PromptSkill,
    Trigger,
)
from agents.models.sessions import RETRY
from agents.people.access import SYSTEM, actor_of, require_access
from agents.people.ceilings import require_within_ceilings
from agents.policy.run_spec import GOAL_CHARS, OPTION_NAMES, QUERY_CHARS, RunSpec
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import session_create
from agents.sessions.reads import as_uuid, started_by
from agents.text.clean import json_safe
from agents.triggers.handing_on import cap_lend, record_handed_on
from agents.triggers.triggers import checked_cap, owned_rows, plain, require_owned, require_skill_enabled
from agents.walk.analysis import ReadingPlan, plan_of_documents
from audit import recorder
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.redaction import redact

# --- Refusals: when a trigger may not fire ---
#
# Two counts, neither of them a column: runs of the last hour are the trigger's sessions; refusals for rate are its
# refused events or, for triggers that take none, its refusals in the audit log. Too many of those blow the fuse: the
# trigger is paused, and nothing more is written for what it refuses. All of it happens under the trigger's lock.


# Rows of the owner that a spec names, besides a skill.
NAMED_ROWS: Final[dict[str, type[models.Model]]] = {
    "playbook": Playbook,
    "collection": Collection,
    "document": Document,
    "event": InboundEvent,
}
# Parts of its own spec that a session keeps when its trigger runs it again; all else is the trigger's of today.
_KEPT_WITH_TRIGGER: Final = ("document", "collection", "event", "since", "until", "baseline", "judge_citations")

FUSE: Final = 3  # refusals within an hour, as a multiple of the hourly limit
HOUR: Final = timedelta(hours=1)
RECORDED_EVERY: Final = timedelta(minutes=1)
HALTED_RETRY_SECONDS: Final = 60
_REFUSED: Final = "autonomous_trigger.refused"


class Reason(StrEnum):
    DELETED = "deleted"
    DISABLED = "disabled"
    PAUSED = "paused"
    STORM = STORM
    OPTED_OUT = "opted_out"
    HALTED = "halted"
    DEPTH = "depth"
    RATE = "rate"


@dataclass(frozen=True)
class Refused:
    """Why a trigger did not fire, and after how many seconds to try again; 0 means unknown."""

    reason: Reason
    retry_after: int = 0


def all_work_halted() -> bool:
    return Installation.objects.filter(pk=1, halt__isnull=False).exists()


def refusal(row: Trigger, *, depth: int, now: datetime, needs_room: bool = True) -> Refused | None:
    """Return the first reason that keeps the trigger from firing now; None if it may fire."""
    if reason := _standing(row):
        return Refused(reason, int(HOUR.total_seconds()) if reason == Reason.STORM else 0)
    if all_work_halted():
        return Refused(Reason.HALTED, HALTED_RETRY_SECONDS)
    if depth > MAX_DEPTH:
        return Refused(Reason.DEPTH)
    wait = _rate_wait(row, now) if needs_room else 0
    return Refused(Reason.RATE, wait) if wait else None


def _standing(row: Trigger) -> Reason | None:
    if row.deleted_at is not None:
        return Reason.DELETED
    if not row.enabled or (row.agent is not None and not row.agent.enabled):
        return Reason.DISABLED
    if row.paused_at is not None:
        return Reason.STORM if row.pause_reason == STORM else Reason.PAUSED
    if not may_run_for(row.owner_id):
        return Reason.OPTED_OUT
    return None


def _rate_wait(row: Trigger, now: datetime) -> int:
    """Return the seconds until the trigger has room for another run in the hour. Runs that retry do not count."""
    most = row.max_runs_per_hour
    runs = AgentSession.objects.filter(trigger=row).exclude(slot__startswith=RETRY)
    newest_first = runs.order_by("-pk").values_list("created_at", flat=True)
    taken_at = next(iter(newest_first[most - 1 : most]), None) if most else now
    if taken_at is None or taken_at <= now - HOUR:
        return 0
    return max(1, int((taken_at + HOUR - now).total_seconds()))


def refusal_record(row: Trigger, refused: Refused, *, slot: str, depth: int, now: datetime) -> None:
    """Record a refusal, and pause a trigger that is refused too often. A storm leaves few rows behind."""
    if refused.reason == Reason.STORM:
        return
    is_rate = refused.reason == Reason.RATE
    if is_rate and _refused_for_rate(row, now) + 1 >= FUSE * row.max_runs_per_hour:
        trigger_stop(row, STORM, now=now)
    # A schedule fires once a minute at most, and the fuse counts its audit rows; events have rows of their own.
    counted_here = is_rate and row.kind != TriggerKind.EVENT
    if counted_here or not _recorded(row, refused.reason, now - RECORDED_EVERY).exists():
        trigger_record(row, _REFUSED, now=now, reason=refused.reason, slot=slot, depth=depth)


def _refused_for_rate(row: Trigger, now: datetime) -> int:
    """Count refusals of the last hour, or since the trigger was resumed, which resets the fuse."""
    since = now - HOUR
    resumed = AuditEvent.objects.of_kind("autonomous_trigger.resumed").filter(subject=subject_of(row), at__gt=since)
    since = resumed.order_by("-id").values_list("at", flat=True).first() or since
    if row.kind == TriggerKind.EVENT:
        events = InboundEvent.objects.filter(trigger=row, outcome=EventOutcome.REFUSED)
        return events.filter(received_at__gt=since).count()
    return _recorded(row, Reason.RATE, since).count()


def _recorded(row: Trigger, reason: Reason, since: datetime) -> models.QuerySet[AuditEvent]:
    events = AuditEvent.objects.of_kind(_REFUSED).filter(subject=subject_of(row), at__gt=since)
    return events.filter(details__reason=reason.value)


@dataclass(frozen=True)
class Fired:
    """The session that answers a firing. Not `first`: it was started by an earlier firing of the same slot."""

    session: AgentSession
    first: bool = True


# --- Firing ---


@transaction.atomic
def trigger_fire(
    *,
    trigger: Trigger,
    slot: str,
    inputs: RunSpec,
    now: datetime,
    parent: AgentSession | None = None,
    restarted_from: AgentSession | None = None,
    asked_by: str = "",
    can_wait: bool = False,
) -> Fired | Refused:
    """Start one session for a slot of the trigger, or return why not. `inputs` is what this firing reads.

    With `can_wait` a trigger without room in this hour has refused nothing: the caller asks again later.
    """
    if not slot:
        raise ValueError("A firing needs a slot: without one it cannot be distinguished from another.")
    row = trigger_lock(trigger.pk)
    if row is None:
        return Refused(Reason.DELETED)
    # The lock makes this look-up decide; the database would refuse a second session all the same.
    taken = AgentSession.objects.filter(trigger=row, slot=slot).first()
    if taken is not None:
        return Fired(taken, first=False)
    depth = parent.depth + 1 if parent else restarted_from.depth if restarted_from else 0
    answer = refusal(row, depth=depth, now=now, needs_room=restarted_from is None) or _spawn(
        row,
        slot,
        inputs,
        depth=depth,
        restarted_from=restarted_from,
        asked_by=started_by(parent) if parent else asked_by,
        now=now,
    )
    if isinstance(answer, Fired):
        spawned = str(answer.session.public_id)
        trigger_record(
            row, "autonomous_trigger.fired", now=now, session_id=spawned, slot=slot, kind=row.kind, depth=depth
        )
    elif not (can_wait and answer.reason == Reason.RATE):
        refusal_record(row, answer, slot=slot, depth=depth, now=now)
    return answer


def _spawn(
    row: Trigger,
    slot: str,
    inputs: RunSpec,
    *,
    depth: int,
    restarted_from: AgentSession | None,
    asked_by: str,
    now: datetime,
) -> Fired | Refused:
    params = inputs.over(trigger_spec(row)).to_params()
    try:
        session = session_create(
            owner=row.owner,
            agent=row.agent,
            trigger=row,
            project=row.project,
            slot=slot,
            token_budget=walk_token_budget(row.agent, params),
            params=params,
            restarted_from=restarted_from,
            depth=depth,
            asked_by=asked_by,
            now=now,
        )
    except NotAllowed:  # opted out since the check a moment ago
        return Refused(Reason.OPTED_OUT)
    except SessionHalted:
        return Refused(Reason.HALTED, HALTED_RETRY_SECONDS)
    return Fired(session)


def trigger_spec(trigger: Trigger) -> RunSpec:
    """Return what the runs of a trigger do, whatever fires it. Inputs come with the firing."""
    options = {name: getattr(trigger, name) for name in OPTION_NAMES}
    if trigger.analysis_mode == AnalysisMode.SINGLE:
        options["analysis_mode"] = ""  # the default is not stored
    return RunSpec.of(playbook=trigger.playbook, skill=trigger.skill, query=trigger.query, **options)


# --- Run now ---


@transaction.atomic
def run_now(
    spec: RunSpec,
    *,
    owner: User,
    by: User | None,
    now: datetime,
    trigger: Trigger | None = None,
    agent: Agent | None = None,
    project: Project | None = None,
    restarted_from: AgentSession | None = None,
    actor: str = SYSTEM,
) -> AgentSession:
    """Start one session by a playbook or skill, towards a goal, or by a trigger's spec with `spec` laid over it.

    A paused or disabled trigger can be run like this: a person has decided it. The audit log names `actor` if `by` is
    nobody.
    """
    require_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    _require_owned(owner, project=project, agent=agent, trigger=trigger, session=restarted_from)
    asked = whole = _checked(spec, owner, trigger)
    require_within_ceilings(by, owner=owner, max_cost_usd=checked_cap("max_cost_usd", spec.max_cost_usd))
    if trigger is not None:
        whole = asked.over(_trigger_spec_by_hand(trigger))
        _require_work(whole, trigger)
    worker = require_enabled(agent or (trigger.agent if trigger else None))
    asked_by = actor_of(by, actor)
    session = session_create(
        owner=owner,
        agent=worker,
        trigger=trigger,
        project=project or (trigger.project if trigger else None),
        max_cost_usd=_cap(asked, worker),
        token_budget=walk_token_budget(worker, whole.to_params()),
        params=whole.to_params(),
        restarted_from=restarted_from,
        trigger_kind=TriggerKind.MANUAL,  # a person made it run; a trigger only lends its spec
        asked_by=asked_by,
        now=now,
    )
    _record_run(session, asked, whole.collection, actor=asked_by, now=now)
    return session


def run_estimate(
    spec: RunSpec,
    *,
    owner: User,
    by: User | None,
    trigger: Trigger | None = None,
    agent: Agent | None = None,
    project: Project | None = None,
) -> ReadingPlan:
    """Return in how many sections `run_now` would read a document or a collection, and about what that costs.

    Writes nothing. A run of steps, a goal and a query have no sections before they run.
    """
    require_access(by, owner_id=owner.pk, permission="agents.add_agentsession")
    _require_owned(owner, project=project, agent=agent, trigger=trigger)
    whole = _checked(spec, owner, trigger)
    if trigger is not None:
        whole = whole.over(_trigger_spec_by_hand(trigger))
        _require_work(whole, trigger)
    if whole.is_agentic or whole.query or not (whole.document or whole.collection):
        raise Invalid("An estimate needs a document or a collection that is read as a whole, in sections.")
    if whole.document:
        documents = [document_get(owner_id=owner.pk, public_id=UUID(whole.document))]
    else:
        collection = collection_get(owner_id=owner.pk, public_id=UUID(whole.collection))
        listed = documents_in(owner_id=owner.pk, collection=collection)
        documents = documents_read(owner_id=owner.pk, pks=[one.pk for one in listed])
    worker = agent or (trigger.agent if trigger else None)
    within = project or (trigger.project if trigger else None)
    session = AgentSession(owner=owner, agent=worker, project=within, params=whole.to_params())
    return plan_of_documents(session, documents)


def require_run_allowed(*, owner: User, agent: Agent | None, trigger: Trigger | None = None) -> None:
    """Refuse what `run_now` would refuse as things stand. Writes nothing."""
    require_enabled(agent or (trigger.agent if trigger else None))
    if trigger is not None:
        _require_work(_trigger_spec_by_hand(trigger), trigger)
    require_may_start(owner.pk)


def _require_owned(owner: User, **rows: models.Model | None) -> None:
    for name, row in rows.items():
        require_owned(name, row, owner.pk)


def _trigger_spec_by_hand(trigger: Trigger) -> RunSpec:
    """Return the spec of a trigger that is run by hand: it reads its whole collection."""
    return RunSpec.of(collection=trigger.collection).over(trigger_spec(trigger))


def _require_work(spec: RunSpec, trigger: Trigger) -> None:
    """Refuse a trigger that checks against nothing, or that was made for other inputs."""
    if not spec.has_target:
        raise Invalid(f"The trigger {trigger.name} has nothing to check against: give it a playbook or a skill.")
    if not spec.has_inputs:
        raise Invalid(
            f"The trigger {trigger.name} has nothing to read when it is run by hand: name a document or a collection, "
            "or give the trigger a collection or a query."
        )


def _checked(spec: RunSpec, owner: User, trigger: Trigger | None) -> RunSpec:
    """Return the spec as it is stored. What it names has to be there, and the owner's."""
    for name, model in NAMED_ROWS.items():
        if getattr(spec, name) and not _row_exists(model, getattr(spec, name), owner.pk):
            raise NotFound(f"There is no such {name}, or it was deleted.")
    targets = bool(spec.playbook) + bool(spec.skill)
    goal = redact(json_safe(spec.goal)).strip()
    if trigger is None and (targets > 1 or not (targets or goal)):
        raise Invalid(f"A run needs exactly one playbook or skill, or a goal; {targets} were given.")
    if trigger is not None and (targets or goal):
        raise Invalid("A trigger brings its own playbook or skill: name the trigger alone, or the other alone.")
    if len(goal) > GOAL_CHARS:
        raise Invalid(f"A goal has at most {GOAL_CHARS} characters; this one has {len(goal)}.")
    if spec.skill:
        require_skill_enabled(_skill_row(spec.skill))
    mode = _checked_mode(spec.analysis_mode, goal, trigger)
    return replace(spec, goal=goal, query=plain("query", spec.query, QUERY_CHARS), analysis_mode=mode)


def _checked_mode(mode: str, goal: str, trigger: Trigger | None) -> str:
    """`single` is stored only where it overrides a trigger; a goal is always agentic."""
    if mode and mode not in AnalysisMode.values:
        raise Invalid(f"analysis_mode is {mode!r}; it must be one of {', '.join(AnalysisMode.values)}.")
    if goal and mode == AnalysisMode.SINGLE:
        raise Invalid("A goal is worked towards in steps: leave analysis_mode out, or say agentic.")
    if goal:
        return AnalysisMode.AGENTIC.value
    return "" if trigger is None and mode == AnalysisMode.SINGLE else str(mode)


def _cap(spec: RunSpec, agent: Agent | None) -> Decimal | None:
    """Return the cap that was given; else, for a goal, the one of its agent's definition."""
    if spec.max_cost_usd is None and agent is not None and spec.goal:
        return definition_of(agent).max_cost_usd
    return checked_cap("max_cost_usd", spec.max_cost_usd)


def _record_run(session: AgentSession, asked: RunSpec, collection: str, *, actor: str, now: datetime) -> None:
    skill = _skill_row(asked.skill) if asked.skill else None
    ids = {
        "playbook_id": asked.playbook,
        "skill_id": str(skill.public_id) if skill else "",
        "collection_id": collection,
        "trigger_id": str(session.trigger.public_id) if session.trigger else "",
        "project_id": str(session.project.public_id) if session.project else "",
    }
    details = {"session_id": str(session.public_id), "cap_usd": str(session.max_cost_usd)}
    recorder.append(
        SYSTEM_CHAIN,
        "autonomous_trigger.run_now",
        now=now,
        actor=actor,
        subject=f"session:{session.public_id}",
        details=details | {name: value for name, value in ids.items() if value},
    )


# --- Runs that an agent starts ---


@transaction.atomic
def run_within(parent: AgentSession, spec: RunSpec, *, now: datetime) -> AgentSession:
    """Start a run for a session at work: of its owner, agent and project, and within what is left of its cap.

    Its cap is lent out of that rest, and what it leaves comes back when it is over. Budgets per day hold as always.
    """
    whole = _checked(spec, parent.owner, None)
    if not whole.has_inputs:
        raise Invalid("A run needs something to read: name a document, a collection or a query.")
    cap = cap_lend(parent, stated=checked_cap("max_cost_usd", spec.max_cost_usd))
    actor = started_by(parent)
    session = session_create(
        owner=parent.owner,
        agent=require_enabled(parent.agent),
        project=parent.project,
        max_cost_usd=cap,
        token_budget=walk_token_budget(parent.agent, whole.to_params()),
        params=whole.to_params(),
        depth=parent.depth + 1,
        parent=parent,
        asked_by=actor,
        now=now,
    )
    record_handed_on(parent, session, now=now)
    _record_run(session, whole, whole.collection, actor=actor, now=now)
    return session


# --- Run again ---


@transaction.atomic
def session_restart(
    *, session: AgentSession, by: User | None, now: datetime, max_cost_usd: Decimal | None = None
) -> AgentSession:
    """Start a new session that does the work of one that is over, and names it.

    A trigger that still exists brings its spec of today and its cap. Without one, the session's own spec and cap count;
    the cap that is given goes before both, since the one that stopped a run would stop it again.
    """
    require_access(by, owner_id=session.owner_id, permission="agents.change_agentsession")
    if session.status not in TERMINAL:
        raise InvalidTransition(f"Session {session.public_id} is {session.status}; halt it, or wait until it is over.")
    if session.mode != Mode.PHASED:
        raise InvalidTransition("Only runs are run again: say a message again in its chat; start a loop at its agent.")
    input_lock(session)  # before anything is recorded, as the ticker does
    spec = _same_inputs(session)
    bound: dict[str, Any] = {"project": session.project, "agent": session.agent}
    if session.trigger is not None and session.trigger.deleted_at is None:
        spec = inputs_again(session)
        bound = {"trigger": session.trigger}
    if spec.event and not _row_exists(InboundEvent, spec.event, session.owner_id):
        spec = replace(spec, event="")
    set_by_trigger = "trigger" in bound and bound["trigger"].max_cost_usd is not None
    cap = max_cost_usd if max_cost_usd is not None or set_by_trigger else session.cap_usd
    spec = replace(spec, max_cost_usd=cap)
    again = run_now(spec, owner=session.owner, by=by, now=now, restarted_from=session, **bound)
    input_taken(session, again)
    return again


def inputs_again(session: AgentSession) -> RunSpec:
    """Return what a session of a trigger read, for another run by that trigger as it is today."""
    spec = _same_inputs(session)
    return RunSpec(**{name: getattr(spec, name) for name in _KEPT_WITH_TRIGGER})


def _same_inputs(session: AgentSession) -> RunSpec:
    """Return the session's spec. What was attached after it belongs to the next run of its schedule."""
    spec = replace(session.spec, put_off=0)
    return replace(spec, until=session.created_at.isoformat()) if spec.since and not spec.until else spec


def _row_exists(model: type[models.Model], public_id: str, owner_id: int) -> bool:
    return as_uuid(public_id) is not None and owned_rows(model, owner_id).filter(public_id=public_id).exists()


def _skill_row(name: str) -> PromptSkill:
    found = PromptSkill.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"The skill {name} is not loaded any more.")
    return found
