"""Types of single values in an agent.yaml, and paths into a reading. Pure.

Every check raises `expected`, so that a person reads what to write instead of a library's message.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from agents.exceptions import Invalid
from agents.policy import schedule
from agents.policy.costs import MOST_USD
from agents.policy.guardrails import GuardrailsConfig, LoopConfig

EXPECTED: Final = "expected"
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
SKILL: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
SMALLEST_AMOUNT: Final = Decimal("0.0001")
DAY: Final = 86_400
LONGEST: Final = 365 * DAY
MAX_PATH_STEPS: Final = 32  # of a path
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})
_STEP: Final = re.compile(r"(?s:\A|(?<=.)\.)(?P<key>[^.\[\]]+)|\[(?P<index>-?[0-9]{1,9})\]")
_NOTHING: Final = object()

Place = tuple[str | int, ...]


# --- Checks ---


class Ambiguous(str):
    """A plain word that YAML readers understand differently: `on`, `010`, `.inf`. In quotes it would be text."""

    __slots__ = ()


def expected(what: str, *key: str | int, got: str | None = None) -> PydanticCustomError:
    """Return the error for a value, or for the part of it at `key`. `got` replaces the value in the message."""
    return PydanticCustomError(EXPECTED, "{what}", {"what": what, "key": key, "got": got})


def unknown_key(key: str, known: Iterable[str]) -> PydanticCustomError:
    near = get_close_matches(key, known := list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return expected(f"one of the keys {', '.join(known)}{hint}", got="")


def whole(what: str, *, least: int = 0, most: int | None = None) -> BeforeValidator:
    """A whole number within bounds. `what` is its unit."""
    unit = f"a whole number of {what}"
    bounds = f"{unit}, {least} or more" if most is None else f"{unit} from {least} to {most}"

    def read(value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return value if least <= value and (most is None or value <= most) else None

    return value_of(bounds, read)


def text(most: int, *, what: str = "text", lines: bool = False, needed: bool = True) -> BeforeValidator:
    """Text of at most so many characters; of several lines if `lines`; not empty if `needed`."""
    kind = what if lines else f"{what} on one line"

    def check(value: object) -> str:
        if not isinstance(value, str):
            raise expected(f"{kind}, in quotes" if isinstance(value, int | Decimal) else kind)
        stripped = str(value).strip()
        if needed and not stripped:
            raise expected(f"{kind} that is not empty")
        if len(stripped) > most:
            raise expected(f"{kind} of at most {most} characters, not {len(stripped)}")
        if not lines and len(stripped.splitlines()) > 1:
            raise expected(kind)
        return stripped

    return BeforeValidator(check)


def value_of(what: str, read: Callable[[Any], Any]) -> BeforeValidator:
    """A value that `read` returns in its final form, or None for anything else."""

    def check(value: object) -> object:
        found = read(value)
        if found is None:
            raise expected(what)
        return found

    return BeforeValidator(check)


def matching(pattern: re.Pattern[str], what: str) -> BeforeValidator:
    return value_of(what, lambda value: str(value) if isinstance(value, str) and pattern.fullmatch(value) else None)


def one_of(choices: tuple[str, ...]) -> BeforeValidator:
    what = f"one of {', '.join(choices)}"
    return value_of(what, lambda value: str(value) if isinstance(value, str) and value in choices else None)


def as_flag(value: Any) -> Any:
    """Return `yes`, `on` and the like as true or false; anything else unchanged."""
    if isinstance(value, Ambiguous) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    return value


def _flag(value: object) -> bool | None:
    flag = as_flag(value)
    return flag if isinstance(flag, bool) else None


def _number(value: object) -> Decimal | None:
    number = Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
    return number if number is not None and number.is_finite() else None


def _fraction(value: object) -> Decimal | None:
    number = _number(value)
    return number if number is not None and 0 <= number <= 1 else None


def _amount(value: object) -> Decimal | None:
    number = _number(value)
    if number is None or not 0 <= number <= MOST_USD:
        return None
    return number if number == number.quantize(SMALLEST_AMOUNT) else None


def _clock(value: object) -> str | None:
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    return f"{int(found[1]):02}:{found[2]}" if found else None


def _zone(value: object) -> str | None:
    with suppress(Invalid):
        if isinstance(value, str):
            schedule.validate("0 0 * * *", value)
            return str(value)
    return None


def _free(value: Any, *path: str | int) -> Any:
    """Return a value of any shape as JSON values; ambiguous words are refused."""
    if isinstance(value, Ambiguous):
        raise expected("text in quotes, true, false or a decimal number: without quotes, this word is ambiguous", *path)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _free(item, *path, key) for key, item in value.items()}
    return [_free(item, *path, index) for index, item in enumerate(value)] if isinstance(value, list) else value


def _params(value: object) -> object:
    if not isinstance(value, dict):
        raise expected("a map of names and values")
    return _free(value)


def settings_of(config: type[LoopConfig | GuardrailsConfig]) -> BeforeValidator:
    """Names and single values, which agents.policy.guardrails checks."""
    known = [field.name for field in fields(config)]

    def check(value: object) -> object:
        given = {key: as_flag(item) for key, item in value.items()} if isinstance(value, dict) else {}
        errors: list[InitErrorDetails] = []
        for key, item in given.items():
            try:
                config.merged({key: item})
            except ValueError as error:
                message = str(error)  # `name = value: it must be …`
                is_known = message.partition(" = ")[0] in known
                reason = message.rpartition(": ")[2].removeprefix("it must be ").rstrip(".")
                problem = expected(reason) if is_known else unknown_key(key, known)
                errors.append({"type": problem, "loc": (key,), "input": item})
        if errors:
            raise ValidationError.from_exception_data(config.__name__, errors)
        return _params(given if isinstance(value, dict) else value)

    return BeforeValidator(check)


def listed(what: str, most: int, *, least: int = 0) -> BeforeValidator:
    """A list with a maximum length; its items are checked by their own type."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise expected(f"a list of {what}")
        if len(value) > most:
            raise expected(f"a list of at most {most} {what}, not {len(value)}")
        if len(value) < least:
            raise expected(f"a list of at least {least} {what}")
        return value

    return BeforeValidator(check)


