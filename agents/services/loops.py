"""Loops of agents: started, stopped, begun anew. An agent has one loop at a time, which belongs to the agent's owner.

Whoever starts or stops locks the agent's row: of two that start it at once one starts it, and its sensors are wanted
while it runs. A loop that was told to stop can do nothing any more, and does not keep the next one waiting.
"""

from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.problems import DefinitionError
from agents.definitions.schema import AgentDefinition, Autonomy
from agents.enums import Mode, Status, TerminalReason, TurnState
from agents.exceptions import Invalid, LqopsError
from agents.models import Agent, AgentSession, Alert, Turn
from agents.selectors.loops import loop_current, loops_to_renew, running
from agents.services.actors import SYSTEM, actor_of
from agents.services.alerts import alert_push
from agents.services.definitions import definition_of
from agents.services.halts import HaltCount, sessions_halt
from agents.services.loop_settings import loop_for
from agents.services.ownership import demand_access
from agents.services.sensors import sensors_want
from agents.services.sessions import session_create, session_lock
from agents.services.turns import PACE, event_keep, turn_is_open
from agents.services.waits import CHAT_MESSAGE, WAKES, wakes_for
from agents.transitions import TERMINAL

STOPPED: Final = "The agent was stopped."


def pace_of(definition: AgentDefinition) -> Autonomy:
    return definition.autonomy or Autonomy()


@transaction.atomic
def loop_start(
    *,
    agent: Agent,
    by: User | None,
    now: datetime,
    restarted_from: AgentSession | None = None,
    wake_at: datetime | None = None,
    actor: str = SYSTEM,
) -> AgentSession:
    """The agent's loop: the one that is under way, else a new one, with a full cap and an empty hot state."""
    demand_access(by, owner_id=agent.owner_id, permission="agents.change_agentsession")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    definition = definition_of(row)
    if not row.enabled:
        raise Invalid(f"The agent {row.name} is switched off: switch it on first.")
    if not definition.is_autonomous:
        raise Invalid(f"The agent {row.name} does not pace itself: its definition needs autonomy with enabled: true.")
    Agent.objects.filter(pk=row.pk).update(wanted=True)
    under_way = loop_current(row.pk)
    if under_way is not None:
        return under_way
    params: dict[str, Any] = {"key": f"agent:{row.public_id}:autonomy"}
    session = session_create(
        owner=row.owner,
        agent=row,
        mode=Mode.LOOP,
        max_cost_usd=definition.max_cost_usd,
        token_budget=loop_for(row, params).token_budget,
        params=params,
        restarted_from=restarted_from,
        asked_by=actor_of(by, actor),
        wake_at=wake_at,
        now=now,
    )
    sensors_want(row, True, now)  # noqa: FBT003 they start with their loop
    return session


