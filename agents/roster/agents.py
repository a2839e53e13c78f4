"""Agents as people handle them: create, edit, delete, start, stop and restart.

The last editor is remembered: the four-eyes rule excludes that person. While sessions of an agent are active its
approval mode can only be tightened. An agent's loop with its sensors, and its heartbeat, start and stop together, under
the lock of the agent.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition
from agents.enums import ApprovalMode, BudgetPeriod, BudgetScope, Mode
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.ledger.boundary import require_enabled, require_may_start
from agents.ledger.budgets import budget_set_cap, budgets_lock_all, cap_of
from agents.loop.heartbeat import heartbeat_of, heartbeat_start, heartbeat_stop
from agents.loop.reads import AUTONOMOUS, running
from agents.models import Agent, AgentSession, Trigger
from agents.people.access import SYSTEM, actor_of, require_access, require_may_loosen
from agents.people.ceilings import (
    ceilings_lower,
    ceilings_record,
    default_mode_of,
    own_ceilings,
    require_within_ceilings,
)
from agents.policy.loosening import LOOSER, loosened, looser_settings
from agents.roster.loops import loop_next_start, loop_start, loop_stop
from agents.sessions.restarts import agents_not_running
from agents.skills.registry import installed_skills
from agents.types import ZERO
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

WAIVER: Final = "allow_high_risk"
WAIVED_SKILLS: Final = "waived_skills"
WAIVERS: Final = (WAIVER, WAIVED_SKILLS)
DAY_CAP: Final = "max_cost_per_day_usd"
FIELDS: Final = frozenset({"name", "mode", "enabled", DAY_CAP, *WAIVERS})
NAME_CHARS: Final = 120


def agent_record(agent: Agent, kind: str, *, actor: str, now: datetime, **details: Any) -> None:
    """Append an audit event about an agent."""
    agent_id = str(agent.public_id)
    details["agent_id"] = agent_id
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor, subject=f"agent:{agent_id}", details=details)


# --- Create, edit, delete ---


@transaction.atomic
def agent_create(*, owner: User, name: str, by: User | None, now: datetime, **fields: Any) -> Agent:
    """Create an agent. Without a mode it is `semi`, or what its owner's ceiling asks beyond that."""
    require_access(by, owner_id=owner.pk, permission="agents.add_agent")
    given = _within_ceilings(owner, _checked({"name": name, **fields}), by)
    if Agent.objects.filter(owner=owner, name=given["name"]).exists():
        raise Invalid(f"{owner} has an agent named {given['name']!r} already; choose another name.")
    agent = Agent.objects.create(owner=owner, edited_by=by, created_at=now, **given)
    waived = {name: getattr(agent, name) for name in WAIVERS if getattr(agent, name)}
    agent_record(agent, "agent.created", actor=actor_of(by), now=now, **_recorded_settings(agent), **waived)
    return agent


