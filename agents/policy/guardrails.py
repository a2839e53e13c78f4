"""Guardrails of the step loop: limits, repetition, truncation, and the loop's own messages. Pure.

They count and compare, and do not depend on the model's good will. The loop calls `preflight` before a step, reads a
reply with `read_stop`, checks its calls with `observe_tool_calls` and `is_stuck` before any of them runs, and keeps the
returned `Counters` with the session.
"""

import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Protocol, Self

from agents.enums import TerminalReason
from agents.types import Ledger

# --- Settings: names, defaults and allowed values ---
#
# Settings come in layers (the installation, the agent, the trigger); the narrowest wins.


MOST: Final = 10**12  # fits an integer column
RENAMED: Final = {"timeout_seconds": "timeout"}  # former name; stored settings may still hold it


class Strategy(StrEnum):
    """How a conversation that outgrows the context window is cut (agents.policy.context_window)."""

    NONE = "none"
    SLIDING_WINDOW = "sliding_window"
    COMPACT = "compact"
    SUMMARIZE = "summarize"


@dataclass(frozen=True)
class _Settings:
    @classmethod
    def merged(cls, *layers: Mapping[str, object]) -> Self:
        """The defaults, overridden by each layer in turn: name the widest first and the narrowest last.

        Every value of every layer is checked, also one that a narrower layer overrides.
        """
        defaults = {field.name: field.default for field in fields(cls)}
        merged: dict[str, Any] = {}
        for layer in layers:
            for given, value in layer.items():
                key = RENAMED.get(given, given)
                if key not in defaults:
                    raise _refused(key, value, f"there is no such setting; there are {', '.join(defaults)}")
                merged[key] = _checked(key, value, defaults[key])
        return cls(**merged)


@dataclass(frozen=True)
class GuardrailsConfig(_Settings):
    """Limits of the guardrails.

    A set of calls runs at most `max_repeated_tool_steps` times in a row. Zero does not switch that off: no call runs at
    all. Zero recoveries mean that none is tried.
    """

    max_tokens_recoveries: int = 2
    max_repeated_tool_steps: int = 3
    reserve_tokens: int = 512
    reserve_cost_fraction: Decimal = Decimal("0.1")


@dataclass(frozen=True)
class LoopConfig(_Settings):
    """How a step loop runs. Zero is no limit for time, window, tokens and tool rounds; zero steps are no steps."""

    max_steps: int = 50
    timeout: int = 0  # seconds
    max_retries: int = 3
    streaming: bool = False
    context_window: int = 0
    context_strategy: Strategy = Strategy.SLIDING_WINDOW
    token_budget: int = 0
    max_tool_rounds: int = 0


def _checked(key: str, value: object, default: object) -> object:
    """Return a value of the type of its default, or refuse it. A float counts as it is written."""
    match default:
        case bool():
            wanted = "true or false"
            if isinstance(value, bool):
                return value
        case Strategy():
            wanted = f"one of {', '.join(Strategy)}"
            if isinstance(value, str) and value in list(Strategy):
                return Strategy(value)
        case Decimal():
            wanted = "a number from 0 to 1"
            with suppress(InvalidOperation):
                number = Decimal(str(value))
                if not isinstance(value, bool) and number.is_finite() and 0 <= number <= 1:
                    return number
        case _:
            wanted = f"a whole number from 0 to {MOST}"
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST:
                return value
    raise _refused(key, value, f"it must be {wanted}")


def _refused(key: str, value: object, why: str) -> ValueError:
    return ValueError(f"{key} = {reprlib.repr(value)}: {why}.")


