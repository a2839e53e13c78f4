"""Signals by condition: what a sensor reads is compared, without a model and without cost.

The comparison itself is agents.policy.conditions; here are the state of each signal, its cooldown and its problems.
"""

from collections.abc import Sequence
from typing import Any, Final

from agents.conf import clock
from agents.definitions.schema import Signal
from agents.enums import SensorKind
from agents.policy.conditions import judge, judge_time, waits_for_time
from agents.sensors.rows import FiredSignal, LeasedSensor, is_cooling, safe_text, suppress

FAULT_CHARS: Final = 300


class ConditionSignals:
    """The signals of one sensor that fire by condition."""

    def __init__(self, held: LeasedSensor) -> None:
        self._held = held
        self._signals = tuple(signal for signal in held.spec.signals if signal.when is not None)
        self._conditions = {signal.name: signal.conditions for signal in self._signals}
        self._state: dict[str, dict[str, Any]] = {
            signal.name: dict(held.row.signals.get(signal.name) or {}) for signal in self._signals
        }
        for state in self._state.values():
            state.pop("spawns", None)  # the slice spawns what the one before it left
        self._last: Any = None

    def state(self) -> dict[str, Any]:
        return {name: dict(state) for name, state in self._state.items()}

    def has_last_reading(self) -> bool:
        """Tell whether every signal has judged a reading; one that is new has not."""
        return all("conditions" in state for state in self._state.values())

    def judge(self, items: Sequence[Any], occurrence: str) -> list[FiredSignal]:
        """Judge a reading, item by item; without items, what a source without news still shows."""
        if not items:
            return self.judge_time(occurrence)
        self._last = items[-1]
        found = (self._judge(signal, items, occurrence) for signal in self._signals)
        return [fired for fired in found if fired is not None]

    def _judge(self, signal: Signal, items: Sequence[Any], occurrence: str) -> FiredSignal | None:
        state, conditions, now = self._state[signal.name], self._conditions[signal.name], clock()
        each = self._held.spec.judges_each(signal)
        judged = judge(conditions, state, items, now=now, each=each)
        state |= judged.state
        self._note_unjudged(state, judged.unjudged, judged.problem, is_all=judged.unjudged == len(items))
        return self._fire(signal, judged.fired, occurrence)

    def is_due(self) -> bool:
        """Tell whether a signal may fire by time alone."""
        now = clock()
        return any(
            waits_for_time(conditions, self._state[name]) and judge_time(conditions, self._state[name], now=now)[0]
            for name, conditions in self._conditions.items()
        )

    def judge_time(self, occurrence: str) -> list[FiredSignal]:
        """Judge what time alone changes: absence, and how long a condition has been met."""
        found: list[FiredSignal | None] = []
        for signal in self._signals:
            state = self._state[signal.name]
            if self._held.spec.judges_each(signal) or "conditions" not in state:
                continue
            fires, kept = judge_time(self._conditions[signal.name], state, now=clock())
            state |= kept
            shown = self._last if self._last is not None else "no new reading"
            found.append(self._fire(signal, (shown,) if fires else (), occurrence))
        return [fired for fired in found if fired is not None]

    def start(self, loop_pk: int) -> None:
        """Begin to count absence, also of a source that has shown nothing yet. A new loop begins anew."""
        for signal in self._signals:
            state = self._state[signal.name]
            if state.get("loop") != loop_pk:
                state.pop("conditions", None)
                state |= {"loop": loop_pk, "met": False}
            if any(one.absent_for is not None for one in self._conditions[signal.name]) and "conditions" not in state:
                state |= judge_time(self._conditions[signal.name], state, now=clock())[1]

    def faults(self) -> list[str]:
        return [f"{name} cannot be judged: {state['fault']}" for name, state in self._state.items() if "fault" in state]

    def _fire(self, signal: Signal, items: Sequence[Any], occurrence: str) -> FiredSignal | None:
        if not items:
            return None
        state, now = self._state[signal.name], clock()
        if is_cooling(signal, state, now):
            suppress(state, len(items))
            return None
        state["fired_at"] = now.isoformat()
        state["fired"] = state.get("fired", 0) + len(items)
        reason = " and ".join(str(condition) for condition in self._conditions[signal.name])
        return FiredSignal(signal, reason, occurrence, tuple(items))

    def _note_unjudged(self, state: dict[str, Any], number: int, problem: str, *, is_all: bool) -> None:
        """Count items that could not be compared. A poll whose value is missing or of another kind has a fault."""
        if number:
            state["unscored"] = state.get("unscored", 0) + number
        if is_all and self._held.spec.type == SensorKind.POLL and not self._held.spec.shows_items:
            state["fault"] = safe_text(problem)[:FAULT_CHARS]
        else:
            state.pop("fault", None)