@transaction.atomic
def agent_edit(*, agent: Agent, by: User | None, now: datetime, **changes: Any) -> Agent:
    """Change what differs. A new daily cap also applies to today.

    Disabling an agent stops its loop and heartbeat; runs of its triggers go on to their end.
    """
    require_access(by, owner_id=agent.owner_id, permission="agents.change_agent")
    row = _locked(agent)
    changed = {name: value for name, value in _checked(changes).items() if getattr(row, name) != value}
    if not changed:
        return row
    if changed.get("enabled") and row.archived_at is not None:
        raise InvalidTransition(f"Agent {row.name!r} is archived. Bring it back first.")
    _require_may_set(row, changed, by)
    if "mode" in changed:
        _check_mode(row, changed["mode"])
    if _loosened_waivers(row, changed):
        _require_no_sessions(row, "calls that must be asked about cannot be allowed now")
    if "name" in changed and Agent.objects.filter(owner_id=row.owner_id, name=changed["name"]).exists():
        raise Invalid(f"There is an agent named {changed['name']!r} already; choose another name.")
    fields = sorted(changed)
    if DAY_CAP in changed:
        budgets_lock_all()  # before the first audit event
    followed = _lower_ceilings(row, changed, by)
    if DAY_CAP in changed:
        cap = changed.pop(DAY_CAP)
        budget_set_cap(scope=BudgetScope.AGENT, subject_id=row.pk, cap_usd=cap, by=by, now=now)
    if DAY_CAP in followed:
        _lower_owners_cap(row, by, now)
    Agent.objects.filter(pk=row.pk).update(**changed, edited_by=by)
    row.refresh_from_db()
    if not row.enabled and "enabled" in changed:
        agent_stop(agent=row, by=None, now=now, actor=actor_of(by))
    waived: dict[str, Any] = {name: changed[name] for name in WAIVERS if name in changed}
    details = {"fields": fields, **_recorded_settings(row), **waived}
    ceilings_record(row.owner_id, followed, by=by, now=now, follows=f"agent:{row.public_id}")
    agent_record(row, "agent.edited", actor=actor_of(by), now=now, **details)
    return row


@transaction.atomic
def agent_delete(*, agent: Agent, by: User | None, now: datetime) -> None:
    """Delete an agent that has neither sessions nor triggers; any other can only be disabled."""
    require_access(by, owner_id=agent.owner_id, permission="agents.delete_agent")
    if agent.sessions.exists() or agent.triggers.exists():
        raise InvalidTransition(f"Agent {agent.name!r} has sessions or triggers; switch it off instead of deleting it.")
    agent_record(agent, "agent.deleted", actor=actor_of(by), now=now)
    agent.delete()