YIELD: Final = "yield"
RUN_FINISHED: Final = "run_finished"  # the alert that a run which a loop started is over
CHAT_MESSAGE: Final = "chat_message"  # the alert that a person wrote to the agent
VALUE_CHARS: Final = 200
READ_ONLY_STEPS: Final = 8
SHORT_SIGNATURE: Final = 16
CYCLES: Final = (2, 3)  # steps of a circle
MOST_RECENT: Final = 40  # steps that are remembered to find one
SAME_ERRORS_TOLD: Final = 3
MOST_SAME_ERRORS: Final = 6
SILENT_TURNS_TOLD: Final = 2
MOST_SILENT_TURNS: Final = 5
FREE_WAKES: Final = 3
WAKES_FORGOTTEN: Final = 1_800.0  # seconds without a wake
LONGEST_WAKE_PAUSE: Final = 900.0
PREMATURE_RECOVERIES: Final = 2
RECENT_EVENTS: Final = 10  # a failed result among so many last events makes an empty end premature

# --- The loop's own messages ---


class Reason(StrEnum):
    """Reasons for messages of the loop. The values are stored in transcripts."""

    MAX_TOKENS_RECOVERY = "max_tokens_recovery"
    PREMATURE_END = "premature_end"
    READ_ONLY_NUDGE = "read_only_nudge"
    NEAR_BUDGET = "near_budget"
    BUDGET = "budget"
    SAME_ERROR = "same_error"
    MONOLOGUE = "monologue"
    RUNS_OVER = "runs_over"


@dataclass(frozen=True)
class InternalMessage:
    """A user message that no user wrote: sent to the model, hidden from people."""

    reason: Reason
    text: str

    @property
    def data(self) -> dict[str, str]:
        return {"reason": str(self.reason)}


CONTINUE: Final = InternalMessage(
    Reason.MAX_TOKENS_RECOVERY,
    "Your reply was cut off before its end. Write on from the very character at which it stops: "
    "no introduction, no repetition, no summary of what is already there.",
)
CALL_AGAIN: Final = InternalMessage(
    Reason.MAX_TOKENS_RECOVERY,
    "Your reply was cut off in the middle of a tool call. The call could not be read and was not run. "
    "Make it again with shorter arguments, or divide the work among several calls.",
)
TRY_OTHERWISE: Final = InternalMessage(
    Reason.PREMATURE_END,
    "You ended without an answer, and a tool call failed shortly before. Read its error, then try another way; "
    "if there is none, say what failed and what is missing.",
)
STOP_READING: Final = InternalMessage(
    Reason.READ_ONLY_NUDGE,
    f"Your last {READ_ONLY_STEPS} steps only read. If you know enough, act or answer now; otherwise say what you are "
    "still looking for.",
)
WRAP_UP: Final = InternalMessage(
    Reason.NEAR_BUDGET,
    "The budget of this run is nearly used up. Do what matters most now, in few words and few calls, and name what "
    "stays undone.",
)

SAME_ERROR_AGAIN: Final = InternalMessage(
    Reason.SAME_ERROR,
    "Your last calls failed with the same error, one after the other. Trying again will not help: do something else, "
    "or say what is missing.",
)
CALL_YIELD: Final = InternalMessage(
    Reason.MONOLOGUE,
    "Your last turns called nothing, not even yield. Nobody reads what you write there: act by calls of skills, and "
    "end each turn by calling yield.",
)

REFUSAL_ERROR: Final = "The model, or its provider's filter, refused to answer. It was not asked again."
CUT_CALL_ERROR: Final = (
    "The model's tool call was cut off at the length limit again and was not run. "
    "Give the model more output tokens, or a task with shorter arguments."
)


def stuck_error(config: GuardrailsConfig, counters: "Counters") -> str:
    if counters.same_errors >= MOST_SAME_ERRORS:
        return (
            f"The last {MOST_SAME_ERRORS} steps of calls failed with the same error. Look at what they answered, and "
            "whether the agent has what it needs."
        )
    if _cycle(counters.recent, config.max_repeated_tool_steps):
        return (
            f"The model went round in circles: the same few tool calls, more than {config.max_repeated_tool_steps} "
            "times over (max_repeated_tool_steps). They were not run again. Look at what they answered."
        )
    return (
        f"The model went on asking for the same tool calls. They may run {config.max_repeated_tool_steps} times in a "
        "row (max_repeated_tool_steps) and were not run again. Look at what they answered."
    )


