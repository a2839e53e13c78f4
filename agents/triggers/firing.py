"""How a trigger spawns a session: one transaction under the trigger's lock, and one session for one slot.

The database holds one session per trigger and slot, so whatever is said twice spawns once. Every spawn is a session
under the brakes, with a cap. Order of locks and of the record: see ledger/trigger_health.py.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar

from django.contrib.auth.models import User
from django.db import models, transaction

from agents.definitions.in_force import definition_of, walk_token_budget
from agents.enums import AnalysisMode, EventOutcome, Mode, TriggerKind
from agents.exceptions import Invalid, InvalidTransition, NotAllowed, NotFound, SessionHalted
from agents.ledger.boundary import demand_birth, demand_on, may_run_for
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
from agents.people.access import SYSTEM, actor_of, demand_access
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import session_create
from agents.text.clean import storable
from agents.triggers.triggers import checked_cap, demand_owned, demand_skill, plain
from audit import recorder
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.redaction import redact

# --- When a trigger may not fire, and the record of it, bounded however often somebody asks ---
#
# Two counts, neither of them a column: runs of the last hour are the trigger's sessions, and refusals for rate are
# its refused events or, for triggers that take none, its refusals in the record. Too many of those blow the fuse: the
# trigger is paused, and nothing more is written for what it refuses. All of it happens under the trigger's lock.


MAX_DEPTH: Final = 3
FUSE: Final = 3  # times the hourly limit, in refusals within an hour
HOUR: Final = timedelta(hours=1)
SAID_EVERY: Final = timedelta(minutes=1)
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
    GAVE_UP = "gave_up"


@dataclass(frozen=True)
class Refused:
    """Why a trigger did not fire, and after how many seconds it may be worth asking again; 0 is not known."""

    reason: Reason
    retry_after: int = 0


def all_work_halted() -> bool:
    return Installation.objects.filter(pk=1, halt__isnull=False).exists()


def refusal(row: Trigger, *, depth: int, now: datetime) -> Refused | None:
    """The first reason that keeps the trigger from firing now; None when it may."""
    if reason := _standing(row):
        return Refused(reason, int(HOUR.total_seconds()) if reason == Reason.STORM else 0)
    if all_work_halted():
        return Refused(Reason.HALTED, HALTED_RETRY_SECONDS)
    if depth > MAX_DEPTH:
        return Refused(Reason.DEPTH)
    wait = _rate_wait(row, now)
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
    """Seconds until the trigger has room for one more run in the hour; 0 when it has. Reads a single row."""
    most = row.max_runs_per_hour
    newest_first = AgentSession.objects.filter(trigger=row).order_by("-pk").values_list("created_at", flat=True)
    taken_at = next(iter(newest_first[most - 1 : most]), None) if most else now
    if taken_at is None or taken_at <= now - HOUR:
        return 0
    return max(1, int((taken_at + HOUR - now).total_seconds()))


def refusal_record(row: Trigger, refused: Refused, *, slot: str, depth: int, now: datetime) -> None:
    """Writes down a refusal, and pauses a trigger that is asked too often. A storm leaves few rows behind."""
    if refused.reason == Reason.STORM:
        return
    is_rate = refused.reason == Reason.RATE
    if is_rate and _refused_for_rate(row, now) + 1 >= FUSE * row.max_runs_per_hour:
        trigger_stop(row, STORM, now=now)
    # A schedule cannot ask more than once a minute, and its rows are what the fuse counts; events are rows themselves.
    counted_here = is_rate and row.kind != TriggerKind.EVENT
    if counted_here or not _said_lately(row, refused.reason, now):
        trigger_record(row, _REFUSED, now=now, reason=refused.reason, slot=slot, depth=depth)


def _refused_for_rate(row: Trigger, now: datetime) -> int:
    """Refusals of the last hour, or since the trigger was last let go on: a resumed trigger starts with a new fuse."""
    since = now - HOUR
    resumed = AuditEvent.objects.filter(kind="autonomous_trigger.resumed", subject=subject_of(row), at__gt=since)
    since = resumed.order_by("-id").values_list("at", flat=True).first() or since
    if row.kind == TriggerKind.EVENT:
        events = InboundEvent.objects.filter(trigger=row, outcome=EventOutcome.REFUSED)
        return events.filter(received_at__gt=since).count()
    said = AuditEvent.objects.filter(kind=_REFUSED, subject=subject_of(row), at__gt=since)
    return said.filter(details__reason=Reason.RATE.value).count()


def _said_lately(row: Trigger, reason: Reason, now: datetime) -> bool:
    said = AuditEvent.objects.filter(kind=_REFUSED, subject=subject_of(row), at__gt=now - SAID_EVERY)
    return said.filter(details__reason=reason.value).exists()


@dataclass(frozen=True)
class Fired:
    """The session that answers a firing. Not `first`: it had been spawned before, and nothing was done now."""

    session: AgentSession
    first: bool = True


@transaction.atomic
def trigger_fire(
    *,
    trigger: Trigger,
    slot: str,
    params: dict[str, Any],
    now: datetime,
    parent: AgentSession | None = None,
    can_wait: bool = False,
) -> Fired | Refused:
    """One session for one slot of the trigger, or the reason why there is none. `params` say what it is to look at.

    With `can_wait` a trigger that has no room left in this hour has refused nothing: it will be asked again.
    """
    if not slot:
        raise ValueError("A firing needs a slot: without one it could not be told from another.")
    row = trigger_lock(trigger.pk)
    if row is None:
        return Refused(Reason.DELETED)
    # The lock makes this look-up decide; should a writer ever come without it, the database still refuses the second.
    taken = AgentSession.objects.filter(trigger=row, slot=slot).first()
    if taken is not None:
        return Fired(taken, first=False)
    depth = 0 if parent is None else parent.depth + 1
    answer = refusal(row, depth=depth, now=now) or _spawn(row, slot, params, depth=depth, now=now)
    if isinstance(answer, Fired):
        spawned = str(answer.session.public_id)
        trigger_record(
            row, "autonomous_trigger.fired", now=now, session_id=spawned, slot=slot, kind=row.kind, depth=depth
        )
    elif not (can_wait and answer.reason == Reason.RATE):
        refusal_record(row, answer, slot=slot, depth=depth, now=now)
    return answer


def _spawn(row: Trigger, slot: str, params: dict[str, Any], *, depth: int, now: datetime) -> Fired | Refused:
    given = {**target_params(row), **params}
    try:
        session = session_create(
            owner=row.owner,
            agent=row.agent,
            trigger=row,
            project=row.project,
            slot=slot,
            token_budget=walk_token_budget(row.agent, given),
            params=given,
            depth=depth,
            now=now,
        )
    except NotAllowed:  # opted out, or all work halted, since the look a moment ago
        return Refused(Reason.OPTED_OUT)
    except SessionHalted:
        return Refused(Reason.HALTED, HALTED_RETRY_SECONDS)
    return Fired(session)


def target_params(trigger: Trigger) -> dict[str, Any]:
    """What the runs of a trigger go by, whatever made it fire. What is not set is left out."""
    return given_params(
        playbook=trigger.playbook and str(trigger.playbook.public_id),
        skill=trigger.skill and trigger.skill.name,
        query=trigger.query,
        emit_artifacts=trigger.emit_artifacts,
        review_flagged=trigger.review_flagged,
        judge_citations=trigger.judge_citations,
        analysis_mode=trigger.analysis_mode if trigger.analysis_mode != AnalysisMode.SINGLE else "",
        loop=trigger.loop,
        guardrails=trigger.guardrails,
    )


def given_params(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value}


def collection_params(collection: Collection | None) -> dict[str, Any]:
    """The whole collection, if there is one."""
    if collection is None:
        return {}
    return {"collection": str(collection.public_id), **period_params(None, baseline=False)}


def period_params(since: datetime | None, *, baseline: bool, **more: Any) -> dict[str, Any]:
    """After which time what is read was attached; for a baseline nothing is read yet."""
    return {"since": since.isoformat() if since else None, "baseline": baseline, **more}


# A run that somebody asks for now, from the admin, the API or a command: the same brakes, the same receipt.
#
# A trigger that is paused or switched off can be run like this: a person has decided it. `review_flagged` means what
# it means on a trigger; `actor` is whom the record names if `by` is nobody.


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


# A session that is over, once more: the same work as a new session, which names the one that it came from.


Row = TypeVar("Row", bound=models.Model)


def session_restart(
    *, session: AgentSession, by: User | None, now: datetime, max_cost_usd: Decimal | None = None
) -> AgentSession:
    """Runs it again now. A trigger that is still there brings what it goes by today, and its budget; otherwise the
    session's own playbook or skill count. The cap is the one that is given, for the one that stopped a run would stop
    it again; else the trigger's; else the session's own. What was read and is gone since is not found.
    """
    demand_access(by, owner_id=session.owner_id, permission="agents.change_agentsession")
    if session.status not in TERMINAL:
        raise InvalidTransition(f"Session {session.public_id} is {session.status}; halt it, or wait until it is over.")
    if session.mode != Mode.PHASED:
        raise InvalidTransition("Only runs are run again: say a message again in its chat; start a loop at its agent.")
    params = session.params
    what: dict[str, Any] = {
        "collection": _own(Collection, session, params.get("collection")),
        "document": _own(Document, session, params.get("document")),
        "event": _event(session),
    }
    if session.trigger is not None and session.trigger.deleted_at is None:
        what["trigger"] = session.trigger
    else:
        what |= {"project": session.project, "agent": session.agent}
        what["review_flagged"] = params.get("review_flagged", False)
        what["playbook"] = _own(Playbook, session, params.get("playbook"))
        what["skill"] = _skill(params.get("skill"))
        what["goal"] = params.get("goal", "")
        what["query"] = params.get("query", "")
        what["emit_artifacts"] = params.get("emit_artifacts", False)
        what["analysis_mode"] = params.get("analysis_mode", "")
    set_by_trigger = "trigger" in what and what["trigger"].max_cost_usd is not None
    what["max_cost_usd"] = max_cost_usd if max_cost_usd is not None or set_by_trigger else session.max_cost_usd
    return run_now(owner=session.owner, by=by, now=now, restarted_from=session, **what)


def _event(session: AgentSession) -> InboundEvent | None:
    event_id = (session.params.get("event") or {}).get("id")
    if event_id is None:
        return None
    return InboundEvent.objects.filter(public_id=event_id, owner_id=session.owner_id).first()


def _own(model: type[Row], session: AgentSession, public_id: str | None) -> Row | None:
    if public_id is None:
        return None
    rows: models.QuerySet[Row] = models.QuerySet(model)
    found = rows.filter(public_id=public_id, owner_id=session.owner_id, deleted_at__isnull=True).first()
    if found is None:
        raise NotFound(f"The {model._meta.verbose_name} that session {session.public_id} went by is gone.")
    return found


def _skill(name: str | None) -> PromptSkill | None:
    if name is None:
        return None
    found = PromptSkill.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"The skill {name} is not loaded any more.")
    return found
