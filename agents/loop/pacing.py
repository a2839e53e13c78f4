"""The pace of a loop: what the end of a turn leads to - the next turn, a sleep, or the end. Pure: no rows, no clock.

The agent chooses its pace by yielding; the limits are the runner's, and no call of the agent reaches them. Each
function takes the pace so far and returns the next move.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

from agents.enums import TerminalReason
from agents.policy.guardrails import CHAT_MESSAGE
from agents.policy.schedule import backoff, hour_of
from agents.types import Asleep, End, Finished, SliceOver

FORCED_SLEEP: Final = 60
GATE_LEAST: Final = 10
GATE_MOST: Final = 300
ERROR_FIRST: Final = 5
ERROR_MOST: Final = 300
MOST_ERRORS: Final = 5
OUTAGE_MOST: Final = 3_600
TOLD_AT: Final = 2  # failures of the model in a row after which the owner is told, once


class YieldMode(StrEnum):
    CONTINUE = "continue"
    SLEEP = "sleep"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True)
class Yielded:
    """How the agent ended its turn. Without a readable `yield` the loop continues."""

    mode: YieldMode = YieldMode.CONTINUE
    sleep: int = 0
    wake_early_if: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Pace:
    """The memory of a loop between its turns, stored as JSON in the session's metadata."""

    consecutive: int = 0  # turns since the last sleep
    errors: int = 0  # failed turns in a row
    outages: int = 0  # of these, turns that failed because of the model
    skips: int = 0  # wakes that the gate skipped, in a row
    sleep_seconds: int = 0  # the sleep before the present turn, as the agent chose it
    slept: bool = False  # it slept after its last turn: what is counted per stretch starts again
    cut: bool = False  # the last turn used up its rounds of calls
    idle_ms: int = 0  # awake since the last action
    refused: int = 0  # actions of the open turn that came too fast
    last_call: int = 0  # the last call that is accounted for
    sleep_until: str = ""  # the end of a sleep that a new day cut short
    wakes: tuple[str, ...] = ()  # the alerts that end the sleep that the agent chose
    actions: tuple[str, ...] = ()  # when the actions of the last minute started
    why: str = ""  # why the loop sleeps, for people
    hour: str = ""  # the clock hour whose tokens are counted,
    hour_mark: int = 0  # the last inference before it,
    latest: int = 0  # and the last one that was counted

    @classmethod
    def from_json(cls, kept: object) -> Self:
        """Read what `to_json` wrote; anything else counts as missing."""
        found = kept if isinstance(kept, Mapping) else {}
        given = {one.name: found[one.name] for one in fields(cls) if one.name in found}
        given |= {name: tuple(map(str, given.get(name) or ())) for name in ("wakes", "actions")}
        return cls(**{name: value for name, value in given.items() if type(value) is type(getattr(cls, name))})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "wakes": list(self.wakes), "actions": list(self.actions)}


@dataclass(frozen=True)
class Triggered:
    """A guardrail that was triggered: its name and its numbers."""

    name: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """The next move of a loop. `wakes` are the alerts that end the sleep early."""

    end: End
    pace: Pace
    wakes: tuple[str, ...] = ()
    triggered: tuple[Triggered, ...] = ()

    @property
    def until(self) -> datetime | None:
        return self.end.wake_at if isinstance(self.end, Asleep) else None


# --- After a turn ---


def after_sleep(pace: Pace) -> Pace:
    """After any sleep, turns without a sleep are counted from zero."""
    return replace(pace, consecutive=0, slept=True)


def next_move(pace: Pace, yielded: Yielded, *, wake_on_chat: bool, now: datetime) -> Move:
    """Do what the agent yielded."""
    fresh = replace(pace, errors=0, outages=0, skips=0, slept=False, sleep_until="", sleep_seconds=0, wakes=(), why="")
    match yielded.mode:
        case YieldMode.SHUTDOWN:
            return Move(Finished(TerminalReason.AGENT_SHUTDOWN), fresh)
        case YieldMode.SLEEP:
            names = (*yielded.wake_early_if, *((CHAT_MESSAGE,) if wake_on_chat else ()))
            wakes = tuple(dict.fromkeys(names))
            why = f"The agent chose to sleep: {yielded.reason}" if yielded.reason else "The agent chose to sleep."
            pace = replace(after_sleep(fresh), sleep_seconds=yielded.sleep, wakes=wakes, why=why, idle_ms=0)
            return Move(Asleep(now + timedelta(seconds=yielded.sleep)), pace, wakes)
    return Move(SliceOver(), replace(fresh, consecutive=pace.consecutive + 1))