def budget_line(remaining_usd: Decimal | None, remaining_tokens: int | None, steps_left: int | None) -> InternalMessage:
    """Say what is left in one line. A dimension without a limit (None) is not mentioned."""
    money = None if remaining_usd is None else f"{max(remaining_usd, Decimal(0)).normalize():f}"
    tokens, steps = (None if left is None else str(max(left, 0)) for left in (remaining_tokens, steps_left))
    named = {"US dollars": money, "tokens": tokens, "steps": steps}
    parts = [f"{name} {left}" for name, left in named.items() if left is not None]
    return InternalMessage(Reason.BUDGET, f"Left for this run: {', '.join(parts) or 'no limits are set'}.")


# --- Counters: kept between steps ---


@dataclass(frozen=True)
class Counters:
    """Counts of the guardrails so far; the session keeps them as JSON under these names."""

    repeated_tool_steps: int = 0
    last_tool_signature: str = ""
    max_tokens_recovery_count: int = 0
    premature_recovery_count: int = 0
    read_only_steps: int = 0
    nudged: bool = False
    near_budget_warned: bool = False
    worked_ms: int = 0  # in the current run of steps
    recent: tuple[str, ...] = ()  # the signatures of the last steps with calls, cut short
    last_error: str = ""  # the signature of the error with which all calls of the last step failed
    same_errors: int = 0  # steps in a row that failed with it
    silent_turns: int = 0  # turns of a loop in a row without any call, not even `yield`

    @classmethod
    def from_json(cls, kept: object) -> Self:
        """Read stored counters. What is missing or malformed counts as zero."""
        found = dict(kept) if isinstance(kept, Mapping) else {}
        recent = found.get("recent")
        found["recent"] = tuple(map(str, recent)) if isinstance(recent, list) else ()
        names = [field.name for field in fields(cls) if _is_like(found.get(field.name), field.default)]
        return cls(**{name: found[name] for name in names})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "recent": list(self.recent)}

    def awake(self) -> Self:
        """Reset what is counted per stretch: the same read on every wake is no loop."""
        return replace(
            self,
            repeated_tool_steps=0,
            last_tool_signature="",
            max_tokens_recovery_count=0,
            premature_recovery_count=0,
            read_only_steps=0,
            recent=(),
            last_error="",
            same_errors=0,
        )

    def after_message(self, reason: Reason) -> Self:
        """Count an internal message that was sent, if it may be sent only so often."""
        match reason:
            case Reason.MAX_TOKENS_RECOVERY:
                return replace(self, max_tokens_recovery_count=self.max_tokens_recovery_count + 1)
            case Reason.PREMATURE_END:
                return replace(self, premature_recovery_count=self.premature_recovery_count + 1)
            case Reason.READ_ONLY_NUDGE:
                return replace(self, nudged=True)
            case Reason.NEAR_BUDGET:
                return replace(self, near_budget_warned=True)
        return self


def _is_like(value: object, default: object) -> bool:
    return type(value) is type(default) and not (isinstance(value, int) and value < 0)


# --- Before a step ---


def step_limit(config: LoopConfig) -> int:
    return min(config.max_steps, config.max_tool_rounds) if config.max_tool_rounds else config.max_steps


def preflight(*, cancelled: bool, elapsed_seconds: float, step_count: int, config: LoopConfig) -> TerminalReason | None:
    """Return why no further step may begin, or None."""
    if cancelled:
        return TerminalReason.EXTERNAL_HALT
    if config.timeout and elapsed_seconds > config.timeout:
        return TerminalReason.TIMED_OUT
    if step_count >= step_limit(config):
        return TerminalReason.MAX_STEPS
    return None


# --- After a reply ---


class Stop(StrEnum):
    """How the loop goes on after a reply."""

    TOOL_USE = "tool_use"
    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    OUT_OF_TIME = "out_of_time"
    REFUSAL = "refusal"


