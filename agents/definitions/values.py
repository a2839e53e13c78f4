"""Types of single values in an agent.yaml. Pure.

Every check raises `expected`, so that a person reads what to write instead of a library's message. Beside each check
stands the JSON schema of the values that it accepts, for editors.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from agents.exceptions import Invalid
from agents.policy import schedule
from agents.policy.costs import MOST_USD
from agents.policy.guardrails import GuardrailsConfig, LoopConfig

EXPECTED: Final = "expected"
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
SKILL: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# Headers that say where a request goes and where it ends, and those by which a source says that nothing has changed.
OWN_HEADERS: Final = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
        "trailer", "transfer-encoding", "upgrade", "if-none-match", "if-modified-since", "last-event-id",
    }
)  # fmt: skip
HANDLE: Final = "$secret"
HANDLE_FORM: Final = "a secret by its name: {$secret: name}"
SMALLEST_AMOUNT: Final = Decimal("0.0001")
DAY: Final = 86_400
LONGEST: Final = 365 * DAY
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


# --- Checks ---


JsonSchema = dict[str, Any]


@dataclass(frozen=True)
class Check(BeforeValidator):
    """A check of a value, with the JSON schema of what it accepts, made from that of the type."""

    form: Callable[[JsonSchema], JsonSchema] = field(kw_only=True)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, inner: GetJsonSchemaHandler) -> JsonSchema:
        return deepcopy(self.form(inner(schema)))


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


def whole(what: str, *, least: int = 0, most: int | None = None) -> Check:
    """A whole number within bounds. `what` is its unit."""
    unit = f"a whole number of {what}"
    bounds = f"{unit}, {least} or more" if most is None else f"{unit} from {least} to {most}"

    def read(value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return value if least <= value and (most is None or value <= most) else None

    limit = {} if most is None else {"maximum": most}
    return value_of(bounds, read, type="integer", minimum=least, **limit)


def text(most: int, *, what: str = "text", lines: bool = False, needed: bool = True) -> Check:
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

    return Check(check, form=lambda _: {"type": "string", "minLength": int(needed), "maxLength": most})


def value_of(what: str, read: Callable[[Any], Any], **form: Any) -> Check:
    """A value that `read` returns in its final form, or None for anything else. `form` is its JSON schema."""

    def check(value: object) -> object:
        found = read(value)
        if found is None:
            raise expected(what)
        return found

    return Check(check, form=lambda _: form)


def matching(pattern: re.Pattern[str], what: str) -> Check:
    def read(value: object) -> str | None:
        return str(value) if isinstance(value, str) and pattern.fullmatch(value) else None

    return value_of(what, read, type="string", pattern=f"^{pattern.pattern}$")


def one_of(choices: tuple[str, ...]) -> Check:
    def read(value: object) -> str | None:
        return str(value) if isinstance(value, str) and value in choices else None

    return value_of(f"one of {', '.join(choices)}", read, enum=list(choices))


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


def _range(value: object) -> tuple[Decimal, Decimal] | None:
    """Return two numbers, the lower one first."""
    numbers = [_number(one) for one in value] if isinstance(value, list | tuple) else []
    match numbers:
        case [Decimal() as low, Decimal() as high] if low <= high:
            return low, high
    return None


def _limit(value: object) -> Decimal | tuple[Decimal, Decimal] | None:
    return _range(value) or _number(value)


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


def check_with_secrets(given: dict[str, Any], *place: str) -> None:
    """Refuse what is neither text, a number, true, false, nor the handle of a secret."""
    for name, item in given.items():
        if isinstance(item, dict) and not is_handle(item):
            raise expected(HANDLE_FORM, *place, name)
        if not isinstance(item, str | int | float | dict):
            raise expected("text, a number, true, false, or a secret as {$secret: name}", *place, name)


def is_handle(value: object) -> bool:
    """Tell whether a value is the handle of a secret: `{$secret: name}`."""
    return isinstance(value, dict) and value.keys() == {HANDLE} and isinstance(value[HANDLE], str)


def _handle(value: object) -> dict[str, str] | None:
    return {HANDLE: str(value[HANDLE])} if isinstance(value, dict) and is_handle(value) else None


def _headers(value: object) -> object:
    """Headers of a request, as text or as handles."""
    if not isinstance(value, dict):
        raise expected("a map of names and values")
    for name, item in value.items():
        if not HEADER.fullmatch(name) or name.lower() in OWN_HEADERS:
            raise expected("the name of a header that lqops does not set itself", name, got=f'"{name}"')
        if not is_handle(item) and not (isinstance(item, str) and item.isascii() and item.isprintable()):
            raise expected("text in quotes of printable ASCII characters, or {$secret: name}", name)
    return _free(value)


def _setting_form(default: object) -> JsonSchema:
    """Return the JSON schema of a setting of the step loop, which has the type of its default."""
    match default:
        case bool():
            return {"type": "boolean"}
        case Enum():
            return {"enum": [choice.value for choice in type(default)]}
        case Decimal():
            return _PART
    return {"type": "integer", "minimum": 0}


def settings_of(config: type[LoopConfig | GuardrailsConfig]) -> Check:
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

    keys = {setting.name: _setting_form(setting.default) for setting in fields(config)}
    return Check(check, form=lambda _: {"type": "object", "properties": keys, "additionalProperties": False})


def listed(what: str, most: int, *, least: int = 0) -> Check:
    """A list with a maximum length; its items are checked by their own type."""

    def check(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise expected(f"a list of {what}")
        if len(value) > most:
            raise expected(f"a list of at most {most} {what}, not {len(value)}")
        if len(value) < least:
            raise expected(f"a list of at least {least} {what}")
        return value

    return Check(check, form=lambda inner: {**inner, "minItems": least, "maxItems": most})


def one_map() -> Check:
    """A map that stands for a list with nothing but that map."""
    form = lambda inner: {"anyOf": [inner["items"], inner]}  # noqa: E731
    return Check(lambda value: [value] if isinstance(value, dict) else value, form=form)


def one_word(word: str) -> Check:
    """A word that stands for a list with nothing but that word."""
    form = lambda inner: {"anyOf": [{"const": word}, inner]}  # noqa: E731
    return Check(lambda value: [word] if value == word else value, form=form)


# --- Types ---


_PART: Final[JsonSchema] = {"type": "number", "minimum": 0, "maximum": 1}
_PAIR: Final[JsonSchema] = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
_SECRET: Final[JsonSchema] = {
    "type": "object",
    "properties": {HANDLE: {"type": "string"}},
    "required": [HANDLE],
    "additionalProperties": False,
}
_AMOUNT_TEXT: Final = f"an amount of US dollars from 0 to {MOST_USD}, with at most 4 places"
_HEADER_FORM: Final[JsonSchema] = {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, _SECRET]}}
_CLOCK_TEXT: Final = 'a time from 00:00 to 23:59, such as "08:00"'

Flag = Annotated[bool, value_of("true or false", _flag, type="boolean")]
Fraction = Annotated[Decimal, value_of("a number from 0 to 1", _fraction, **_PART)]
Amount = Annotated[Decimal, value_of(_AMOUNT_TEXT, _amount, type="number", minimum=0, maximum=int(MOST_USD))]
Number = Annotated[Decimal, value_of("a number", _number, type="number")]
Range = Annotated[tuple[Decimal, Decimal], value_of("two numbers, the lower one first: [0, 10]", _range, **_PAIR)]
Limit = Annotated[
    Any, value_of("a number or, with between, two numbers: [0, 10]", _limit, anyOf=[{"type": "number"}, _PAIR])
]
Headers = Annotated[dict[str, Any], Check(_headers, form=lambda _: _HEADER_FORM)]
SecretName = Annotated[dict[str, str], value_of(HANDLE_FORM, _handle, **_SECRET)]
Clock = Annotated[str, value_of(_CLOCK_TEXT, _clock, type="string", pattern=f"^{_CLOCK.pattern}$")]
Zone = Annotated[str, value_of("an IANA time zone, such as Europe/Paris or UTC", _zone, type="string")]
Params = Annotated[dict[str, Any], Check(_params, form=lambda _: {"type": "object"})]
LoopSettings = Annotated[dict[str, Any], settings_of(LoopConfig)]
GuardrailSettings = Annotated[dict[str, Any], settings_of(GuardrailsConfig)]
Seconds = Annotated[int, whole("seconds", most=LONGEST)]
SomeSeconds = Annotated[int, whole("seconds", least=1, most=LONGEST)]
Name = Annotated[str, matching(NAME, "a name of at most 64 letters, digits, _, . and -")]
SkillName = Annotated[str, matching(SKILL, "the name of a skill: at most 64 lower-case letters, digits and _")]
Model = Annotated[str, text(100, what="the name of a model")]
