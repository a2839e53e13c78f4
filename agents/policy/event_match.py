"""Which rule an event fits best. Pure: rules and events are plain values, and the first of equals wins.

A rule is a trigger's: what it leaves empty, or writes as `*`, fits anything and adds nothing. What it names has to be
equal, character by character. The more a rule names, the higher it scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agents.enums import EventSeverity

ANYTHING: Final = frozenset({"", "*"})
SOURCE_POINTS: Final = 10
TYPE_POINTS: Final = 5
CATEGORY_POINTS: Final = 3


@dataclass(frozen=True)
class Rule:
    source: str = ""
    event_type: str = ""
    category: str = ""
    min_severity: EventSeverity = EventSeverity.INFO


@dataclass(frozen=True)
class Facts:
    """The fields of an event that a rule can match."""

    source: str = ""
    event_type: str = ""
    category: str = ""
    severity: EventSeverity = EventSeverity.INFO


def specificity(rule: Rule) -> int:
    """Return how much the rule names."""
    named = ((rule.source, SOURCE_POINTS), (rule.event_type, TYPE_POINTS), (rule.category, CATEGORY_POINTS))
    return rule.min_severity.rank + sum(worth for wanted, worth in named if wanted not in ANYTHING)


def score(rule: Rule, event: Facts) -> int | None:
    """Return how closely the rule describes the event; None if it does not fit."""
    if event.severity.rank < rule.min_severity.rank:
        return None
    named = (
        (rule.source, event.source),
        (rule.event_type, event.event_type),
        (rule.category, event.category),
    )
    fits = all(wanted in ANYTHING or wanted == found for wanted, found in named)
    return specificity(rule) if fits else None


def best(rules: Sequence[Rule], event: Facts) -> tuple[int, int] | None:
    """Return the index and score of the best rule, or None; of equals the first."""
    scored = [(place, found) for place, rule in enumerate(rules) if (found := score(rule, event)) is not None]
    return max(scored, key=lambda pair: pair[1], default=None)


def most_specific(rules: Sequence[Rule]) -> int | None:
    """Return the index of the rule that names most, whatever the event, or None; of equals the first."""
    return max(range(len(rules)), key=lambda place: specificity(rules[place]), default=None)