# The reply was cut off: there is more to come.
CUT_OFF: Final = frozenset({Stop.MAX_TOKENS, Stop.OUT_OF_TIME})


def read_stop(stop_reason: str, *, has_calls: bool, truncated_call: bool) -> Stop:
    """Classify a reply. A refusal or a call that was cut off runs nothing. An unknown reason is an end."""
    if stop_reason == Stop.REFUSAL:
        return Stop.REFUSAL
    cut_off = Stop(stop_reason) if stop_reason in CUT_OFF else None
    if truncated_call:
        return cut_off or Stop.MAX_TOKENS
    if has_calls:
        return Stop.TOOL_USE
    return cut_off or Stop.END_TURN


def may_recover(stop: Stop, counters: Counters, config: GuardrailsConfig) -> bool:
    """Return whether a reply that was cut off may be continued; afterwards such a text is a normal end.

    A slow model is given as many parts as it needs: only its steps are limited.
    """
    return stop == Stop.OUT_OF_TIME or counters.max_tokens_recovery_count < config.max_tokens_recoveries


class Said(Protocol):
    """An entry of a transcript."""

    role: str
    content: str
    reason: str


def runs_over_message(runs: Iterable[tuple[str, str, str]]) -> InternalMessage:
    """Tell of started runs that are over, each by its id, status and result."""
    listed = "; ".join(f"{run}: {status}, {result}" for run, status, result in runs)
    return InternalMessage(
        Reason.RUNS_OVER,
        f"Runs that you started are over: {listed}. run_result shows what came of each. Use it as far as your task "
        "needs it, then give your whole answer.",
    )


def joined(transcript: Sequence[Said]) -> str:
    """Return the last reply with its earlier parts that were cut off and continued.

    A reply that was cut off within a call is not such a part: the model was told to make the call again.
    """
    if not transcript:
        return ""
    *before, last = transcript
    parts, continued = [last.content], False
    for entry in reversed(before):
        if entry.reason:
            continued |= entry.reason == Reason.MAX_TOKENS_RECOVERY and entry.content != CALL_AGAIN.text
        elif continued and entry.role == "assistant":
            parts.append(entry.content)
            continued = False
        else:
            break
    return "".join(reversed(parts))


def premature_end(text: str, *, recent_failed: bool, counters: Counters) -> bool:
    """Return whether an empty end closely follows a failed result, and was not objected to too often."""
    return not text.strip() and recent_failed and counters.premature_recovery_count < PREMATURE_RECOVERIES


def warns_of_budget(
    counters: Counters, config: GuardrailsConfig, *, ledger: Ledger, token_budget: int, total_tokens: int
) -> bool:
    """Return whether little is left of the tokens or the money, and the loop has not said so yet.

    No limit is never near.
    """
    if counters.near_budget_warned:
        return False
    if token_budget and token_budget - total_tokens <= config.reserve_tokens:
        return True
    if ledger.cap is None:
        return False
    return ledger.cap - max(ledger.approved, ledger.exposed) <= ledger.cap * config.reserve_cost_fraction


# --- Before the calls of a reply run ---


