"""What a turn's end means for the pace of its loop: go on, sleep, or stop. Pure: no rows, no clock.

The agent chooses its pace by yielding; the limits here are the runner's, and no call of the agent reaches them. Each
function takes the pace so far and gives the next move: how the slice ends, the pace to remember, and which alerts end
the sleep early.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

from agents.enums import TerminalReason
from agents.sessions.lifecycle import CHAT_MESSAGE
from agents.types import Asleep, End, Finished, SliceOver

FORCED_SLEEP: Final = 60
GATE_LEAST: Final = 10
GATE_MOST: Final = 300
ERROR_FIRST: Final = 5
ERROR_MOST: Final = 300
MOST_ERRORS: Final = 5
RATE_WINDOW: Final = timedelta(seconds=60)
MOST_RATE_REFUSALS: Final = 3


class YieldMode(StrEnum):
    CONTINUE = "continue"
    SLEEP = "sleep"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True)
class Yielded:
    """How the agent ended its turn. One that it did not end, or not in a way that can be read, goes on."""

    mode: YieldMode = YieldMode.CONTINUE
    sleep: int = 0
    wake_early_if: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Pace:
    """What a loop remembers between its turns; the session keeps it as JSON under these names."""

    consecutive: int = 0  # turns since the last sleep
    errors: int = 0  # failed turns in a row
    skips: int = 0  # wakes that the gate skipped, in a row
    sleep_seconds: int = 0  # how long the agent slept before the present turn, as it chose
    slept: bool = False  # it lay down after its last turn: what is counted per stretch begins anew
    cut: bool = False  # the last turn used up its rounds of calls
    idle_ms: int = 0  # awake since the last action
    refused: int = 0  # actions of the open turn that came too fast
    last_call: int = 0  # the last call that is accounted for
    sleep_until: str = ""  # the end of a sleep that a new day cuts short
    wakes: tuple[str, ...] = ()  # the alerts that end the sleep that the agent chose
    actions: tuple[str, ...] = ()  # when the last minute's actions were begun
    hour: str = ""  # the clock hour whose tokens are counted,
    hour_mark: int = 0  # the last inference before it,
    latest: int = 0  # and the last one that was looked at

    @classmethod
    def from_json(cls, kept: object) -> Self:
        """What is missing, or is not what we would have written, counts as not there."""
        found = kept if isinstance(kept, Mapping) else {}
        given = {one.name: found[one.name] for one in fields(cls) if one.name in found}
        given |= {name: tuple(map(str, given.get(name) or ())) for name in ("wakes", "actions")}
        return cls(**{name: value for name, value in given.items() if type(value) is type(getattr(cls, name))})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "wakes": list(self.wakes), "actions": list(self.actions)}


@dataclass(frozen=True)
class Triggered:
    """A guardrail that took hold: its name and the numbers that it went by."""

    name: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Move:
    """What comes next. `wakes` are the alerts that end the sleep early."""

    end: End
    pace: Pace
    wakes: tuple[str, ...] = ()

    @property
    def until(self) -> datetime | None:
        return self.end.wake_at if isinstance(self.end, Asleep) else None


# --- After a turn ---


def rested(pace: Pace) -> Pace:
    """After a sleep, whoever chose it, turns without one are counted anew."""
    return replace(pace, consecutive=0, slept=True)


def acted_on(pace: Pace, yielded: Yielded, *, max_sleep: int, wake_on_chat: bool, now: datetime) -> Move:
    """What the agent asked for. A sleep longer than the longest is cut to it."""
    fresh = replace(pace, errors=0, skips=0, slept=False, sleep_until="", sleep_seconds=0, wakes=())
    match yielded.mode:
        case YieldMode.SHUTDOWN:
            return Move(Finished(TerminalReason.AGENT_SHUTDOWN), fresh)
        case YieldMode.SLEEP:
            seconds = min(yielded.sleep, max_sleep)
            named = (*yielded.wake_early_if, *((CHAT_MESSAGE,) if wake_on_chat else ()))
            wakes = tuple(dict.fromkeys(named))
            pace = replace(rested(fresh), sleep_seconds=seconds, wakes=wakes)
            return Move(Asleep(now + timedelta(seconds=seconds)), pace, wakes)
    return Move(SliceOver(), replace(fresh, consecutive=pace.consecutive + 1))


def consecutive_turns(move: Move, *, limit: int, now: datetime) -> tuple[Move, Triggered | None]:
    """So many turns without a sleep are enough: a sleep follows that the agent did not choose."""
    turns = move.pace.consecutive
    if not isinstance(move.end, SliceOver) or turns < limit:
        return move, None
    numbers = {"turns": turns, "limit": limit, "sleep_seconds": FORCED_SLEEP}
    move = Move(Asleep(now + timedelta(seconds=FORCED_SLEEP)), rested(move.pace))
    return move, Triggered("max_consecutive_turns", numbers)


def held_back(move: Move, until: datetime) -> Move:
    """Nothing before then, whatever the agent chose; a sleep that lasts longer stands as it is."""
    if isinstance(move.end, Finished) or (move.until is not None and move.until >= until):
        return move
    return Move(Asleep(until), rested(move.pace))


def failed(pace: Pace, *, now: datetime) -> Move:
    """A turn that failed is tried again after a pause, each time a longer one; after so many in a row it is over."""
    pace = replace(pace, errors=pace.errors + 1, slept=False)
    if pace.errors >= MOST_ERRORS:
        return Move(Finished(TerminalReason.PROVIDER_ERROR), pace)
    pause = min(ERROR_FIRST * 2 ** (pace.errors - 1), ERROR_MOST)
    return Move(Asleep(now + timedelta(seconds=pause)), pace)


def skipped(pace: Pace, *, now: datetime) -> Move:
    """A wake without a turn: the agent's own sleep again, doubled with each further one."""
    first = max(pace.sleep_seconds, GATE_LEAST)
    seconds = max(first, min(first * 2**pace.skips, GATE_MOST))
    pace = replace(pace, skips=pace.skips + 1, slept=True)
    return Move(Asleep(now + timedelta(seconds=seconds)), pace, pace.wakes)


# --- Windows of time ---


def hour_of(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def next_hour(now: datetime) -> datetime:
    return hour_of(now) + timedelta(hours=1)


def day_of(now: datetime) -> datetime:
    return hour_of(now).replace(hour=0)


def next_day(now: datetime) -> datetime:
    return day_of(now) + timedelta(days=1)


def until_the_new_day(move: Move, *, now: datetime) -> Move:
    """A loop that begins anew each day does not sleep over midnight; how long it would have slept is remembered."""
    midnight = next_day(now)
    if move.until is None or move.until <= midnight:
        return move
    return replace(move, end=Asleep(midnight), pace=replace(move.pace, sleep_until=move.until.isoformat()))


# --- How long it has been awake for nothing ---


def idled(pace: Pace, *, since: datetime, last_action_at: datetime | None, now: datetime) -> Pace:
    """With the time from `since` added: all of it, or what came after the last action."""
    spent = max((now - max(since, last_action_at or since)) // timedelta(milliseconds=1), 0)
    return replace(pace, idle_ms=spent if last_action_at is not None else pace.idle_ms + spent)


def too_idle(pace: Pace, *, limit: int) -> Triggered | None:
    """0 is no limit."""
    if not limit or pace.idle_ms < limit * 1_000:
        return None
    return Triggered("idle_timeout", {"idle_seconds": pace.idle_ms // 1_000, "limit": limit})
