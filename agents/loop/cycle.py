"""The engine of loops: one turn for each task; the pause between two turns is a row.

The steps of a turn: read the hot state (1) and the alerts (2), ask the gate (3), refresh stale fields (4; before 3 if
the gate has to judge them), render the context (5), run the agent's turn (6), read its yield (7), close the turn (8),
decide the next move (9), apply the guardrails (10), which are also checked before a turn. An interrupted turn continues
from the journal, with the definition that it began with. Brakes are not caught here, except a shared budget that is
used up: the loop sleeps until it is reset.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from django.db import InterfaceError, OperationalError, transaction

from agents.conf import clock, skill_hosts
from agents.definitions.in_force import autonomy_of, definition_of
from agents.definitions.schema import AgentDefinition, FieldSpec
from agents.engine.background import background_entries, task_text
from agents.engine.loop import Answered
from agents.engine.prompting import journaled_call, model_of
from agents.engine.turns import SessionKey, run_agent_turn
from agents.enums import ApprovalMode, HotSource, TerminalReason, ToolIntent, TurnState
from agents.exceptions import (
    AutonomousBrake,
    BudgetRefused,
    LeaseLost,
    OutcomeUnknown,
    RetryLater,
    RunsAwaited,
    SessionPaused,
)
from agents.guard.tools import BadParams
from agents.ledger.model_limits import context_tokens
from agents.ledger.outages import tell_model_fails
from agents.loop.context import HOT_STATE, history_of, opening_of, render, seen_of, system_prompt
from agents.loop.crossings import instruction_entries
from agents.loop.first_readings import wait_for_readings
from agents.loop.gate import gate
from agents.loop.guardrails import (
    RATE_WINDOW,
    ActionRate,
    apply_guardrails,
    check_before_turn,
    count_hour_tokens,
    is_action,
    limit_monologue,
    renew_daily,
    report_triggered,
    turn_config,
)
from agents.loop.pacing import (
    TOLD_AT,
    Move,
    Pace,
    Triggered,
    Yielded,
    YieldMode,
    add_idle_time,
    after_failure,
    after_skip,
    forced_sleep,
    next_day,
    next_move,
)
from agents.loop.state import FieldView, hot_snapshot, hot_write
from agents.loop.turns import (
    PACE,
    alerts_pending,
    calls_since,
    pace_save,
    succeeded,
    turn_begin,
    turn_close,
    turn_has_begun,
    turn_latest,
    turn_observe,
    turn_open,
    turn_settle,
)
from agents.models import Agent, AgentSession, ToolCall, Turn
from agents.policy.consent import needs_person
from agents.policy.guardrails import CALL_YIELD, CHAT_MESSAGE, SILENT_TURNS_TOLD, YIELD, Counters, LoopConfig
from agents.sessions.reads import call_latest
from agents.sessions.transcripts import GUARDRAILS, Entry, transcript_append
from agents.skills.registry import skill_named, skill_standing, yield_turn
from agents.skills.risk import level_for
from agents.skills.skill import BadArguments
from agents.text.blocks import nonce_of
from agents.types import Asleep, End, Finished
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)

ROUNDS: Final = "max_tool_rounds"
_PASSED_ON: Final = (
    AutonomousBrake,
    LeaseLost,
    OutcomeUnknown,
    RetryLater,
    RunsAwaited,
    SessionPaused,
    OperationalError,
    InterfaceError,
)
_TURN_ERRORS: Final = {TerminalReason.PROVIDER_ERROR, TerminalReason.REFUSED, TerminalReason.TIMED_OUT}


def run_loop(session: AgentSession) -> End:
    """Run one slice of a loop."""
    if session.agent is None:
        return Finished(TerminalReason.EXTERNAL_HALT)
    return Cycle(session, session.agent).run()


class Cycle:
    """One slice of a loop."""

    def __init__(self, session: AgentSession, agent: Agent) -> None:
        self._session = session
        self._agent = agent
        self._began_at = clock()
        self._use_definition(agent.definition)
        self._pace = Pace.from_json(session.metadata.get(PACE))

    def _use_definition(self, text: str) -> None:
        self._agent.definition = text
        self._definition = definition_of(self._agent)
        self._limits = autonomy_of(self._definition)

    def run(self) -> End:
        turn = turn_latest(self._session)
        if turn is not None and turn.definition:
            self._use_definition(turn.definition)  # the one that it began with
        if turn is None or turn.state != TurnState.OPEN:
            now = clock()
            checked = check_before_turn(self._session, self._agent, self._definition, self._pace, now=now)
            if isinstance(checked, Move):
                report_triggered(self._session, checked, now=now)
                pace_save(self._session, checked.pace, checked.wakes)
                return checked.end
            if turn is None and (waits := wait_for_readings(self._session, self._agent, self._limits, now=now)):
                pace_save(self._session, replace(checked, why=waits.why), (CHAT_MESSAGE,))
                return Asleep(waits.until)
            self._pace = replace(checked, refused=0, slept=False, why="")
            turn = turn_open(self._session, pace=self._pace, after_sleep=checked.slept, now=now)
        try:
            return self._run_turn(turn)
        except BudgetRefused as refused:
            return self._wait_for_budget(turn, refused)
        except _PASSED_ON:
            raise
        except Exception as error:
            logger.exception("turn %s of session %s failed", turn.number, self._session.public_id)
            return self._fail(turn, TerminalReason.WORKER_ERROR, redact_exception(error))

    def _run_turn(self, turn: Turn) -> End:
        config = turn_config(self._session, self._limits)
        opening: tuple[Entry, ...] = ()
        if not turn_has_begun(self._session, turn):
            prepared = self._prepare(turn, config)
            if isinstance(prepared, Move):
                return prepared.end
            opening = prepared
        rate = ActionRate(self._session, self._pace, limit=self._limits.max_actions_per_minute)
        end = run_agent_turn(
            self._agent,
            SessionKey(self._session, turn.number, calls=f"turn:{turn.number}"),
            opening,
            system=system_prompt(self._session, self._definition),
            config=config,
            before=history_of(self._session, turn),
            admit=rate.group,
            closing=yield_turn,
        )
        self._pace = replace(self._pace, refused=rate.refused)
        match end:
            case Answered():
                return self._close(turn, rate)
            case Finished(TerminalReason.MAX_STEPS):
                return self._cut_short(turn, rate, rounds=config.max_tool_rounds)
            case Finished(reason, error) if reason in _TURN_ERRORS:
                return self._fail(turn, reason, error or str(reason))
            case Finished():
                return end
        self._account_calls(clock(), closes=False)
        pace_save(self._session, self._pace)
        return end

    # --- Steps 1 to 5 ---

    def _prepare(self, turn: Turn, config: LoopConfig) -> tuple[Entry, ...] | Move:
        """Return what the turn opens with, or the move after the gate has skipped it."""
        session, definition = self._session, self._definition
        views = hot_snapshot(session, definition, now=clock())
        alerts = alerts_pending(session)
        model = self._limits.precheck_model
        refresh_first = model is not None and not alerts and bool(stale_fields(definition, views))
        if refresh_first:
            views = self._refreshed(turn, views)
        if cause := gate(session, turn, views, model=model, opens=bool(alerts), pace=self._pace):
            return self._skip(turn, cause)
        if not refresh_first:
            views = self._refreshed(turn, views)
        window = config.context_window or context_tokens(model_of(session.agent))
        view = render(views, alerts, window=window, nonce=nonce_of(session.public_id, HOT_STATE))
        told = instruction_entries(session, alerts, view.alerts)
        turn_begin(session, turn, seen=seen_of(session, views, alerts, view), now=clock())
        task = task_text([view.text, self._definition.instructions])
        background = background_entries(session, task, window=config.context_window)
        silent = Counters.from_json(session.metadata.get(GUARDRAILS)).silent_turns
        nudge = (Entry("user", CALL_YIELD.text, reason=CALL_YIELD.reason),) if silent >= SILENT_TURNS_TOLD else ()
        return (*background, *opening_of(turn, view), *told, *nudge)

    def _refreshed(self, turn: Turn, views: tuple[FieldView, ...]) -> tuple[FieldView, ...]:
        if not refresh(self._session, turn, self._definition, views):
            return views
        return hot_snapshot(self._session, self._definition, now=clock())

    # --- Steps 7 to 10 ---

    def _close(self, turn: Turn, rate: ActionRate, *, cut: bool = False) -> End:
        """Close a completed turn and decide what comes next, in one transaction."""
        now, limits = clock(), self._limits
        with transaction.atomic():
            calls = self._account_calls(now)
            yielded = read_yield(self._session, calls)
            if yielded.sleep > limits.longest_sleep:
                logger.info("a sleep of %s seconds is cut to %s", yielded.sleep, limits.longest_sleep)
                yielded = replace(yielded, sleep=limits.longest_sleep)
            turn_close(
                self._session,
                turn,
                TurnState.DONE,
                reason=yielded.reason,
                calls=calls,
                yielded=yielded,
                actions=[call.name for call in calls if succeeded(call) and is_action(call)],
                now=now,
            )
            self._pace, spent = count_hour_tokens(self._session, self._agent, self._pace, now=now)
            move = next_move(replace(self._pace, cut=cut), yielded, wake_on_chat=limits.wake_on_chat, now=now)
            move = apply_guardrails(move, limits, spent=spent, rate=rate, now=now)
            move = limit_monologue(move, turn_observe(self._session, turn), now=now)
            report_triggered(self._session, move, now=now)
            turn_settle(self._session, move, now=now)
        return move.end

    def _cut_short(self, turn: Turn, rate: ActionRate, *, rounds: int) -> End:
        text = f"The turn was ended after {rounds} rounds of calls, which is its limit. Go on in the next turn."
        transcript_append(self._session, [Entry("user", text, reason=ROUNDS)], turn=turn.number, now=clock())
        return self._close(turn, rate, cut=True)

    @transaction.atomic
    def _skip(self, turn: Turn, cause: str) -> Move:
        now = clock()
        calls = self._account_calls(now)
        move = renew_daily(after_skip(self._pace, now=now), self._limits, now=now)
        turn_close(self._session, turn, TurnState.SKIPPED, reason=cause, calls=calls, now=now)
        turn_settle(self._session, move, now=now)
        return move

    def _fail(self, turn: Turn, reason: TerminalReason, error: str) -> End:
        now = clock()
        calls = self._account_calls(now)
        move = after_failure(self._pace, reason, now=now)
        self._close_failed(turn, error, calls, move, now=now)
        if reason == TerminalReason.PROVIDER_ERROR and move.pace.outages == TOLD_AT:
            tell_model_fails(self._session, error, now=now)
        return replace(move.end, error=error) if isinstance(move.end, Finished) else move.end

    def _wait_for_budget(self, turn: Turn, refused: BudgetRefused) -> End:
        """Sleep until the budget resets. That of a month is asked for again each day: its cap may have been raised."""
        now = clock()
        calls = self._account_calls(now)
        numbers = {"budget": refused.budget, "cap_usd": str(refused.cap), "until": refused.resets_at.isoformat()}
        triggered = (Triggered("budget", numbers),)
        until = min(refused.resets_at, next_day(now))
        move = Move(Asleep(until), forced_sleep(self._pace, "budget"), triggered=triggered)
        self._close_failed(turn, str(refused), calls, move, now=now)
        return move.end

    @transaction.atomic
    def _close_failed(self, turn: Turn, error: str, calls: list[ToolCall], move: Move, *, now: datetime) -> None:
        turn_close(self._session, turn, TurnState.FAILED, reason=error, calls=calls, now=now)
        pace_save(self._session, move.pace, move.wakes)
        report_triggered(self._session, move, now=now)

    def _account_calls(self, now: datetime, *, closes: bool = True) -> list[ToolCall]:
        """Return the calls of the turn; add idle time and recent actions to the pace."""
        calls = calls_since(self._session, self._pace.last_call)
        actions = [call for call in calls if is_action(call)]
        last = max((call.settled_at for call in actions if succeeded(call) and call.settled_at), default=None)
        is_chance = self._pace.consecutive == 0 and not self._pace.errors
        self._pace = add_idle_time(self._pace, since=self._began_at, last_action_at=last, now=now, is_chance=is_chance)
        if closes and calls:
            started = [*map(datetime.fromisoformat, self._pace.actions), *(call.started_at for call in actions)]
            recent = tuple(at.isoformat() for at in started if at > now - RATE_WINDOW)
            self._pace = replace(self._pace, last_call=calls[-1].pk, actions=recent)
        return calls


# --- Refreshing stale fields ---
#
# Through the guard, and only with skills that have no side effects and need no approval. A field that cannot be
# refreshed keeps its value.


def stale_fields(definition: AgentDefinition, views: Sequence[FieldView]) -> dict[str, FieldSpec]:
    """Return the stale fields that are refreshed automatically."""
    fields = definition.hot_state.fields
    return {view.name: fields[view.name] for view in views if view.stale and fields[view.name].refreshes}


def refresh(session: AgentSession, turn: Turn, definition: AgentDefinition, views: Sequence[FieldView]) -> list[str]:
    """Refresh stale fields; return the names of those that were written."""
    return [
        name
        for name, spec in stale_fields(definition, views).items()
        if _refresh_field(session, definition, name, spec, key=f"turn:{turn.number}:fresh:{name}")
    ]


def _refresh_field(session: AgentSession, definition: AgentDefinition, name: str, spec: FieldSpec, *, key: str) -> bool:
    tool = spec.refresh_tool or ""
    try:
        value = _read_value(session, tool, spec.refresh_params, key=key)
    except (_NotRefreshed, BadParams, BadArguments, RetryLater) as error:
        logger.warning("%s of session %s was not refreshed: %s", name, session.public_id, error)
        return False
    return hot_write(
        session,
        definition=definition,
        name=name,
        value=value,
        source=HotSource.REFRESH,
        source_name=tool,
        now=clock(),
    )


class _NotRefreshed(Exception):
    """A field cannot be refreshed; the text says why."""


def _read_value(session: AgentSession, tool: str, params: dict[str, Any], *, key: str) -> Any:
    skill = skill_named(tool)
    if skill is None:
        raise _NotRefreshed(f"the skill {tool} is not found")
    arguments = skill.arguments(params)
    level = level_for(skill, skill_standing(skill.name, skill.level).level, arguments, skill_hosts())
    mode = session.agent.mode if session.agent else ApprovalMode.MANUAL
    if skill.side_effects or needs_person(skill.capability(level), mode=mode):
        raise _NotRefreshed(f"the skill {tool} has side effects or needs approval")
    result = journaled_call(session, ToolIntent.RUN_SKILL, key, {"skill": tool, "arguments": arguments})
    if not result.ok:
        raise _NotRefreshed(result.error)
    return result.data


# --- Reading the yield ---


def read_yield(session: AgentSession, calls: Sequence[ToolCall]) -> Yielded:
    """Read the last successful `yield` from the journal, never from the agent's words."""
    taken = [call for call in calls if call.name == YIELD and succeeded(call)]
    made = call_latest(session, max(taken, key=_position).key) if taken else None
    if made is None:
        return Yielded()
    given = made.arguments["arguments"]
    return Yielded(
        mode=YieldMode(given["mode"]),
        sleep=given["sleep"] or 0,
        wake_early_if=tuple(given["wake_early_if"] or ()),
        reason=given["reason"],
    )


def _position(call: ToolCall) -> tuple[int, ...]:
    """Return its position in the turn: parallel calls are journalled in any order."""
    return tuple(int(number) for number in call.key.rpartition(":")[2].split("_")[1:])
