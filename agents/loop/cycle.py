"""The engine of loops: one turn for each task, and the pause between two turns is a row.

A turn is: what there is to see (1, 2), whether it is worth a turn (3), stale fields read anew (4, or before 3 if a gate
has to judge them), the context (5), the agent's turn (6), how it yielded (7), the record of it (8), what comes of that
(9), and the guardrails (10), which are asked before a turn as well. A turn that was interrupted goes on where it was,
by the definition that it began with: what it has done stands in the journal.
Brakes are not caught here, but for a shared budget that is used up: a loop sleeps until it is filled again.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from agents.conf import clock, skill_hosts
from agents.definitions.in_force import definition_of, loop_of, pace_of
from agents.definitions.schema import AgentDefinition, FieldSpec
from agents.engine.loop import Answered
from agents.engine.prompting import call
from agents.engine.turns import SessionKey, run_agent_turn
from agents.enums import ApprovalMode, EventKind, HotSource, TerminalReason, ToolIntent, TurnState
from agents.exceptions import AutonomousBrake, BudgetRefused, LeaseLost, OutcomeUnknown, RetryLater
from agents.guard.tools import BadParams
from agents.loop.alerts import alerts_pending
from agents.loop.context import history_of, opening_of, seen_of, system_of, view_of
from agents.loop.gate import gate
from agents.loop.pacing import (
    RATE_WINDOW,
    ActionRate,
    Move,
    Pace,
    Triggered,
    Yielded,
    YieldMode,
    acted_on,
    before_turn,
    daily,
    failed,
    idled,
    is_action,
    rested,
    restrained,
    skipped,
    tokens_counted,
)
from agents.loop.state import FieldView, hot_snapshot, hot_write
from agents.loop.turns import (
    PACE,
    Done,
    Memory,
    calls_since,
    memory_keep,
    memory_settle,
    turn_begin,
    turn_close,
    turn_fail,
    turn_has_begun,
    turn_latest,
    turn_open,
    turn_skip,
)
from agents.models import Agent, AgentSession, Turn
from agents.people.activity import event_emit
from agents.policy.consent import needs_person
from agents.policy.guardrails import YIELD, LoopConfig
from agents.sessions.reads import call_latest
from agents.sessions.transcripts import Entry, transcript_append
from agents.skills.registry import skill_named, skill_standing, yield_turn
from agents.skills.risk import level_for
from agents.skills.skill import BadArguments
from agents.types import Asleep, End, Finished, ToolResult
from audit.redaction import redact_exception

logger = logging.getLogger(__name__)


# --- Reads stale fields anew before a turn, through the guard. A field that cannot be read keeps what it had ---
#
# Only skills that change nothing, and that nobody has to be asked about, refresh by themselves.


def stale(definition: AgentDefinition, views: Sequence[FieldView]) -> dict[str, FieldSpec]:
    """The fields that have gone stale and are read anew by themselves."""
    fields = definition.hot_state.fields
    return {view.name: fields[view.name] for view in views if view.stale and fields[view.name].refreshes}


def refresh(session: AgentSession, turn: Turn, definition: AgentDefinition, views: Sequence[FieldView]) -> list[str]:
    """The names of the fields that were read anew."""
    return [
        name
        for name, spec in stale(definition, views).items()
        if _read(session, definition, name, spec, key=f"turn:{turn.number}:fresh:{name}")
    ]


def _read(session: AgentSession, definition: AgentDefinition, name: str, spec: FieldSpec, *, key: str) -> bool:
    tool = spec.refresh_tool or ""
    try:
        told = _asked(session, tool, spec.refresh_params, key=key)
    except (BadParams, BadArguments, RetryLater) as error:
        told = str(error)
    if isinstance(told, str) or not told.ok:
        why = told if isinstance(told, str) else told.error
        logger.warning("%s of session %s stays as it is: %s", name, session.public_id, why)
        return False
    return hot_write(
        session,
        definition=definition,
        name=name,
        value=told.data,
        source=HotSource.REFRESH,
        source_name=tool,
        now=clock(),
    )


def _asked(session: AgentSession, tool: str, params: dict[str, Any], *, key: str) -> ToolResult | str:
    skill = skill_named(tool)
    if skill is None:
        return f"the skill {tool} is not found"
    arguments = skill.arguments(params)
    level = level_for(skill, skill_standing(skill.name, skill.level).level, arguments, skill_hosts())
    mode = session.agent.mode if session.agent else ApprovalMode.MANUAL
    if skill.side_effects or needs_person(skill.capability(level), mode=mode):
        return f"{tool} changes something, or needs a person's consent: it is not called by itself"
    return call(session, ToolIntent.RUN_SKILL, key, {"skill": tool, "arguments": arguments})


# --- How a turn was yielded: read from the journal of its calls, never from what the agent says ---


def read_yield(session: AgentSession, calls: Sequence[Done]) -> Yielded:
    """The last one that was taken wins. A turn without one goes on, as if the agent had said so."""
    taken = [call for call in calls if call.name == YIELD and call.ok]
    made = call_latest(session, max(taken, key=_place).key) if taken else None
    if made is None:
        return Yielded()
    given = made.arguments["arguments"]
    return Yielded(
        mode=YieldMode(given["mode"]),
        sleep=given["sleep"] or 0,
        wake_early_if=tuple(given["wake_early_if"] or ()),
        reason=given["reason"],
    )


def _place(call: Done) -> tuple[int, ...]:
    """Its place in the turn: calls that ran side by side were journalled in any order."""
    return tuple(int(number) for number in call.key.rpartition(":")[2].split("_")[1:])


ROUNDS: Final = "max_tool_rounds"
_PASSED_ON: Final = (AutonomousBrake, LeaseLost, OutcomeUnknown, RetryLater)
_TURN_ERRORS: Final = {TerminalReason.PROVIDER_ERROR, TerminalReason.REFUSED, TerminalReason.TIMED_OUT}


def loop(session: AgentSession) -> End:
    if session.agent is None:
        return Finished(TerminalReason.EXTERNAL_HALT)
    return Cycle(session, session.agent).run()


class Cycle:
    """One slice of a loop."""

    def __init__(self, session: AgentSession, agent: Agent) -> None:
        self._session, self._agent = session, agent
        self._began_at = clock()
        self._go_by(agent.definition)
        self._pace = Pace.from_json(session.metadata.get(PACE))

    def _go_by(self, text: str) -> None:
        self._agent.definition = text
        self._definition = definition_of(self._agent)
        self._limits = pace_of(self._definition)

    def run(self) -> End:
        turn = turn_latest(self._session)
        if turn is not None and turn.definition:
            self._go_by(turn.definition)  # as it began, whatever the agent's text says by now
        if turn is None or turn.state != TurnState.OPEN:
            now = clock()
            verdict = before_turn(self._session, self._agent, self._definition, self._pace, now=now)
            if verdict.move is not None:
                self._tell(verdict.triggered, now)
                memory_keep(self._session, _memory(verdict.move))
                return verdict.move.end
            after_sleep = verdict.pace.slept
            self._pace = replace(verdict.pace, refused=0, slept=False)
            turn = turn_open(self._session, memory=Memory(self._pace.to_json()), after_sleep=after_sleep, now=now)
        return self._guarded(turn)

    def _guarded(self, turn: Turn) -> End:
        """The turn, and what comes of it if something goes wrong in it: the loop survives."""
        try:
            return self._turn(turn)
        except BudgetRefused as refused:
            return self._out_of_money(turn, refused)
        except _PASSED_ON:
            raise
        except Exception as error:
            logger.exception("turn %s of session %s failed", turn.number, self._session.public_id)
            return self._failed(turn, redact_exception(error))

    def _turn(self, turn: Turn) -> End:
        config = self._config()
        said: tuple[Entry, ...] = ()
        if not turn_has_begun(self._session, turn):
            prepared = self._prepared(turn, config)
            if isinstance(prepared, Move):
                return prepared.end
            said = prepared
        rate = ActionRate(self._session, self._pace, limit=self._limits.max_actions_per_minute)
        end = run_agent_turn(
            self._agent,
            SessionKey(self._session, turn.number, calls=f"turn:{turn.number}"),
            said,
            system=system_of(self._session),
            config=config,
            before=history_of(self._session, turn),
            admit=rate.group,
            closing=yield_turn,
        )
        self._pace = replace(self._pace, refused=rate.refused)
        return self._ended(turn, end, rate)

    def _config(self) -> LoopConfig:
        """In a turn the smaller of the limits wins."""
        config = loop_of(self._session)
        rounds = min(filter(None, (config.max_tool_rounds, self._limits.max_tool_rounds)))
        return replace(config, max_tool_rounds=rounds)

    # --- 1 to 5 ---

    def _prepared(self, turn: Turn, config: LoopConfig) -> tuple[Entry, ...] | Move:
        """What the turn opens with, or, when the gate stays shut, the sleep that follows."""
        session, definition = self._session, self._definition
        views = hot_snapshot(session, definition, now=clock())
        alerts = alerts_pending(session)
        model = self._limits.precheck_model
        if is_early := model is not None and not alerts and bool(stale(definition, views)):
            views = self._fresh(turn, views)  # else the gate would have to judge what it does not know
        if cause := gate(session, turn, views, model=model, opens=bool(alerts), pace=self._pace):
            return self._skipped(turn, cause)
        if not is_early:
            views = self._fresh(turn, views)
        view = view_of(session, views, alerts, window=config.context_window)
        turn_begin(session, turn, seen=seen_of(session, views, alerts, view), now=clock())
        return opening_of(turn, view)

    def _fresh(self, turn: Turn, views: tuple[FieldView, ...]) -> tuple[FieldView, ...]:
        if not refresh(self._session, turn, self._definition, views):
            return views
        return hot_snapshot(self._session, self._definition, now=clock())

    # --- 7 to 10 ---

    def _ended(self, turn: Turn, end: Answered | End, rate: ActionRate) -> End:
        match end:
            case Answered():
                return self._done(turn, rate)
            case Finished(TerminalReason.MAX_STEPS):
                return self._cut_short(turn, rate)
            case Finished(reason, error) if reason in _TURN_ERRORS:
                return self._failed(turn, error or str(reason))
            case Finished():
                return end
        self._account(clock(), closes=False)
        memory_keep(self._session, Memory(self._pace.to_json()))
        return end

    def _cut_short(self, turn: Turn, rate: ActionRate) -> End:
        rounds = self._config().max_tool_rounds
        told = f"The turn was ended after {rounds} rounds of calls, which is its limit. Go on in the next turn."
        transcript_append(self._session, [Entry("user", told, reason=ROUNDS)], turn=turn.number, now=clock())
        return self._done(turn, rate, cut=True)

    def _done(self, turn: Turn, rate: ActionRate, *, cut: bool = False) -> End:
        """One transaction: the record of the turn, and what the loop remembers of it."""
        now, limits = clock(), self._limits
        with transaction.atomic():
            calls = self._account(now)
            yielded = read_yield(self._session, calls)
            sleep = min(yielded.sleep, limits.longest_sleep) or None
            if yielded.sleep > limits.longest_sleep:
                logger.info("a sleep of %s seconds is cut to %s", yielded.sleep, limits.longest_sleep)
            turn_close(
                self._session,
                turn,
                calls=calls,
                actions=[call.name for call in calls if call.ok and is_action(call)],
                yielded=str(yielded.mode),
                sleep_seconds=sleep,
                reason=yielded.reason,
                now=now,
                wake_early_if=list(yielded.wake_early_if),
            )
            self._pace, spent = tokens_counted(self._session, self._agent, self._pace, now=now)
            move = acted_on(
                replace(self._pace, cut=cut),
                yielded,
                max_sleep=limits.longest_sleep,
                wake_on_chat=limits.wake_on_chat,
                now=now,
            )
            move, found = restrained(move, limits, spent=spent, rate=rate, now=now)
            for triggered in found:
                self._tell(triggered, now)
            memory_settle(self._session, _memory(move), now=now)
        return move.end

    def _skipped(self, turn: Turn, cause: str) -> Move:
        now = clock()
        calls = self._account(now)
        move = daily(skipped(self._pace, now=now), self._limits, now=now)
        turn_skip(self._session, turn, cause=cause, calls=calls, memory=_memory(move), now=now)
        return move

    def _failed(self, turn: Turn, error: str) -> End:
        now = clock()
        calls = self._account(now)
        move = failed(self._pace, now=now)
        turn_fail(self._session, turn, error=error, calls=calls, memory=_memory(move), now=now)
        return replace(move.end, error=error) if isinstance(move.end, Finished) else move.end

    def _out_of_money(self, turn: Turn, refused: BudgetRefused) -> End:
        now = clock()
        calls = self._account(now)
        move = Move(Asleep(refused.resets_at), rested(self._pace))
        turn_fail(self._session, turn, error=str(refused), calls=calls, memory=_memory(move), now=now)
        numbers = {"budget": refused.budget, "cap_usd": str(refused.cap), "until": refused.resets_at.isoformat()}
        self._tell(Triggered("budget", numbers), now)
        return move.end

    def _account(self, now: datetime, *, closes: bool = True) -> list[Done]:
        """The calls of the turn; the pace learns how long nothing was done, and when something was."""
        calls = calls_since(self._session, self._pace.last_call)
        actions = [call for call in calls if is_action(call)]
        last = max((call.settled_at for call in actions if call.ok and call.settled_at), default=None)
        self._pace = idled(self._pace, since=self._began_at, last_action_at=last, now=now)
        if closes and calls:
            begun = [*map(datetime.fromisoformat, self._pace.actions), *(call.started_at for call in actions)]
            recent = tuple(at.isoformat() for at in begun if at > now - RATE_WINDOW)
            self._pace = replace(self._pace, last_call=calls[-1].pk, actions=recent)
        return calls

    def _tell(self, triggered: Triggered | None, now: datetime) -> None:
        if triggered is not None:
            told: dict[str, Any] = dict(triggered.numbers)
            event_emit(EventKind.GUARDRAIL_TRIGGERED, session=self._session, now=now, guardrail=triggered.name, **told)


def _memory(move: Move) -> Memory:
    return Memory(move.pace.to_json(), move.wakes)
