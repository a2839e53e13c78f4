"""The guardrails of loops: checked before a turn, during it (actions per minute) and after it.

The runner holds them; nothing that an agent calls reaches them. Each one that is triggered is published as an event
with its numbers. The pure decisions are in agents/loop/pacing.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import F, Max, Sum

from agents.conf import clock
from agents.definitions.in_force import autonomy_of, loop_config_of
from agents.definitions.schema import AgentDefinition, Autonomy
from agents.engine.prompting import Admission
from agents.enums import EventKind, Mode, Outcome, Phase, TerminalReason
from agents.guard.calls import plan_call
from agents.guard.consent import denied
from agents.ledger.boundary import may_run_for
from agents.loop.pacing import (
    Move,
    Pace,
    Triggered,
    day_of,
    forced_sleep,
    idle_limit_reached,
    limit_consecutive_turns,
    next_hour,
    sleep_at_least,
    wake_at_midnight,
)
from agents.loop.turns import calls_since
from agents.models import Agent, AgentSession, InferenceLog, ToolCall
from agents.people.activity import event_emit
from agents.policy.guardrails import MOST_SILENT_TURNS, Counters, LoopConfig, monologue_pause
from agents.policy.schedule import Hours, hour_of
from agents.skills.registry import skill_named
from agents.skills.skill import Skill
from agents.types import Asleep, Finished

ACTION_LIMIT: Final = "max_actions_per_minute"
RATE_WINDOW: Final = timedelta(seconds=60)
MOST_RATE_REFUSALS: Final = 3
_COUNTED_WITH_LOOP: Final = (Mode.CHAT, Mode.SENSOR)  # their tokens count to the hour of the agent's loop


# --- Before and after a turn ---


def check_before_turn(
    session: AgentSession, agent: Agent, definition: AgentDefinition, pace: Pace, *, now: datetime
) -> Move | Pace:
    """Return the pace to start a turn with; or the move that happens instead of the turn."""
    limits = autonomy_of(definition)
    over = _end_reason(session, agent, definition, now=now)
    if over is not None:
        return Move(Finished(over), pace)
    idle = idle_limit_reached(pace, limit=limits.idle_timeout)
    if idle is not None:
        return Move(Finished(TerminalReason.IDLE_TIMEOUT), pace, triggered=(idle,))
    until = within_hours(definition, now)
    if limits.active_hours and until > now:
        numbers = {**limits.active_hours.model_dump(), "zone": definition.zone, "until": until.isoformat()}
        return _forced_sleep(pace, until, limits, Triggered("active_hours", numbers), now=now)
    pace, spent = count_hour_tokens(session, agent, pace, now=now)
    over_budget = _token_budget_spent(spent, limits, now)
    return _forced_sleep(pace, next_hour(now), limits, over_budget, now=now) if over_budget else pace


def apply_guardrails(move: Move, limits: Autonomy, *, spent: int, rate: "ActionRate", now: datetime) -> Move:
    """Return what the guardrails make of a move. A loop that ends is let end."""
    if isinstance(move.end, Finished):
        return move
    idle = idle_limit_reached(move.pace, limit=limits.idle_timeout)
    if idle is not None:
        return Move(Finished(TerminalReason.IDLE_TIMEOUT), move.pace, triggered=(idle,))
    move = limit_consecutive_turns(move, limit=limits.max_consecutive_turns, now=now)
    over_budget = _token_budget_spent(spent, limits, now)
    if over_budget is not None:
        move = sleep_at_least(move, next_hour(now), over_budget)
    if rate.refused >= MOST_RATE_REFUSALS:
        until = rate.frees_at(now)
        numbers = {"refused": rate.refused, "limit": limits.max_actions_per_minute, "until": until.isoformat()}
        move = sleep_at_least(move, until, Triggered(ACTION_LIMIT, numbers))
    return renew_daily(move, limits, now=now)


def limit_monologue(move: Move, counters: Counters, *, now: datetime) -> Move:
    """Put a loop to sleep whose last turns called nothing, longer each time."""
    pause = monologue_pause(counters)
    if not pause:
        return move
    numbers = {"turns": counters.silent_turns, "limit": MOST_SILENT_TURNS, "sleep_seconds": pause}
    return sleep_at_least(move, now + timedelta(seconds=pause), Triggered("monologue", numbers))


def renew_daily(move: Move, limits: Autonomy, *, now: datetime) -> Move:
    return wake_at_midnight(move, now=now) if limits.renew == "daily" else move


def report_triggered(session: AgentSession, move: Move, *, now: datetime) -> None:
    """Publish an event for each guardrail of a move."""
    for triggered in move.triggered:
        numbers = dict(triggered.numbers)
        event_emit(EventKind.GUARDRAIL_TRIGGERED, session=session, now=now, guardrail=triggered.name, **numbers)


def within_hours(definition: AgentDefinition, at: datetime) -> datetime:
    """Return that moment, or the next start of the agent's active hours."""
    active = autonomy_of(definition).active_hours
    hours = Hours.of(active.start, active.end, definition.zone) if active else None
    return at if hours is None or hours.hold(at) else hours.next_start(at)


