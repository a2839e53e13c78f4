"""The guardrails of loops, asked before a turn and after it. The runner holds them; nothing that an agent calls does.

Each that takes hold is named, with its numbers, for those who watch.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from agents.definitions.in_force import pace_of
from agents.definitions.schema import AgentDefinition, Autonomy
from agents.enums import TerminalReason
from agents.ledger.boundary import may_run_for
from agents.loop.pacing import (
    MOST_RATE_REFUSALS,
    Move,
    Pace,
    Triggered,
    consecutive_turns,
    day_of,
    held_back,
    hour_of,
    next_hour,
    rested,
    too_idle,
    until_the_new_day,
)
from agents.loop.rate import NAME, ActionRate
from agents.loop.reads import hour_spent
from agents.models import Agent, AgentSession
from agents.policy.schedule import Hours
from agents.types import Asleep, Finished


@dataclass(frozen=True)
class Verdict:
    """With a move, no turn begins: that is what happens instead. Without one it begins, with this pace."""

    pace: Pace
    move: Move | None = None
    triggered: Triggered | None = None


def before_turn(
    session: AgentSession, agent: Agent, definition: AgentDefinition, pace: Pace, *, now: datetime
) -> Verdict:
    limits = pace_of(definition)
    over = _over(session, agent, definition, now=now)
    if over is not None:
        return Verdict(pace, Move(Finished(over), pace))
    idle = too_idle(pace, limit=limits.idle_timeout)
    if idle is not None:
        return Verdict(pace, Move(Finished(TerminalReason.IDLE_TIMEOUT), pace), idle)
    active = limits.active_hours
    hours = Hours.of(active.start, active.end, definition.zone) if active else None
    if active and hours and not hours.hold(now):
        until = hours.next_start(now)
        numbers = {**active.model_dump(), "zone": definition.zone, "until": until.isoformat()}
        return Verdict(pace, _asleep(pace, until, limits, now), Triggered("active_hours", numbers))
    pace, spent = tokens_counted(session, agent, pace, now=now)
    if _is_spent(spent, limits):
        return Verdict(pace, _asleep(pace, next_hour(now), limits, now), _hour_is_spent(spent, limits, now))
    return Verdict(pace)


def restrained(
    move: Move, limits: Autonomy, *, spent: int, rate: ActionRate, now: datetime
) -> tuple[Move, list[Triggered]]:
    """What the guardrails make of a move, and those that took hold. A loop that ends by itself is let go."""
    if isinstance(move.end, Finished):
        return move, []
    idle = too_idle(move.pace, limit=limits.idle_timeout)
    if idle is not None:
        return Move(Finished(TerminalReason.IDLE_TIMEOUT), move.pace), [idle]
    move, turns = consecutive_turns(move, limit=limits.max_consecutive_turns, now=now)
    found = [turns] if turns else []
    if _is_spent(spent, limits):
        found.append(_hour_is_spent(spent, limits, now))
        move = held_back(move, next_hour(now))
    if rate.refused >= MOST_RATE_REFUSALS:
        until = rate.frees_at(now)
        numbers = {"refused": rate.refused, "limit": limits.max_actions_per_minute, "until": until.isoformat()}
        found.append(Triggered(NAME, numbers))
        move = held_back(move, until)
    return daily(move, limits, now=now), found


def daily(move: Move, limits: Autonomy, *, now: datetime) -> Move:
    return until_the_new_day(move, now=now) if limits.renew == "daily" else move


def tokens_counted(session: AgentSession, agent: Agent, pace: Pace, *, now: datetime) -> tuple[Pace, int]:
    """The tokens of this clock hour, and the pace that remembers up to where they were counted."""
    hour = hour_of(now)
    named = hour.isoformat()
    mark = pace.hour_mark if pace.hour == named else pace.latest
    spent = hour_spent(session, agent.pk, hour=hour, after=mark)
    return replace(pace, hour=named, hour_mark=mark, latest=spent.latest), spent.tokens


def _over(session: AgentSession, agent: Agent, definition: AgentDefinition, *, now: datetime) -> TerminalReason | None:
    """Why the loop has come to its end, if it has: somebody said so, or its day is over."""
    if not agent.enabled or not definition.is_autonomous:
        return TerminalReason.EXTERNAL_HALT
    if not may_run_for(session.owner_id):
        return TerminalReason.OPTED_OUT
    if pace_of(definition).renew == "daily" and session.created_at < day_of(now):
        return TerminalReason.COMPLETED
    return None


def _asleep(pace: Pace, until: datetime, limits: Autonomy, now: datetime) -> Move:
    """No alert ends this sleep: the agent did not choose it."""
    return daily(Move(Asleep(until), rested(pace)), limits, now=now)


def _is_spent(tokens: int, limits: Autonomy) -> bool:
    """0 is no limit."""
    return 0 < limits.token_budget_per_hour <= tokens


def _hour_is_spent(spent: int, limits: Autonomy, now: datetime) -> Triggered:
    numbers = {"tokens": spent, "limit": limits.token_budget_per_hour, "until": next_hour(now).isoformat()}
    return Triggered("token_budget_per_hour", numbers)