def signature(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the same value for the same calls in any order; "" if there is only `yield`."""
    parts = sorted([name, sorted(_pair(*item) for item in given.items())] for name, given in calls if name != YIELD)
    return sha256(json.dumps(parts).encode("ascii")).hexdigest() if parts else ""


def _pair(key: str, value: object) -> list[str]:
    """Cut a text as it is, any other value as canonical JSON; the quotes tell "1" from 1."""
    if isinstance(value, str):
        return [key, json.dumps(value[:VALUE_CHARS])]
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
    return [key, text[:VALUE_CHARS]]


def observe_tool_calls(counters: Counters, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> Counters:
    """Count repetitions of the last calls. Steps without calls, or with only `yield`, are skipped."""
    seen = signature(calls)
    if not seen:
        return counters
    repeated = counters.repeated_tool_steps + 1 if seen == counters.last_tool_signature else 0
    recent = (*counters.recent, seen[:SHORT_SIGNATURE])[-MOST_RECENT:]
    return replace(counters, repeated_tool_steps=repeated, last_tool_signature=seen, recent=recent)


def is_stuck(counters: Counters, config: GuardrailsConfig) -> bool:
    """Return whether the calls of the last steps repeat themselves, alone or in a circle, or keep failing alike."""
    most = config.max_repeated_tool_steps
    if counters.repeated_tool_steps >= most or counters.same_errors >= MOST_SAME_ERRORS:
        return True
    return _cycle(counters.recent, most)


def _cycle(recent: Sequence[str], most: int) -> bool:
    """Return whether the last steps went more than so many times through the same two or three steps: A B A B A B A."""
    for length in CYCLES:
        steps = recent[-(length * most + 1) :]
        is_whole = len(steps) > length * most and len(set(steps)) > 1
        if is_whole and all(one == other for one, other in zip(steps, steps[length:], strict=False)):
            return True
    return False


# --- After the calls of a reply ---


_NUMBERS: Final = re.compile(r"\d+")


def observe_errors(counters: Counters, errors: Sequence[str | None]) -> Counters:
    """Count steps in a row whose calls all failed with the same error, whatever their arguments. None is a success.

    Numbers in it do not count: an id or a time differs each time. A step without calls is skipped.
    """
    if not errors:
        return counters
    alike = {_NUMBERS.sub("#", error)[:VALUE_CHARS] for error in errors if error is not None}
    if None in errors or len(alike) > 1:
        return replace(counters, last_error="", same_errors=0)
    seen = sha256(alike.pop().encode("utf-8", "replace")).hexdigest()[:SHORT_SIGNATURE]
    again = counters.same_errors + 1 if seen == counters.last_error else 1
    return replace(counters, last_error=seen, same_errors=again)


def says_same_error(counters: Counters) -> bool:
    """Return whether to tell the model that it fails with the same error again and again: once in a row."""
    return counters.same_errors == SAME_ERRORS_TOLD


# --- Monologues: turns of a loop that call nothing ---


def observe_turn(counters: Counters, *, has_calls: bool) -> Counters:
    return replace(counters, silent_turns=0 if has_calls else counters.silent_turns + 1)


def monologue_pause(counters: Counters) -> int:
    """Return the seconds for which a loop that only talks is put to sleep: 0 at first, then doubling to an hour."""
    beyond = counters.silent_turns - MOST_SILENT_TURNS
    return 0 if beyond < 0 else min(60 * 2 ** min(beyond, 10), 3_600)


# --- Hysteresis of wakes: a signal that flaps does not wake its agent each time ---


@dataclass(frozen=True)
class Wakes:
    """How often an alert of one name has ended sleeps lately, and when it last did, in seconds."""

    count: int = 0
    last: float = 0.0

    @classmethod
    def from_json(cls, kept: object) -> Self:
        match kept:
            case [int(count), int(last) | float(last)]:
                return cls(count, float(last))
        return cls()

    def to_json(self) -> list[float]:
        return [self.count, self.last]

    def allowed_at(self, now: float) -> float:
        """Return from when it may wake again: a few wakes are free, then they must lie further and further apart."""
        beyond = self.count - FREE_WAKES
        if beyond < 0 or now - self.last >= WAKES_FORGOTTEN or self.last > now:
            return now
        return max(now, self.last + min(60.0 * 2.0 ** min(beyond, 10), LONGEST_WAKE_PAUSE))

    def woke(self, now: float) -> Self:
        is_over = now - self.last >= WAKES_FORGOTTEN
        return replace(self, count=1 if is_over else self.count + 1, last=now)


def observe_reading(counters: Counters, *, read_only: bool) -> Counters:
    """Count consecutive steps whose calls changed nothing; steps without calls are skipped."""
    return replace(counters, read_only_steps=counters.read_only_steps + 1 if read_only else 0)


def needs_nudge(counters: Counters) -> bool:
    return counters.read_only_steps >= READ_ONLY_STEPS and not counters.nudged
