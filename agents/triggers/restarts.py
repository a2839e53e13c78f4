"""A session that is over, once more: the same work as a new session, which names the one that it came from."""

from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import models

from agents.enums import Mode
from agents.exceptions import InvalidTransition, NotFound
from agents.models import AgentSession, Collection, Document, InboundEvent, Playbook, PromptSkill
from agents.people.access import demand_access
from agents.policy.transitions import TERMINAL
from agents.triggers.running_now import run_now

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
