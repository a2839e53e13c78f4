"""Approval rules: which calls of skills are allowed, need a person, or are denied. Pure.

A rule may name an agent, a skill, conditions on arguments, a cost and destinations; all that it names must fit a call.
What cannot be judged, such as a number that is none, counts against the call: it fits a rule that asks or denies, and
not one that allows. Of several rules that fit, the strictest counts. No rule allows what always needs a person.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import unquote

import idna

from agents.enums import RuleEffect
from agents.policy.consent import plain_text, texts_in

MAX_CONDITIONS: Final = 10
MAX_DESTINATIONS: Final = 50
VALUE_CHARS: Final = 500
_PATH: Final = re.compile(r"[^\s.\[\]]{1,64}(?:\.[^\s.\[\]]{1,64}){0,5}")
_HOST: Final = re.compile(r"(?:[\w-]{1,63}\.)*[\w-]{1,63}")
# Where an address begins: after @ or //, and every word with dots. Each is looked for by itself: they overlap.
_ADDRESSES: Final = (
    re.compile(r"@[^\s@<>,;\"'`(){}|]+"),
    re.compile(r"//[^\s<>\"'`]+"),
    re.compile(r"(?<![\w-])[\w-]+(?:\.[\w-]+)+"),
)
_END: Final = re.compile(r"[/\\?#\s,;|]")  # of the host in an address
_DOTS: Final = str.maketrans("\u3002\uff0e\uff61", "...")
_STRICTEST: Final = {RuleEffect.ALLOW: 0, RuleEffect.ASK: 1, RuleEffect.DENY: 2}


def _number(value: Any) -> Decimal:
    return Decimal(str(value).strip())


def _same(given: Any, wanted: Any) -> bool:
    try:
        return _number(given) == _number(wanted)
    except InvalidOperation:
        return bool(given == wanted)


# The operators of a condition: in words, and whether a value of the call is so. One that cannot be judged raises.
OPERATORS: Final[Mapping[str, tuple[str, Callable[[str, str], bool]]]] = {
    "is": ("is", _same),
    "is_not": ("is not", lambda given, wanted: not _same(given, wanted)),
    "contains": ("contains", lambda given, wanted: wanted in given),
    "starts_with": ("starts with", str.startswith),
    "ends_with": ("ends with", str.endswith),
    "above": ("is above", lambda given, wanted: _number(given) > _number(wanted)),
    "below": ("is below", lambda given, wanted: _number(given) < _number(wanted)),
}


@dataclass(frozen=True)
class Condition:
    """A condition on one argument, or on one inside it: `amount`, `order.total`."""

    argument: str
    operator: str
    value: str

    def __str__(self) -> str:
        value = self.value or '""'
        return f"{self.argument} {OPERATORS[self.operator][0]} {value}"


@dataclass(frozen=True)
class Rule:
    """One rule. A field that is empty fits every call."""

    effect: RuleEffect
    role: str = ""
    agent: str = ""
    skill: str = ""
    conditions: tuple[Condition, ...] = ()
    min_cost_usd: Decimal | None = None
    destinations: tuple[str, ...] = ()
    id: str = ""
    name: str = ""
    version: int = 0


@dataclass(frozen=True)
class Facts:
    """The facts of a call by which rules judge. `addresses` names the arguments that hold an address."""

    agent: str
    skill: str
    arguments: Mapping[str, Any]
    cost_usd: Decimal
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The strictest effect of the rules that fit, those rules, and the roles that have to decide, if it asks."""

    effect: RuleEffect
    rules: tuple[Rule, ...]

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(sorted({rule.role for rule in self.rules if rule.role}))


def judged(rules: Iterable[Rule], facts: Facts) -> Verdict | None:
    """Return what the rules say about a call; None if none of them fits."""
    fitting = [rule for rule in rules if fits(rule, facts)]
    if not fitting:
        return None
    effect = max((rule.effect for rule in fitting), key=_STRICTEST.__getitem__)
    return Verdict(effect, tuple(rule for rule in fitting if rule.effect == effect))


def fits(rule: Rule, facts: Facts) -> bool:
    return (
        rule.agent in {"", facts.agent}
        and rule.skill in {"", facts.skill}
        and (rule.min_cost_usd is None or facts.cost_usd >= rule.min_cost_usd)
        and all(_is_met(condition, rule.effect, facts.arguments) for condition in rule.conditions)
        and (not rule.destinations or _goes_there(rule, facts))
    )


