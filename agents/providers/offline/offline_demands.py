"""What a text demands of a document: its sentences taken apart into weighted words, quantities and a stance."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from agents.providers.offline.offline_quantities import LEAST, MOST, Quantity, compare, quantities
from agents.providers.offline.offline_stance import Stance, stance_of
from agents.providers.offline.offline_words import GENERIC, meaning
from agents.providers.offline.text import split, stems_of, words_of

GENERIC_WEIGHT, ISSUE_WEIGHT = 0.3, 1.5

CLAUSE = re.compile(
    r";\s++|(?:,|(?<!\s))\s++(?:and|but|or)\s++(?=(?:shall|must|may|will|is|are|does|do|has|have|excludes?|waives?|disclaims?)\b)"
    r"|(?:,|(?<!\s))\s++but\s++|,\s++(?:however|provided\s+that|except\s+that|(?:during|in|under|upon|of|for)\s+which)\s++",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![.!?:]\s)(?<=[a-z,]\s)[A-Z][A-Za-z]+(?:\s+[A-Z][A-Za-z]+)*")
_DETERMINED = re.compile(
    r"\b(?:the|this|that|such|each|any|its|their|his|her|our|your|all|said|an?|every|both)\s+$", re.IGNORECASE
)


@dataclass(frozen=True)
class Demand:
    """One thing that a text demands: its words by weight, its quantities, and how it stands to them."""

    text: str
    weights: dict[str, float]
    issue: frozenset[str]
    quantities: tuple[Quantity, ...]
    stance: Stance

    @cached_property
    def total(self) -> float:
        return sum(self.weights.values())

    @cached_property
    def names(self) -> frozenset[str]:
        return names_in(self.text)


def demands(text: str, *, issue: str = "", whole: bool = False) -> list[Demand]:
    """The demands in a text: one for each sentence, or each part of one that has a verb of its own."""
    topic = stems_of(issue) - GENERIC or stems_of(issue)
    parts = [text] if whole else [part for one in split(text) for part in CLAUSE.split(text[one.start : one.end])]
    found: list[list[Demand]] = []
    for part in parts:
        made = _demand(part, topic)
        if found and made.total < 1 and not made.quantities:
            found[-1].append(made)
        else:
            found.append([made])
    return [one for one in (_together(some, topic) for some in found) if one.weights or one.quantities]


def _together(some: list[Demand], topic: frozenset[str]) -> Demand:
    """A demand and the light ones that follow it, read once as one."""
    return some[0] if len(some) == 1 else _demand(" ".join(one.text for one in some if one.text), topic)


def _demand(text: str, topic: frozenset[str]) -> Demand:
    amounts = tuple(quantities(text))
    heavy = topic | {one.unit for one in amounts}
    weights = {key: _weight(key, heavy) for key in sorted(stems_of(text))}
    if weights.keys() <= GENERIC:  # "Net 30" is about what its issue says
        weights |= dict.fromkeys(sorted(topic), ISSUE_WEIGHT)
    return Demand(text.strip(), weights, topic, amounts, stance_of(text))


def _weight(key: str, heavy: frozenset[str]) -> float:
    if key in heavy:
        return ISSUE_WEIGHT
    return GENERIC_WEIGHT if key in GENERIC else 1.0


def names_in(text: str) -> frozenset[str]:
    """Proper names: capitals inside a sentence that no article makes a defined term."""
    found = (
        match
        for match in _NAME.finditer(text)
        if not _DETERMINED.search(text[max(0, match.start() - 8) : match.start()])
    )
    return frozenset(
        key for match in found for word in words_of(match[0]) if (key := meaning(word.text)) and key not in GENERIC
    )


def with_direction(wanted: Quantity, others: Sequence[Quantity]) -> Quantity:
    """The quantity as a limit, if the fallbacks show in which direction one may go from it."""
    orders = {compare(one, wanted) for one in others if one.unit == wanted.unit} - {0}
    if len(orders) != 1:
        return wanted
    return replace(wanted, bound=MOST if orders == {1} else LEAST, inferred=True)
