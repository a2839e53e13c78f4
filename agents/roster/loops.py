"""Start, stop and renew the loops of agents. An agent has one loop at a time, owned by the agent's owner.

Starting and stopping lock the agent's row: of two starts at once one starts the loop, and its sensors are wanted while
it runs. A halted loop can do nothing more, and does not delay the next one.
"""

from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import autonomy_of, definition_of, loop_config_for
from agents.definitions.schema import DefinitionError
from agents.enums import Mode, TerminalReason
from agents.exceptions import Invalid, LqopsError
from agents.loop.pacing import Pace
from agents.loop.reads import loop_current, loops_to_renew, running
from agents.loop.turns import PACE
from agents.models import Agent, AgentSession, Alert
from agents.people.access import SYSTEM, actor_of, require_access
from agents.sensors.rows import sensors_start, sensors_stop
from agents.sessions.halts import HaltCount, sessions_halt
from agents.sessions.lifecycle import WAKES, session_create

STOPPED: Final = "The agent was stopped."


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
    """Return the agent's running loop, or start one, with a full cap and an empty hot state."""
    require_access(by, owner_id=agent.owner_id, permission="agents.change_agentsession")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    definition = definition_of(row)
    if not row.enabled:
        raise Invalid(f"The agent {row.name} is switched off: switch it on first.")
    if not definition.is_autonomous:
        raise Invalid(f"The agent {row.name} has no loop: its definition needs autonomy with enabled: true.")
    Agent.objects.filter(pk=row.pk).update(wanted=True)
    current = loop_current(row.pk)
    if current is not None:
        return current
    params: dict[str, Any] = {"key": f"agent:{row.public_id}:autonomy"}
    session = session_create(
        owner=row.owner,
        agent=row,
        mode=Mode.LOOP,
        max_cost_usd=definition.max_cost_usd,
        token_budget=loop_config_for(row, params).token_budget,
        params=params,
        restarted_from=restarted_from,
        asked_by=actor_of(by, actor),
        wake_at=wake_at,
        now=now,
    )
    sensors_start(row, now)
    return session


@transaction.atomic
def loop_stop(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> HaltCount:
    """Halt the agent's loop, at once or at the next step of its running turn, and do not renew it."""
    require_access(by, owner_id=agent.owner_id, permission="agents.change_agentsession")
    row = Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
    Agent.objects.filter(pk=row.pk).update(wanted=False)
    pks = list(running(row.pk, Mode.LOOP).values_list("pk", flat=True))
    halted = sessions_halt(pks, by=by, reason=STOPPED, now=now, actor=actor)
    if loop_current(row.pk) is None:
        sensors_stop(row, now)
    return halted


# --- Daily renewal ---


def loops_renew(now: datetime) -> int:
    """Renew loops that end with each UTC day, and on the next day those that had spent their cap."""
    return sum(_renew_if_due(last, now) for last in loops_to_renew())


def loop_awaits_renewal(agent: Agent) -> bool:
    """Tell whether the agent's loop has ended and starts again with the next day."""
    return _renews_daily(agent) and bool(loops_to_renew(agent.pk))


def _renews_daily(agent: Agent) -> bool:
    try:
        return autonomy_of(definition_of(agent)).renew == "daily"
    except DefinitionError:
        return False


def _renew_if_due(last: AgentSession, now: datetime) -> bool:
    agent = last.agent
    if agent is None or last.completed_at is None or not _renews_daily(agent):
        return False
    same_day = last.completed_at.date() == now.date()
    if same_day and last.terminal_reason != TerminalReason.COMPLETED:
        return False
    try:
        loop_renew(last=last, now=now)
    except LqopsError:  # stopped, switched off, opted out, or all work is halted
        return False
    return True


@transaction.atomic
def loop_renew(*, last: AgentSession, now: datetime) -> AgentSession:
    """Start the loop after one that ended, with its pending alerts and the rest of its chosen sleep."""
    agent = Agent.objects.select_for_update(no_key=True).filter(pk=last.agent_id or 0, wanted=True).first()
    if agent is None:
        raise Invalid("The agent was stopped: its loop is not renewed.")
    pace = Pace.from_json(last.metadata.get(PACE))
    until = datetime.fromisoformat(pace.sleep_until) if pace.sleep_until else now
    sleeps_on = until > now and last.terminal_reason == TerminalReason.COMPLETED
    session = loop_start(
        agent=agent,
        by=None,
        now=now,
        restarted_from=last,
        wake_at=until if sleeps_on else None,
        actor=last.metadata.get("asked_by", SYSTEM),
    )
    if sleeps_on:
        session.metadata[WAKES] = list(pace.wakes)
        session.save(update_fields=["metadata"])
    Alert.objects.pending().filter(session=last).update(session=session)
    return session