def _is_met(condition: Condition, effect: RuleEffect, arguments: Mapping[str, Any]) -> bool:
    value: Any = arguments
    try:
        for name in condition.argument.split("."):
            value = value[int(name)] if isinstance(value, list) else value[name]
        # What allows is compared exactly, what asks or denies by what it reads like; "is not" the other way round.
        is_exact = (effect == RuleEffect.ALLOW) != (condition.operator == "is_not")
        given, wanted = (_text(one, exact=is_exact) for one in (value, condition.value))
        return OPERATORS[condition.operator][1](given, wanted)
    except (LookupError, TypeError, ValueError, InvalidOperation):
        return effect != RuleEffect.ALLOW


def _text(value: Any, *, exact: bool) -> str:
    if isinstance(value, Mapping | list):
        raise TypeError("only single values are compared")
    return str(value).strip() if exact else plain_text(str(value)).strip().casefold()


# --- Destinations ---


def _goes_there(rule: Rule, facts: Facts) -> bool:
    """A rule that allows holds for calls that go there only; any other for calls that go there, too."""
    found = [_is_listed(host, rule.destinations) for host in hosts_of(facts)]
    return bool(found) and all(found) if rule.effect == RuleEffect.ALLOW else any(found)


def hosts_of(facts: Facts) -> set[str]:
    """Return the hosts that a call names: of all addresses in its texts, and in arguments that hold an address."""
    found = set()
    for text in texts_in(facts.arguments):
        read = text.translate(_DOTS)
        for form in {read, unquote(read)} if "%" in read else {read}:
            found |= {_host(address) for pattern in _ADDRESSES for address in pattern.findall(form)}
    for value in (facts.arguments[name] for name in facts.addresses if facts.arguments.get(name) is not None):
        found |= {_host(text.translate(_DOTS)) if len(text.split()) == 1 else text for text in texts_in(value)}
    return found - {""}


def _is_listed(host: str, destinations: Iterable[str]) -> bool:
    return any(host == one or host.endswith(f".{one}") for one in destinations)


def _host(text: str) -> str:
    """Return the host of an address in one form; a text that names none as it is."""
    address = _END.split(text.strip().lower().rpartition("//")[2], maxsplit=1)[0]
    host = address.rpartition("@")[2].partition(":")[0].strip("[]()!*.")
    try:
        return idna.encode(host, uts46=True).decode().rstrip(".")
    except (idna.IDNAError, UnicodeError):
        return host


# --- What a person writes ---


def condition_problem(condition: Condition) -> tuple[str, str] | None:
    """Return which part of a condition is wrong, and why; None if it is well."""
    if condition.operator not in OPERATORS:
        return "operator", f"{condition.operator} is no operator; there are {', '.join(OPERATORS)}."
    if not _PATH.fullmatch(condition.argument):
        why = f"{condition.argument!r} is no argument: write a name, or names with dots, as in order.total."
        return "argument", why
    if len(condition.value) > VALUE_CHARS:
        return "value", f"A value has at most {VALUE_CHARS} characters."
    if condition.operator in {"above", "below"} and not _is_number(condition.value):
        why = f"{condition.value!r} is no number: {condition.argument} {condition.operator} needs one."
        return "value", why
    return None


def rule_problem(rule: Rule) -> str:
    """Return why a rule cannot be used, in words; "" if it can."""
    if rule.role and rule.effect != RuleEffect.ASK:
        return "Only a rule that asks names a role."
    if rule.effect == RuleEffect.ALLOW and not rule.skill:
        return "A rule that allows has to name a skill."
    if len(rule.conditions) > MAX_CONDITIONS:
        return f"A rule has at most {MAX_CONDITIONS} conditions."
    for condition in rule.conditions:
        if wrong := condition_problem(condition):
            return wrong[1]
    if len(rule.destinations) > MAX_DESTINATIONS:
        return f"A rule has at most {MAX_DESTINATIONS} destinations."
    odd = [one for one in rule.destinations if one != _host(one) or not _HOST.fullmatch(one)]
    return f"{odd[0]!r} is no host: write example.org, which stands for its subdomains too." if odd else ""


def _is_number(text: str) -> bool:
    try:
        return _number(text).is_finite()
    except InvalidOperation:
        return False