@transaction.atomic
def loop_stop(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> HaltCount:
    """Ends the agent's loop, at once or at the next boundary of the turn that is under way; none is begun anew."""
    demand_access(by, owner_id=agent.owner_id, permission="agents.change_agentsession")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    Agent.objects.filter(pk=row.pk).update(wanted=False)
    pks = list(running(row.pk, Mode.LOOP).values_list("pk", flat=True))
    halted = sessions_halt(pks, by=by, reason=STOPPED, now=now, actor=actor)
    if loop_current(row.pk) is None:
        sensors_want(row, False, now)  # noqa: FBT003 and stop with it
    return halted


@transaction.atomic
def loop_restart(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> AgentSession:
    """Stops the loop, if there is one, and starts another, which names the one before it."""
    Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    before = AgentSession.objects.filter(agent=agent, mode=Mode.LOOP).order_by("-pk").first()
    loop_stop(agent=agent, by=by, now=now, actor=actor)
    return loop_start(agent=agent, by=by, now=now, restarted_from=before, actor=actor)


def loop_hear_chat(chat: AgentSession, *, now: datetime) -> Alert | None:
    """Tells the loop of an agent, once, that somebody has spoken with it: which chat, not what was said."""
    loop = loop_current(chat.agent_id) if chat.agent_id else None
    if loop is None or loop.agent is None or not pace_of(definition_of(loop.agent)).wake_on_chat:
        return None
    named = str(chat.public_id)
    return alert_push(loop, name=CHAT_MESSAGE, text=named, source_name="chat", now=now, dedupe=f"chat:{named}")


def loops_hear_event(owner_id: int, *, name: str, text: str, source: str, now: datetime) -> int:
    """Tells an event to the loops of its owner whose agents wake for it, or may say so when they next lie down; to any
    other it means nothing. How many were told at once."""
    if name in {"", CHAT_MESSAGE}:
        return 0
    loops = AgentSession.objects.filter(owner_id=owner_id, mode=Mode.LOOP).exclude(status__in=TERMINAL)
    # Read before the loops are: a turn that ends in between has left what its loop wakes for.
    in_turn = set(Turn.objects.filter(session__in=loops, state=TurnState.OPEN).values_list("session_id", flat=True))
    told = [
        _hear_event(loop.pk, name=name, text=text, source=source, now=now)
        for loop in loops
        if _has_named(loop, name) or _may_yet_name(loop, in_turn=loop.pk in in_turn)
    ]
    return sum(told)


@transaction.atomic
def _hear_event(loop_pk: int, *, name: str, text: str, source: str, now: datetime) -> bool:
    """Under the lock that a loop takes to end its turn: the event comes before that or after it, and is not lost."""
    row = session_lock(loop_pk)
    in_turn = turn_is_open(row)
    if wakes_for(row, name) or (_has_named(row, name) and not in_turn):
        return alert_push(row, name=name, text=text, source_name=source, now=now) is not None
    if _may_yet_name(row, in_turn=in_turn):
        event_keep(row, name=name, text=text, source=source)
    return False


def _has_named(row: AgentSession, name: str) -> bool:
    """The agent wants to wake for it; from a sleep that it did not choose it is not woken, and sees it afterwards."""
    return wakes_for(row, name) or name in _paced(row, "wakes", ())


def _may_yet_name(row: AgentSession, *, in_turn: bool) -> bool:
    """It is not in a sleep of its own choice, at whose beginning it has named what it would wake for."""
    chosen = _paced(row, "sleep_seconds", 0) and not _paced(row, "errors", 0)
    return in_turn or row.status != Status.SLEEPING or not chosen


def _paced(row: AgentSession, name: str, missing: Any) -> Any:
    return (row.metadata.get(PACE) or {}).get(name) or missing


# --- A new day ---


def loops_renew(now: datetime) -> int:
    """Begins loops anew that end with each UTC day; and, when the day is over, those that had spent their cap."""
    return sum(_renewed(last, now) for last in loops_to_renew())


def loop_is_awaited(agent: Agent) -> bool:
    """Its loop is over, and begins anew with the next day unless somebody stops the agent."""
    return _renews(agent) and bool(loops_to_renew(agent.pk))


def _renews(agent: Agent) -> bool:
    try:
        return pace_of(definition_of(agent)).renew == "daily"
    except DefinitionError:
        return False


def _renewed(last: AgentSession, now: datetime) -> bool:
    agent = last.agent
    if agent is None or last.completed_at is None or not _renews(agent):
        return False
    same_day = last.completed_at.date() == now.date()
    if same_day and last.terminal_reason != TerminalReason.COMPLETED:
        return False
    try:
        loop_renew(last=last, now=now)
    except LqopsError:  # stopped, switched off, opted out or all work halted: somebody has said so
        return False
    return True


@transaction.atomic
def loop_renew(*, last: AgentSession, now: datetime) -> AgentSession:
    """The loop after one that is over. What it had not yet seen, and the rest of a sleep that it chose, go with it."""
    agent = Agent.objects.select_for_update(no_key=True).filter(pk=last.agent_id or 0, wanted=True).first()
    if agent is None:
        raise Invalid("The agent was stopped: its loop does not begin anew.")
    kept = last.metadata.get(PACE) or {}
    until = datetime.fromisoformat(kept["sleep_until"]) if kept.get("sleep_until") else now
    sleeps_on = until > now and last.terminal_reason == TerminalReason.COMPLETED
    session = loop_start(agent=agent, by=None, now=now, restarted_from=last, wake_at=until if sleeps_on else None)
    if sleeps_on:
        session.metadata[WAKES] = kept.get("wakes") or []
        session.save(update_fields=["metadata"])
    Alert.objects.pending().filter(session=last).update(session=session)
    return session