@transaction.atomic
def agent_archive(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> Agent:
    """Stop an agent, switch it off and take it out of the lists. Archiving an archived one changes nothing.

    Runs of its triggers and its chats go on to their end.
    """
    require_access(by, owner_id=agent.owner_id, permission="agents.change_agent")
    row = _locked(agent)
    if row.archived_at is None:
        agent_stop(agent=row, by=None, now=now, actor=actor_of(by, actor))
        Agent.objects.filter(pk=row.pk).update(archived_at=now, enabled=False, edited_by=by)
        agent_record(row, "agent.archived", actor=actor_of(by, actor), now=now)
        row.refresh_from_db()
    return row


@transaction.atomic
def agent_unarchive(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> Agent:
    """Bring an archived agent back into the lists. It stays switched off until somebody enables it."""
    require_access(by, owner_id=agent.owner_id, permission="agents.change_agent")
    row = _locked(agent)
    if row.archived_at is not None:
        Agent.objects.filter(pk=row.pk).update(archived_at=None, edited_by=by)
        agent_record(row, "agent.unarchived", actor=actor_of(by, actor), now=now)
        row.refresh_from_db()
    return row


def _within_ceilings(owner: User, given: dict[str, Any], by: User | None) -> dict[str, Any]:
    """Return the settings of a new agent, with the owner's ceilings where nothing was said; refuse what is above."""
    measured = {name: given.get(name) for name in ("mode", DAY_CAP)}
    require_within_ceilings(by, owner=owner, **measured)
    _require_may_set(Agent(owner=owner), {name: value for name, value in given.items() if name not in measured}, by)
    given.setdefault("mode", default_mode_of(owner.pk, ApprovalMode.SEMI))
    if given.get(DAY_CAP) is None:
        given[DAY_CAP] = own_ceilings(owner.pk).get(DAY_CAP)
    return given


def _lower_ceilings(agent: Agent, changed: dict[str, Any], by: User | None) -> dict[str, Any]:
    """Let the owner's ceilings follow what somebody else tightens. Before the first audit event."""
    before = {name: getattr(agent, name) for name in ("mode", DAY_CAP)}
    tightened = {name: changed[name] for name in before if name in changed and changed[name] is not None}
    tightened = {name: tightened[name] for name in looser_settings(tightened, {n: before[n] for n in tightened})}
    return ceilings_lower(agent.owner_id, by=by, **tightened)


def _lower_owners_cap(agent: Agent, by: User | None, now: datetime) -> None:
    """Let the owner's runs together spend no more a day than the caps of their agents allow today.

    Another agent shares that. Where an agent has no cap, or triggers run without an agent, there is no such sum.
    """
    rows = Agent.objects.filter(owner_id=agent.owner_id).values_list(DAY_CAP, flat=True)
    caps = [cap for cap in rows if cap is not None]
    alone = Trigger.objects.filter(owner_id=agent.owner_id, agent=None, deleted_at=None)
    if len(caps) < len(rows) or alone.exists():
        return
    total = sum(caps, ZERO)
    present = cap_of(BudgetScope.OWNER, agent.owner_id, BudgetPeriod.DAY)
    if present is None or total < present:
        budget_set_cap(scope=BudgetScope.OWNER, subject_id=agent.owner_id, cap_usd=total, by=by, now=now)


def _locked(agent: Agent) -> Agent:
    return Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)


def _recorded_settings(agent: Agent) -> dict[str, Any]:
    cap = agent.max_cost_per_day_usd
    return {"mode": agent.mode, "cap_usd": None if cap is None else str(cap)}


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
    if WAIVED_SKILLS in given:
        given[WAIVED_SKILLS] = _checked_skills(given[WAIVED_SKILLS])
    return given


def _checked_skills(names: Any) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Invalid(f"{WAIVED_SKILLS} is {names!r}; it must be a list of names of skills.")
    if unknown := sorted(set(names) - installed_skills().keys()):
        raise Invalid(f"{WAIVED_SKILLS}: no installed skill is named {', '.join(unknown)}.")
    return sorted(set(names))


def _require_may_set(agent: Agent, given: dict[str, Any], by: User | None) -> None:
    """Check who may loosen what. Only a superuser may waive; whoever may change an agent may take it back."""
    before = {name: getattr(agent, name) for name in LOOSER if hasattr(agent, name)}
    waived = _loosened_waivers(agent, given)
    if waived and not (by is not None and by.is_active and by.is_superuser):
        raise NotAllowed(f"Only a superuser may waive {', '.join(waived)}.")
    require_may_loosen(by, loosened(before, given), bound=[agent.owner_id])


def _loosened_waivers(agent: Agent, given: dict[str, Any]) -> tuple[str, ...]:
    before = {name: getattr(agent, name) for name in WAIVERS}
    return loosened(before, {name: value for name, value in given.items() if name in WAIVERS})


def _check_mode(agent: Agent, mode: str) -> None:
    modes = list(ApprovalMode)
    if modes.index(ApprovalMode(mode)) < modes.index(ApprovalMode(agent.mode)):
        _require_no_sessions(agent, f"its mode {agent.mode} can be tightened now, not loosened to {mode}")


def _require_no_sessions(agent: Agent, consequence: str) -> None:
    active = AgentSession.objects.active().filter(agent=agent).count()
    if active:
        raise InvalidTransition(
            f"Agent {agent.name!r} has active sessions ({active}): {consequence}. Halt them, or wait for their end."
        )


# --- Start, stop, restart ---


@dataclass(frozen=True)
class AutonomousSessions:
    """An agent's running loop and its running or planned heartbeat."""

    loop: AgentSession | None = None
    heartbeat: AgentSession | None = None


def agent_autonomous_sessions(agent: Agent) -> AutonomousSessions:
    newest = {row.mode: row for row in running(agent.pk, *AUTONOMOUS).reverse()}
    return AutonomousSessions(newest.get(Mode.LOOP), newest.get(Mode.HEARTBEAT))


def agent_is_running(agent: Agent) -> bool:
    """Tell whether the agent has a running loop or a heartbeat."""
    return running(agent.pk, *AUTONOMOUS).exists()


def agent_can_stop(agent: Agent) -> bool:
    """Tell whether its loop or heartbeat runs, starts again, or is missed by those who look after agents."""
    return agent_is_running(agent) or _is_expected(agent)


def _is_expected(agent: Agent) -> bool:
    """Tell whether its loop starts again, or what was started has ended and nothing starts it again."""
    return loop_next_start(agent) is not None or bool(agent.wanted and agents_not_running(agent=agent))


@transaction.atomic
def agent_start(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> AutonomousSessions:
    """Start the loop and the heartbeat of the definition, unless they are running."""
    definition = _autonomous_definition(_locked(agent))
    beats = heartbeat_of(definition) is not None
    before = agent_autonomous_sessions(agent)
    started = AutonomousSessions(
        loop=loop_start(agent=agent, by=by, now=now, actor=actor) if definition.is_autonomous else None,
        heartbeat=heartbeat_start(agent=agent, by=by, now=now, actor=actor) if beats else None,
    )
    if started != before:
        agent_record(agent, "agent.started", actor=actor_of(by, actor), now=now)
    return started


def require_startable(agent: Agent) -> None:
    """Refuse what `agent_start` would refuse now. Nothing is written."""
    _autonomous_definition(agent)
    require_enabled(agent)
    if not agent_is_running(agent):
        require_may_start(agent.owner_id)


def _autonomous_definition(agent: Agent) -> AgentDefinition:
    """Return the definition; refuse one with neither a loop nor a heartbeat."""
    definition = definition_of(agent)
    if not definition.is_autonomous and heartbeat_of(definition) is None:
        raise Invalid(
            f"The agent {agent.name} has nothing to start: its definition has neither autonomy with enabled: true "
            "nor a heartbeat."
        )
    return definition


@transaction.atomic
def agent_stop(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> bool:
    """Stop loop and heartbeat, also a loop that would start again tomorrow. False: nothing to stop.

    An agent that was started and does not run is no longer missed. Sessions of triggers and chats are not touched.
    """
    row = _locked(agent)
    expected = _is_expected(row)
    loops = loop_stop(agent=row, by=by, now=now, actor=actor)
    beats = heartbeat_stop(agent=row, by=by, now=now, actor=actor)
    stopped = bool(expected or loops.requested or beats.requested)
    if stopped:
        agent_record(row, "agent.stopped", actor=actor_of(by, actor), now=now)
    return stopped


@transaction.atomic
def agent_restart(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> AutonomousSessions:
    """Start again, with an empty hot state and a full cap."""
    agent = _locked(agent)
    heartbeat_stop(agent=agent, by=by, now=now, actor=actor)
    if definition_of(agent).is_autonomous:
        before = AgentSession.objects.filter(agent=agent, mode=Mode.LOOP).order_by("-pk").first()
        loop_stop(agent=agent, by=by, now=now, actor=actor)
        loop_start(agent=agent, by=by, now=now, restarted_from=before, actor=actor)
    return agent_start(agent=agent, by=by, now=now, actor=actor)


@transaction.atomic
def agent_stop_removed(*, agent: Agent, definition: AgentDefinition, now: datetime, actor: str) -> bool:
    """Stop what a new definition no longer has; True if that was something.

    The caller records it: audit events are appended after all locks are taken.
    """
    ended = 0
    is_wanted = _locked(agent).wanted
    if not definition.is_autonomous:
        ended += loop_stop(agent=agent, by=None, now=now, actor=actor).requested
    if heartbeat_of(definition) is None:
        ended += heartbeat_stop(agent=agent, by=None, now=now, actor=actor).requested
    is_left = definition.is_autonomous or heartbeat_of(definition) is not None
    Agent.objects.filter(pk=agent.pk).update(wanted=is_wanted and is_left)
    return bool(ended)
