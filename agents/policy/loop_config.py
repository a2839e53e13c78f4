"""What a step loop and its guardrails can be told: names, defaults, and what each value may be. Pure data.

Settings come in layers (the installation, the agent, the trigger); the narrowest wins.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, fields
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final, Self

MOST: Final = 10**12  # every whole number fits its column


class Strategy(StrEnum):
    """What is done when a conversation outgrows the context window; agents.policy.context_window does it."""

    NONE = "none"
    SLIDING_WINDOW = "sliding_window"
    COMPACT = "compact"
    SUMMARIZE = "summarize"


@dataclass(frozen=True)
class GuardrailsConfig:
    """The limits of the guardrails.

    A set of calls runs at most `max_repeated_tool_steps` times in a row. Zero is no way to switch that off: it means
    that no call runs at all. Zero recoveries do mean that none is tried.
    """

    max_tokens_recoveries: int = 2
    max_repeated_tool_steps: int = 3
    reserve_tokens: int = 512
    reserve_cost_fraction: Decimal = Decimal("0.1")

    @classmethod
    def merged(cls, *layers: Mapping[str, object]) -> Self:
        """The defaults, overridden by each layer in turn: name the widest first and the narrowest last."""
        return cls(**_merged(layers, fields(cls)))


@dataclass(frozen=True)
class LoopConfig:
    """How a loop runs. Zero is no limit for time, window, tokens and tool rounds; zero steps are no steps."""

    max_steps: int = 50
    timeout: int = 0  # seconds
    max_retries: int = 3
    streaming: bool = False
    context_window: int = 0
    context_strategy: Strategy = Strategy.SLIDING_WINDOW
    token_budget: int = 0
    max_tool_rounds: int = 0

    @classmethod
    def merged(cls, *layers: Mapping[str, object]) -> Self:
        """The defaults, overridden by each layer in turn: name the widest first and the narrowest last."""
        return cls(**_merged(layers, fields(cls)))


_RENAMED = {"timeout_seconds": "timeout"}  # as it was called; texts and rows that hold it are still read


def _merged(layers: Iterable[Mapping[str, object]], known: Iterable[Field[Any]]) -> dict[str, Any]:
    """Every value of every layer is checked, also one that a narrower layer overrides."""
    rules = {field.name: _RULES[type(field.default)] for field in known}
    merged: dict[str, Any] = {}
    for layer in layers:
        for given, value in layer.items():
            key = _RENAMED.get(given, given)
            if key not in rules:
                raise _refused(key, value, f"there is no such setting; there are {', '.join(rules)}")
            merged[key] = rules[key](key, value)
    return merged


def _refused(key: str, value: object, why: str) -> ValueError:
    return ValueError(f"{key} = {reprlib.repr(value)}: {why}.")


def _whole(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise _refused(key, value, f"it must be a whole number from 0 to {MOST}")
    return value


def _fraction(key: str, value: object) -> Decimal:
    """A number or its text; a float counts as what it is written as."""
    refused = _refused(key, value, "it must be a number from 0 to 1")
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise refused
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise refused from None
    if not number.is_finite() or not 0 <= number <= 1:
        raise refused
    return number


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refused(key, value, "it must be true or false")
    return value


def _strategy(key: str, value: object) -> Strategy:
    if not isinstance(value, str) or value not in list(Strategy):
        raise _refused(key, value, f"it must be one of {', '.join(Strategy)}")
    return Strategy(value)


# By the type of a setting's default.
_RULES: Final[Mapping[type, Callable[[str, object], object]]] = {
    int: _whole,
    bool: _flag,
    Decimal: _fraction,
    Strategy: _strategy,
}