def one_word(word: str) -> BeforeValidator:
    """A word that stands for a list with nothing but that word."""
    return BeforeValidator(lambda value: [word] if value == word else value)


# --- Types ---


Flag = Annotated[bool, value_of("true or false", _flag)]
Fraction = Annotated[Decimal, value_of("a number from 0 to 1", _fraction)]
Amount = Annotated[Decimal, value_of(f"an amount of US dollars from 0 to {MOST_USD}, with at most 4 places", _amount)]
Clock = Annotated[str, value_of('a time from 00:00 to 23:59, such as "08:00"', _clock)]
Zone = Annotated[str, value_of("an IANA time zone, such as Europe/Paris or UTC", _zone)]
Params = Annotated[dict[str, Any], BeforeValidator(_params)]
LoopSettings = Annotated[dict[str, Any], settings_of(LoopConfig)]
GuardrailSettings = Annotated[dict[str, Any], settings_of(GuardrailsConfig)]
Seconds = Annotated[int, whole("seconds", most=LONGEST)]
SomeSeconds = Annotated[int, whole("seconds", least=1, most=LONGEST)]
Name = Annotated[str, matching(NAME, "a name of at most 64 letters, digits, _, . and -")]
SkillName = Annotated[str, matching(SKILL, "the name of a skill: at most 64 lower-case letters, digits and _")]
Model = Annotated[str, text(100, what="the name of a model")]


# --- Paths into a reading: `data.items[0].price` ---
#
# Keys are separated by dots, indexes are in brackets; a negative index counts from the end. A key that contains a dot
# or a bracket cannot be named.


class BadPath(ValueError):
    """The path is not a valid path."""


class PathNotFound(LookupError):
    """The reading has no such part."""


@lru_cache(maxsize=1024)
def path_steps(path: str) -> tuple[str | int, ...]:
    """Return the keys and indexes of a path, in order."""
    steps: list[str | int] = []
    end = 0
    for found in _STEP.finditer(path):
        if found.start() != end:
            break
        steps.append(found["key"] if found["key"] is not None else int(found["index"]))
        end = found.end()
    if end != len(path) or not steps or len(steps) > MAX_PATH_STEPS:
        raise BadPath(
            f"{path!r} is not a path: write at most {MAX_PATH_STEPS} keys and indexes as in data.items[0].price."
        )
    return tuple(steps)


def value_at_path(value: Any, path: str | None) -> Any:
    """Return the part of a value that a path names; without a path, the whole value."""
    if path is None:
        return value
    for number, step in enumerate(steps := path_steps(path), 1):
        value = _inside(value, step)
        if value is _NOTHING:
            raise PathNotFound(f"there is nothing at {path_text(steps[:number])}")
    return value


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
    exists = isinstance(value, list) and -len(value) <= step < len(value)
    return value[step] if exists else _NOTHING


def path_text(steps: Place) -> str:
    """Return a path as people write it: `sensors[0].source.tool`."""
    text = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps)
    return text.removeprefix(".")
