"""Start, stop and renew the loops of agents. An agent has one loop at a time, owned by the agent's owner.

Starting and stopping lock the agent's row: of two starts at once one starts the loop, and its sensors are wanted while
it runs. A halted loop can do nothing more, and does not delay the next one.
"""

from datetime import datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.definitions.in_force import definition_of, loop_config_for
from agents.enums import Mode, TerminalReason
from agents.exceptions import Invalid, LqopsError
from agents.loop.pacing import Pace
from agents.loop.reads import loop_current, loops_to_revive, running
from agents.loop.turns import PACE
from agents.models import Agent, AgentSession, Alert
from agents.people.access import SYSTEM, actor_of, require_access
from agents.sensors.rows import sensors_start, sensors_stop
from agents.sessions.halts import HaltCount, sessions_halt
from agents.sessions.lifecycle import WAKES, session_create
from agents.sessions.restarts import RESTARTS, ended_loop, loop_due_at, loop_renewal_at

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
    goes_on: bool = False,
) -> AgentSession:
    """Return the agent's running loop, or start one, with an empty hot state and a full cap.

    One that `goes_on` has what the loop that it was restarted from has left.
    """
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
    before = restarted_from if goes_on else None
    tokens = loop_config_for(row, params).token_budget
    session = session_create(
        owner=row.owner,
        agent=row,
        mode=Mode.LOOP,
        max_cost_usd=before.left_usd if before else definition.max_cost_usd,
        token_budget=max(before.token_budget - before.total_tokens, 0) if before else tokens,
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


# --- Restarts and renewals ---


def loops_revive(now: datetime) -> int:
    """Start the loops again that are due: restarts of those that failed, and the new day's of those renewed daily."""
    return sum(_revive_if_due(last, now) for last in loops_to_revive())


def loop_next_start(agent: Agent) -> datetime | None:
    """Return when the agent's loop, which has ended, starts again; None: it does not."""
    return next((loop_due_at(last) for last in loops_to_revive(agent.pk)), None)


def _revive_if_due(last: AgentSession, now: datetime) -> bool:
    due = loop_due_at(last)
    if due is None or due > now:
        return False
    try:
        loop_revive(last=last, now=now)
    except LqopsError:  # stopped, switched off, opted out, or all work is halted
        return False
    return True


@transaction.atomic
def loop_revive(*, last: AgentSession, now: datetime) -> AgentSession:
    """Start the loop after one that ended, with its pending alerts and the rest of its chosen sleep.

    A restart has what is left of the cap; with a new day the cap is full.
    """
    agent = Agent.objects.select_for_update(no_key=True).filter(pk=last.agent_id or 0, wanted=True).first()
    if agent is None:
        raise Invalid("The agent was stopped: its loop is not started again.")
    pace = Pace.from_json(last.metadata.get(PACE))
    until = datetime.fromisoformat(pace.sleep_until) if pace.sleep_until else now
    sleeps_on = until > now and last.terminal_reason == TerminalReason.COMPLETED
    renewal = loop_renewal_at(last)
    is_restart = renewal is None or renewal > now
    session = loop_start(
        agent=agent,
        by=None,
        now=now,
        restarted_from=last,
        wake_at=until if sleeps_on else None,
        actor=last.metadata.get("asked_by", SYSTEM),
        goes_on=is_restart,
    )
    if is_restart:
        session.metadata[RESTARTS] = ended_loop(last).next_restart
    if sleeps_on:
        session.metadata[WAKES] = list(pace.wakes)
    session.save(update_fields=["metadata"])
    Alert.objects.pending().filter(session=last).update(session=session)
    return session
