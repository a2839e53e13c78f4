"""What single values of an agent.yaml may be, each with the words in which a refusal names it. Pure.

Every check raises `expected`, so that a person reads what to write instead of what a library missed.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from agents.exceptions import Invalid
from agents.policy import schedule
from agents.policy.costs import MOST_USD

EXPECTED: Final = "expected"
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
SKILL: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
PLACES: Final = Decimal("0.0001")
DAY: Final = 86_400
LONGEST: Final = 365 * DAY
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


class Unclear(str):
    """A plain word that YAML readers take for different things: `on`, `010`, `.inf`. Quotes would make it text."""

    __slots__ = ()


def expected(what: str, *key: str | int) -> PydanticCustomError:
    """The refusal of a value, or of what stands below it at `key`."""
    return PydanticCustomError(EXPECTED, "{what}", {"what": what, "key": key})


def whole(what: str = "", *, least: int = 0, most: int | None = None) -> BeforeValidator:
    unit = f"a whole number{f' of {what}' if what else ''}"
    range_ = f"{unit}, {least} or more" if most is None else f"{unit} from {least} to {most}"

    def check(value: object) -> int:
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if not fits or not isinstance(value, int) or (most is not None and value > most):
            raise expected(range_)
        return value

    return BeforeValidator(check)


def text(most: int, *, what: str = "text", lines: bool = False, needed: bool = True) -> BeforeValidator:
    kind = what if lines else f"{what} on one line"

    def check(value: object) -> str:
        if not isinstance(value, str):
            raise expected(f"{kind}, in quotes" if isinstance(value, int | Decimal) else kind)
        said = str(value).strip()
        if needed and not said:
            raise expected(f"{kind} that is not empty")
        if len(said) > most:
            raise expected(f"{kind} of at most {most} characters, not {len(said)}")
        if not lines and len(said.splitlines()) > 1:
            raise expected(kind)
        return said

    return BeforeValidator(check)


def matching(pattern: re.Pattern[str], what: str) -> BeforeValidator:
    def check(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise expected(what)
        return str(value)

    return BeforeValidator(check)


def one_of(choices: tuple[str, ...]) -> BeforeValidator:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise expected(f"one of {', '.join(choices)}")
        return str(value)

    return BeforeValidator(check)


def truth(value: Any) -> Any:
    """`yes`, `on` and their like as true or false; whatever else as it is."""
    if isinstance(value, Unclear) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    return value


def _flag(value: object) -> bool:
    said = truth(value)
    if not isinstance(said, bool):
        raise expected("true or false")
    return said


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return Decimal(value)


def _fraction(value: object) -> Decimal:
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        raise expected("a number from 0 to 1")
    return number


def _amount(value: object) -> Decimal:
    number = _number(value)
    if number is None or not 0 <= number <= MOST_USD or number != number.quantize(PLACES):
        raise expected("an amount of US dollars, 0 or more, with at most 4 places")
    return number


def _clock(value: object) -> str:
    found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise expected('a time from 00:00 to 23:59, such as "08:00"')
    return f"{int(found[1]):02}:{found[2]}"


def _zone(value: object) -> str:
    try:
        if isinstance(value, str):
            schedule.validate("0 0 * * *", value)
            return str(value)
    except Invalid:
        pass
    raise expected("an IANA time zone, such as Europe/Paris or UTC")


def _free(value: Any, *path: str | int) -> Any:
    """A value of any shape as JSON holds it; words that could mean something else are refused."""
    if isinstance(value, Unclear):
        raise expected("text in quotes, true, false or a decimal number: plain, this word is read differently", *path)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _free(item, *path, key) for key, item in value.items()}
    return [_free(item, *path, place) for place, item in enumerate(value)] if isinstance(value, list) else value


def _params(value: object) -> object:
    if not isinstance(value, dict):
        raise expected("a map of names and values")
    return _free(value)


def _settings(value: object) -> object:
    """Names and single values, which are judged by agents.policy.guardrails."""
    return _params({key: truth(item) for key, item in value.items()} if isinstance(value, dict) else value)


def listed(what: str, most: int) -> Callable[[object], object]:
    """A list that may not grow without end; what stands in it is checked by its own type."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise expected(f"a list of {what}")
        if len(value) > most:
            raise expected(f"a list of at most {most} {what}, not {len(value)}")
        return value

    return check


Flag = Annotated[bool, BeforeValidator(_flag)]
Fraction = Annotated[Decimal, BeforeValidator(_fraction)]
Amount = Annotated[Decimal, BeforeValidator(_amount)]
Clock = Annotated[str, BeforeValidator(_clock)]
Zone = Annotated[str, BeforeValidator(_zone)]
Params = Annotated[dict[str, Any], BeforeValidator(_params)]
Settings = Annotated[dict[str, Any], BeforeValidator(_settings)]
Seconds = Annotated[int, whole("seconds", most=LONGEST)]
SomeSeconds = Annotated[int, whole("seconds", least=1, most=LONGEST)]
Name = Annotated[str, matching(NAME, "a name of at most 64 letters, digits, _, . and -")]
SkillName = Annotated[str, matching(SKILL, "the name of a skill: at most 64 small letters, digits and _")]
Model = Annotated[str, text(100, what="the name of a model")]


Place = tuple[str | int, ...]


# Which part of a reading a field gets: `data.items[0].price`. Keys between dots, places in brackets. Pure.
#
# A place counts from the front, or, below zero, from the back. A key that holds a dot or a bracket cannot be named.


MOST_STEPS: Final = 32
_NOTHING: Final = object()
_STEP: Final = re.compile(r"(?s:\A|(?<=.)\.)(?P<key>[^.\[\]]+)|\[(?P<place>-?[0-9]{1,9})\]")


class BadPath(ValueError):
    """The path is not written as one."""


class NothingThere(LookupError):
    """The reading has no such part."""


@lru_cache(maxsize=1024)
def steps_of(path: str) -> tuple[str | int, ...]:
    """The keys and places of a path, in order."""
    steps: list[str | int] = []
    end = 0
    for found in _STEP.finditer(path):
        if found.start() != end:
            break
        steps.append(found["key"] if found["key"] is not None else int(found["place"]))
        end = found.end()
    if end != len(path) or not steps or len(steps) > MOST_STEPS:
        raise BadPath(f"{path!r} is no path: write keys and places as in data.items[0].price, at most {MOST_STEPS}.")
    return tuple(steps)


def part_of(value: Any, path: str | None) -> Any:
    """The part that the path names; the whole without one. What is not there raises NothingThere, and says where."""
    if path is None:
        return value
    for number, step in enumerate(steps := steps_of(path), 1):
        value = _inside(value, step)
        if value is _NOTHING:
            raise NothingThere(f"there is nothing at {shown(steps[:number])}")
    return value


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
    fits = isinstance(value, list) and -len(value) <= step < len(value)
    return value[step] if fits else _NOTHING


def shown(steps: tuple[str | int, ...]) -> str:
    text = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps)
    return text.removeprefix(".")
