"""Conditions on readings: numbers, changes, patterns and absence, judged without a model. Pure.

A signal fires when all its conditions are met. A source that shows a state (a poll, a stream of measurements) is judged
as one: the signal fires when its conditions become met, and again only after they were not. Items that stand for
themselves (lines, messages, files) are judged one by one, and each that meets the conditions fires.

`clear` is where a number has to be before the condition is no longer met, so that a value that swings around a limit
fires once. Patterns are RE2's: their time grows with the text, whatever the pattern.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

import re2

from agents.policy.paths import PathNotFound, value_at_path

PATTERN_CHARS: Final = 500
TEXT_CHARS: Final = 64 * 1024  # of a value, that a pattern is searched in
NUMBER_CHARS: Final = 40
_MISSING: Final = object()

Range = tuple[Decimal, Decimal]


@dataclass(frozen=True)
class Condition:
    """One condition on the part of a reading that `path` names; without a path, on all of it."""

    path: str | None = None
    above: Decimal | None = None
    below: Decimal | None = None
    between: Range | None = None
    changed: bool = False
    matches: str | None = None
    absent_for: int | None = None  # seconds
    clear: Decimal | Range | None = None
    hold: int = 0  # seconds that it has to be met without a break

    @property
    def is_numeric(self) -> bool:
        return self.above is not None or self.below is not None or self.between is not None

    @property
    def needs_state(self) -> bool:
        """Whether it cannot be judged by one item alone."""
        return self.changed or self.absent_for is not None or self.clear is not None or self.hold > 0

    def __str__(self) -> str:
        """Return the condition in words: `data.price above 80 for 60 seconds`."""
        parts = {
            "above": self.above,
            "below": self.below,
            "between": " and ".join(map(str, self.between)) if self.between else None,
            "matches": self.matches,
            "changed": "" if self.changed else None,
            "absent for": None if self.absent_for is None else f"{self.absent_for} seconds",
        }
        words = " ".join(f"{name} {value}".strip() for name, value in parts.items() if value is not None)
        hold = f" for {self.hold} seconds" if self.hold else ""
        return f"{self.path or 'the reading'} {words}{hold}"


@dataclass(frozen=True)
class Judgement:
    """What conditions say about a reading: the items that fire, the state to keep, and what could not be judged."""

    fired: tuple[Any, ...]
    state: dict[str, Any]
    unjudged: int = 0
    problem: str = ""


class Unjudged(Exception):
    """The value cannot be compared; the text says why."""


# --- Judging ---


def judge(
    conditions: Sequence[Condition], state: Mapping[str, Any], items: Sequence[Any], *, now: datetime, each: bool
) -> Judgement:
    """Judge the items of a reading, oldest first. `state` is that of the judgement before; {} at first."""
    memories = _memories(state, len(conditions))
    was_met = bool(state.get("met"))
    fired: list[Any] = []
    unjudged, problem = 0, ""
    by_edge = not each and not any(condition.changed for condition in conditions)
    for item in items:
        try:
            values = [_comparable(condition, item) for condition in conditions]
        except Unjudged as error:
            unjudged += 1
            problem = str(error)
            continue
        met = [
            _is_met(one, memory, value, now) for one, memory, value in zip(conditions, memories, values, strict=True)
        ]
        if all(met) and not (by_edge and was_met):
            fired.append(item)
        was_met = all(met)
    return Judgement(tuple(fired), {"met": was_met, "conditions": memories}, unjudged, problem)


def judge_time(
    conditions: Sequence[Condition], state: Mapping[str, Any], *, now: datetime
) -> tuple[bool, dict[str, Any]]:
    """Judge what time alone changes: absence, and a condition that a source without news still meets.

    Return whether the signal fires, and the state to keep.
    """
    memories = _memories(state, len(conditions))
    met = [_is_still_met(one, memory, now) for one, memory in zip(conditions, memories, strict=True)]
    fires = all(met) and not state.get("met")
    return fires, {"met": all(met), "conditions": memories}


def waits_for_time(conditions: Sequence[Condition], state: Mapping[str, Any]) -> bool:
    """Tell whether the signal may fire although nothing is read: absence is looked for and not yet reported."""
    return not state.get("met") and any(condition.absent_for is not None for condition in conditions)


def _memories(state: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    """Return what each condition remembers, as copies; none if the state is that of other conditions."""
    kept = state.get("conditions") or []
    return [dict(memory) for memory in kept] if len(kept) == number else [{} for _ in range(number)]


def _comparable(condition: Condition, item: Any) -> Any:
    """Return the value that the condition judges: a number where it needs one, text for a pattern."""
    try:
        value = value_at_path(item, condition.path)
    except PathNotFound as error:
        if condition.absent_for is not None or condition.changed:
            return _MISSING
        raise Unjudged(str(error)) from None
    if value is None and condition.absent_for is not None:
        return _MISSING
    if condition.is_numeric:
        return number_of(value, condition.path)
    return text_of(value) if condition.matches is not None else value


def _is_met(condition: Condition, memory: dict[str, Any], value: Any, now: datetime) -> bool:
    if condition.absent_for is not None:
        is_present = value is not _MISSING and (condition.matches is None or found(condition.matches, value))
        return _is_absent(condition, memory, now, is_present=is_present)
    if condition.changed:
        return _has_changed(memory, value)
    if condition.matches is not None:
        is_so = found(condition.matches, value)
    else:
        is_so = _is_in_range(condition, value, was_met=bool(memory.get("on")))
    memory["on"] = is_so
    return _has_held(condition, memory, now)


def _is_still_met(condition: Condition, memory: dict[str, Any], now: datetime) -> bool:
    if condition.absent_for is not None:
        return _is_absent(condition, memory, now, is_present=False)
    return bool(memory.get("on")) and _has_held(condition, memory, now)


def _is_absent(condition: Condition, memory: dict[str, Any], now: datetime, *, is_present: bool) -> bool:
    if is_present or "seen" not in memory:  # it can be missed from the first look on
        memory["seen"] = now.isoformat()
    return _elapsed(memory, "seen", now) >= timedelta(seconds=condition.absent_for or 0)


def _has_changed(memory: dict[str, Any], value: Any) -> bool:
    text = "" if value is _MISSING else text_of(value, whole=True)
    digest = hashlib.sha256(f"{value is _MISSING}:{text}".encode("utf-8", "replace")).hexdigest()[:24]
    before = memory.get("last")
    memory["last"] = digest
    return before is not None and before != digest


def _is_in_range(condition: Condition, number: Decimal, *, was_met: bool) -> bool:
    """Compare with the limit or, while the condition is met, with where it clears."""
    clear = condition.clear if was_met else None
    if condition.above is not None:
        return number > (clear if isinstance(clear, Decimal) else condition.above)
    if condition.below is not None:
        return number < (clear if isinstance(clear, Decimal) else condition.below)
    low, high = clear if isinstance(clear, tuple) else condition.between or (number, number)
    return low <= number <= high


def _has_held(condition: Condition, memory: dict[str, Any], now: datetime) -> bool:
    if not memory["on"]:
        memory.pop("since", None)
        return False
    if not condition.hold:
        return True
    memory.setdefault("since", now.isoformat())
    return _elapsed(memory, "since", now) >= timedelta(seconds=condition.hold)


def _elapsed(memory: dict[str, Any], name: str, now: datetime) -> timedelta:
    """Return the time since a moment in the memory. After a clock was set back, it is counted from now."""
    elapsed = now - datetime.fromisoformat(memory[name])
    if elapsed < timedelta(0):
        memory[name] = now.isoformat()
    return max(elapsed, timedelta(0))


# --- Values ---


def number_of(value: Any, path: str | None = None) -> Decimal:
    """Return a number, also from text such as "31.5"; anything else cannot be judged."""
    where = path or "the reading"
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise Unjudged(f"{where} is not a number")
    text = str(value).strip()
    if len(text) > NUMBER_CHARS:
        raise Unjudged(f"{where} is not a number of at most {NUMBER_CHARS} characters")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise Unjudged(f"{where} is not a number") from None
    if not number.is_finite():
        raise Unjudged(f"{where} is not a number")
    return number


def text_of(value: Any, *, whole: bool = False) -> str:
    """Return the text that patterns are searched in: data as JSON on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return text if whole else text[:TEXT_CHARS]


# --- Patterns ---


def pattern_problem(pattern: str) -> str:
    """Return why a pattern cannot be used; "" if it can."""
    if len(pattern) > PATTERN_CHARS:
        return f"it has {len(pattern)} characters; the limit is {PATTERN_CHARS}"
    try:
        _compiled(pattern)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else "it cannot be read"
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return ""


def found(pattern: str, text: str) -> bool:
    """Tell whether the pattern is anywhere in the text. Half characters, which UTF-8 cannot hold, count as "?"."""
    try:
        return _compiled(pattern).search(text) is not None
    except UnicodeEncodeError:
        return _compiled(pattern).search(text.encode("utf-8", "replace").decode()) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options=options)