def turn_config(session: AgentSession, limits: Autonomy) -> LoopConfig:
    """Return the limits of the steps in a turn; of two limits of rounds the smaller one counts."""
    config = loop_config_of(session)
    return replace(config, max_tool_rounds=min(filter(None, (config.max_tool_rounds, limits.max_tool_rounds))))


def count_hour_tokens(session: AgentSession, agent: Agent, pace: Pace, *, now: datetime) -> tuple[Pace, int]:
    """Count the tokens of this clock hour: of the loop, and of the agent's chats and sensors.

    The pace remembers the last inference before the hour, so older ones are not read however long the loop has run.
    """
    hour = hour_of(now)
    mark = pace.hour_mark if pace.hour == hour.isoformat() else pace.latest
    others = AgentSession.objects.filter(agent=agent, mode__in=_COUNTED_WITH_LOOP, last_activity_at__gte=hour)
    pks = [session.pk, *others.values_list("pk", flat=True)]
    rows = InferenceLog.objects.filter(session_id__in=pks, pk__gt=mark, created_at__gte=hour)
    tokens: int = rows.aggregate(tokens=Sum(F("input_tokens") + F("output_tokens"), default=0))["tokens"]
    latest = InferenceLog.objects.aggregate(latest=Max("pk"))["latest"] or 0
    return replace(pace, hour=hour.isoformat(), hour_mark=mark, latest=latest), tokens


def _end_reason(
    session: AgentSession, agent: Agent, definition: AgentDefinition, *, now: datetime
) -> TerminalReason | None:
    """Return why the loop has to end, if so: stopped, opted out, or its day is over."""
    if not agent.enabled or not definition.is_autonomous:
        return TerminalReason.EXTERNAL_HALT
    if not may_run_for(session.owner_id):
        return TerminalReason.OPTED_OUT
    if autonomy_of(definition).renew == "daily" and session.created_at < day_of(now):
        return TerminalReason.COMPLETED
    return None


def _forced_sleep(pace: Pace, until: datetime, limits: Autonomy, triggered: Triggered, *, now: datetime) -> Move:
    """Sleep until then. No alert ends this sleep: the agent did not choose it."""
    move = Move(Asleep(until), forced_sleep(pace, triggered.name), triggered=(triggered,))
    return renew_daily(move, limits, now=now)


def _token_budget_spent(tokens: int, limits: Autonomy, now: datetime) -> Triggered | None:
    """Check the tokens of this hour. A budget of 0 means none."""
    if not 0 < limits.token_budget_per_hour <= tokens:
        return None
    numbers = {"tokens": tokens, "limit": limits.token_budget_per_hour, "until": next_hour(now).isoformat()}
    return Triggered("token_budget_per_hour", numbers)


# --- Actions per minute ---


def is_action(call: ToolCall) -> bool:
    """Tell whether a call was of a skill with side effects, as its author declared. Reading is free."""
    skill = skill_named(call.name)
    return skill is not None and skill.side_effects


class ActionRate:
    """The limit on actions in one slice of a turn.

    A call beyond the limit is not made: it costs nothing, uses up no other limit, and the model is told so. `refused`
    counts such calls of the turn.
    """

    def __init__(self, session: AgentSession, pace: Pace, *, limit: int) -> None:
        self._session = session
        self._limit = limit
        self._after = pace.last_call
        self._before = [datetime.fromisoformat(at) for at in pace.actions]
        self.refused = pace.refused

    def group(self) -> Admission:
        """Admit one group of calls: those admitted together count before any of them is made."""
        admitted: list[datetime] = []

        def admit(key: str, skill: Skill, arguments: Mapping[str, Any]) -> str:
            if not skill.side_effects:
                return ""
            now = clock()
            taken = len(self.recent(now)) + len(admitted)
            if taken < self._limit:
                admitted.append(now)
                return ""
            return self._refuse(key, skill, arguments, taken=taken, now=now)

        return admit

    def recent(self, now: datetime) -> list[datetime]:
        """Return when the actions of the last minute started."""
        journal = [call.started_at for call in calls_since(self._session, self._after) if is_action(call)]
        return [at for at in (*self._before, *journal) if at > now - RATE_WINDOW]

    def frees_at(self, now: datetime) -> datetime:
        """Return when the next action may start."""
        return min(self.recent(now), default=now) + RATE_WINDOW

    def _refuse(self, key: str, skill: Skill, arguments: Mapping[str, Any], *, taken: int, now: datetime) -> str:
        self.refused += 1
        params = {"skill": skill.name, "arguments": dict(arguments)}
        call = replace(plan_call(self._session, skill.intent, params, key=key, now=now), phase=Phase.TURN)
        reason = (
            f"{taken} actions were started in the last minute, and {self._limit} are allowed ({ACTION_LIMIT}); "
            f"{skill.name} was not run. Wait before you act again."
        )
        denied(call, ACTION_LIMIT, reason, outcome=Outcome.RATE_LIMITED)
        event_emit(
            EventKind.GUARDRAIL_TRIGGERED,
            session=self._session,
            now=now,
            guardrail=ACTION_LIMIT,
            actions=taken,
            limit=self._limit,
            skill=skill.name,
        )
        return reason
