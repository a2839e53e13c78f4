"""Judges whether a document is of the kind that a playbook is for, by the words that both share.

A memo checked against a playbook for contracts lacks every clause, and a finding for each would say nothing. The
judgement is cautious: with one clause in the playbook's words, or a quarter of its vocabulary, all are checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agents.definitions.playbooks import Position
from agents.providers.offline.text import stems_of
from agents.providers.offline.verdicts import ENOUGH, Matcher, is_phrases_only, requirements_of

# A list of phrases says what a document must mention, not of what kind it is; and few positions say too little.
FEWEST_POSITIONS: Final = 4
SPOKEN_SHARE: Final = 0.2  # of the positions, that a document of another kind may touch
WORDS_SHARE: Final = 0.25  # of the words of the positions, that a document of another kind may hold


@dataclass(frozen=True)
class Shared:
    """What a document has of the words of a playbook's positions."""

    positions: int
    touched: int
    words: int
    found: int


def foreign_to(matcher: Matcher, positions: Sequence[Position]) -> Shared | None:
    """Return what little the document shares with the positions, if it looks like one of another kind."""
    worded = [one for one in positions if not is_phrases_only(one)]
    if len(worded) < FEWEST_POSITIONS:
        return None
    best = [_best_share(matcher, one) for one in worded]
    words = frozenset[str]().union(*(stems_of(f"{one.issue} {one.standard}") for one in worded))
    found = words & matcher.document.index.keys()
    touched = sum(share > 0 for share in best)
    if max(best) >= ENOUGH or touched > SPOKEN_SHARE * len(worded) or len(found) >= WORDS_SHARE * len(words):
        return None
    return Shared(len(worded), touched, len(words), len(found))


def _best_share(matcher: Matcher, position: Position) -> float:
    """The share of the words of the position that the best sentence of the document holds; 0 if none speaks of it."""
    wanted = requirements_of(position.standard or position.issue, issue=position.issue)
    return max((share for one in wanted for share, _ in matcher.candidates(one.stems)), default=0.0)


def with_forbidden_phrase(matcher: Matcher, positions: Sequence[Position]) -> list[Position]:
    """Return the positions one of whose forbidden phrases stands in the document, with these phrases alone."""
    return [
        Position(one.issue, one.severity, must_not_contain=one.must_not_contain)
        for one in positions
        if any(matcher.document.phrase(phrase) for phrase in one.must_not_contain)
    ]
