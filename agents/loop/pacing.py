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

from agents.conf import clock
from agents.definitions.in_force import pace_of
from agents.definitions.schema import AgentDefinition, Autonomy
from agents.engine.prompting import Admission
from agents.enums import EventKind, Outcome, Phase, TerminalReason, ToolIntent
from agents.guard.calls import plan_call
from agents.guard.consent import denied
from agents.ledger.boundary import may_run_for
from agents.loop.reads import hour_spent
from agents.loop.turns import Done, calls_since
from agents.models import Agent, AgentSession
from agents.people.activity import event_emit
from agents.policy.schedule import Hours
from agents.sessions.lifecycle import CHAT_MESSAGE
from agents.skills.registry import skill_named
from agents.skills.skill import Skill
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


# --- How many actions a loop may begin in a minute. An action is a call with side effects; reading is free ---
#
# A call beyond the limit is not made: it costs nothing, uses up no other limit, and the model is told so.


NAME: Final = "max_actions_per_minute"


def is_action(call: Done) -> bool:
    """A call of a skill that changes something, as its author declared. Questions to models change nothing."""
    skill = skill_named(call.name)
    return skill is not None and skill.side_effects


class ActionRate:
    """The limit over one slice of a turn. `refused` counts the calls of the turn that came too fast."""

    def __init__(self, session: AgentSession, pace: Pace, *, limit: int) -> None:
        self._session, self._limit = session, limit
        self._after = pace.last_call
        self._before = [datetime.fromisoformat(at) for at in pace.actions]
        self.refused = pace.refused

    def group(self) -> Admission:
        """Admission to one group of calls: those that are admitted together count before any of them is made."""
        begun: list[datetime] = []

        def admit(key: str, skill: Skill, arguments: Mapping[str, Any]) -> str:
            if not skill.side_effects:
                return ""
            now = clock()
            taken = len(self.recent(now)) + len(begun)
            if taken < self._limit:
                begun.append(now)
                return ""
            return self._refuse(key, skill, arguments, taken=taken, now=now)

        return admit

    def recent(self, now: datetime) -> list[datetime]:
        """When the actions of the last minute were begun."""
        journal = [call.started_at for call in calls_since(self._session, self._after) if is_action(call)]
        return [at for at in (*self._before, *journal) if at > now - RATE_WINDOW]

    def frees_at(self, now: datetime) -> datetime:
        """When the next action may be begun."""
        return min(self.recent(now), default=now) + RATE_WINDOW

    def _refuse(self, key: str, skill: Skill, arguments: Mapping[str, Any], *, taken: int, now: datetime) -> str:
        self.refused += 1
        params = {"skill": skill.name, "arguments": dict(arguments)}
        call = replace(plan_call(self._session, ToolIntent.RUN_SKILL, params, key=key, now=now), phase=Phase.TURN)
        why = (
            f"{taken} actions were begun in the last minute, and {self._limit} are allowed ({NAME}); "
            f"{skill.name} was not run. Wait before you act again."
        )
        denied(call, NAME, why, outcome=Outcome.RATE_LIMITED)
        told: dict[str, Any] = {"guardrail": NAME, "actions": taken, "limit": self._limit, "skill": skill.name}
        event_emit(EventKind.GUARDRAIL_TRIGGERED, session=self._session, now=now, **told)
        return why


# The guardrails of loops, asked before a turn and after it. The runner holds them; nothing that an agent calls does.
#
# Each that takes hold is named, with its numbers, for those who watch.


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