def after_failure(pace: Pace, reason: TerminalReason, *, now: datetime) -> Move:
    """Retry a failed turn after a growing pause; after too many in a row the loop fails.

    A model that fails never ends the loop: it is tried again, after up to an hour, until it answers.
    """
    is_outage = reason == TerminalReason.PROVIDER_ERROR
    outages = pace.outages + is_outage
    why = "The model fails; it is tried again." if is_outage else "The last turn failed; it is tried again."
    pace = replace(pace, errors=pace.errors + 1, outages=outages, slept=False, why=why)
    if pace.errors - pace.outages >= MOST_ERRORS:
        return Move(Finished(reason), pace)
    pause = backoff(pace.errors, first=ERROR_FIRST, longest=OUTAGE_MOST if is_outage else ERROR_MOST)
    return Move(Asleep(now + timedelta(seconds=pause)), pace)


def after_skip(pace: Pace, *, now: datetime) -> Move:
    """Repeat the agent's own sleep after a skipped turn, doubled with each further skip."""
    first = max(pace.sleep_seconds, GATE_LEAST)
    seconds = backoff(pace.skips + 1, first=first, longest=GATE_MOST)
    pace = replace(pace, skips=pace.skips + 1, slept=True, why="The gate saw nothing that is worth a turn.")
    return Move(Asleep(now + timedelta(seconds=seconds)), pace, pace.wakes)


# --- Limits ---


def limit_consecutive_turns(move: Move, *, limit: int, now: datetime) -> Move:
    """Force a sleep after so many turns without one."""
    turns = move.pace.consecutive
    if not isinstance(move.end, SliceOver) or turns < limit:
        return move
    numbers = {"turns": turns, "limit": limit, "sleep_seconds": FORCED_SLEEP}
    triggered = (*move.triggered, Triggered("max_consecutive_turns", numbers))
    pace = forced_sleep(move.pace, "max_consecutive_turns")
    return Move(Asleep(now + timedelta(seconds=FORCED_SLEEP)), pace, triggered=triggered)


def sleep_at_least(move: Move, until: datetime, triggered: Triggered) -> Move:
    """Make the loop sleep until then; a longer sleep, or an end, stays as it is."""
    found = (*move.triggered, triggered)
    if isinstance(move.end, Finished) or (move.until is not None and move.until >= until):
        return replace(move, triggered=found)
    return Move(Asleep(until), forced_sleep(move.pace, triggered.name), triggered=found)


def forced_sleep(pace: Pace, guardrail: str) -> Pace:
    """Return the pace of a sleep that a guardrail forces."""
    return replace(after_sleep(pace), why=f"The guardrail {guardrail} applies.")


def wake_at_midnight(move: Move, *, now: datetime) -> Move:
    """Cut a sleep at the new day, and remember how long it was; for loops that start again daily."""
    midnight = next_day(now)
    if move.until is None or move.until <= midnight:
        return move
    return replace(move, end=Asleep(midnight), pace=replace(move.pace, sleep_until=move.until.isoformat()))


def add_idle_time(
    pace: Pace, *, since: datetime, last_action_at: datetime | None, now: datetime, is_chance: bool = False
) -> Pace:
    """Add the time from `since`; after an action, only what came after it counts.

    Idle is counted from the last chance to act: the first turn of a stretch, however long its model takes, is one.
    """
    spent = max((now - max(since, last_action_at or since)) // timedelta(milliseconds=1), 0)
    if is_chance:
        spent = 0
    return replace(pace, idle_ms=spent if last_action_at is not None else pace.idle_ms + spent)


def idle_limit_reached(pace: Pace, *, limit: int) -> Triggered | None:
    """Check the idle time. A limit of 0 means none."""
    if not limit or pace.idle_ms < limit * 1_000:
        return None
    return Triggered("idle_timeout", {"idle_seconds": pace.idle_ms // 1_000, "limit": limit})


# --- Clock hours and days, in UTC ---


def next_hour(now: datetime) -> datetime:
    return hour_of(now) + timedelta(hours=1)


def day_of(now: datetime) -> datetime:
    return hour_of(now).replace(hour=0)


def next_day(now: datetime) -> datetime:
    return day_of(now) + timedelta(days=1)
