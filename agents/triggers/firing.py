"""How a trigger spawns a session: one transaction under the trigger's lock, and one session for one slot.

The database holds one session per trigger and slot, so whatever is said twice spawns once. Every spawn is a session
under the brakes, with a cap. Order of locks and of the record: see ledger/trigger_health.py.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from agents.definitions.in_force import walk_token_budget
from agents.enums import AnalysisMode
from agents.exceptions import NotAllowed, SessionHalted
from agents.ledger.trigger_health import trigger_lock, trigger_record
from agents.models import AgentSession, Collection, Trigger
from agents.sessions.lifecycle import session_create
from agents.triggers.firing_limits import HALTED_RETRY_SECONDS, Reason, Refused, refusal, refusal_record


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
