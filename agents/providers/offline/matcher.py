"""Finds where a document speaks of what a text requires, and whether it says the same. Pure text matching.

A sentence is held against a requirement by the words it covers, then by its figures, then by negation, role, names and
opposites. Weights are fixed: added or moved paragraphs change no outcome.
"""

import heapq
import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from agents.providers.offline.polarity import AFFIRMS, FORBIDS, Commitment, commitment_of, contradiction, is_mutual
from agents.providers.offline.quantities import Quantity, difference, nearest, quantities
from agents.providers.offline.sentences import Document, split_sentences
from agents.providers.offline.words import GENERIC, OPPOSITES, meaning, meanings_of, words_of

MET, PARTLY, CONFLICTS, ABSENT = "met", "partly", "conflicts", "absent"
ENOUGH = 0.6  # share of the required words (by weight) that says the same
_ENOUGH_OF_FEW, _FEW = 0.75, 3  # where few words are required, each of them counts for more
_RELATED = 0.55  # share that makes a sentence speak of it, whatever the issue is called
_ON_ISSUE, _RELATED_ON_ISSUE = 0.6, 0.15  # less is enough when it names this share of the issue's words
_ALIKE = 0.85  # a sentence that covers this share of what the best one covers must agree as well
_GENERIC_WEIGHT, _ISSUE_WEIGHT = 0.3, 1.5
_CANDIDATES = 12
_MUTUAL = meaning("mutual")

CLAUSE_END = re.compile(
    r";\s++|(?:,|(?<!\s))\s++(?:and|but|or)\s++"
    r"(?=(?:shall|must|may|will|is|are|does|do|has|have|excludes?|waives?|disclaims?)\b)"
    r"|(?:,|(?<!\s))\s++but\s++|,\s++(?:however|provided\s+that|except\s+that|(?:during|in|under|upon|of|for)\s+which)\s++",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![.!?:]\s)(?<=[a-z,]\s)[A-Z][A-Za-z]+(?:\s+[A-Z][A-Za-z]+)*")
_DETERMINED = re.compile(
    r"\b(?:the|this|that|such|each|any|its|their|his|her|our|your|all|said|an?|every|both)\s+$", re.IGNORECASE
)


@dataclass(frozen=True)
class Requirement:
    """One thing that a text requires: its words by weight, its quantities, and what it commits to."""

    text: str
    weights: dict[str, float]
    issue: frozenset[str] = frozenset()
    quantities: tuple[Quantity, ...] = ()
    commitment: Commitment = field(default_factory=Commitment)

    @cached_property
    def total(self) -> float:
        return sum(self.weights.values())

    def with_quantities(self, change: Callable[[Quantity], Quantity]) -> "Requirement":
        return replace(self, quantities=tuple(map(change, self.quantities)))


def requirements_of(text: str, *, issue: str = "", whole: bool = False) -> list[Requirement]:
    """Return one requirement for each sentence, or each clause with a verb of its own.

    Clauses that say next to nothing ("and so on") are left out, unless there are only such.
    """
    topic = meanings_of(issue) - GENERIC or meanings_of(issue)
    parts = [text]
    if not whole:
        parts = [part for one in split_sentences(text) for part in CLAUSE_END.split(text[one.start : one.end])]
    read = [one for one in (_requirement(part, topic) for part in parts) if one.weights or one.quantities]
    return [one for one in read if one.total >= 1 or one.quantities] or read[:1]


def _requirement(text: str, topic: frozenset[str]) -> Requirement:
    amounts = tuple(quantities(text))
    heavy = topic.union(one.unit for one in amounts)
    weights = {
        key: _ISSUE_WEIGHT if key in heavy else _GENERIC_WEIGHT if key in GENERIC else 1.0
        for key in sorted(meanings_of(text))
    }
    if weights.keys() <= GENERIC:  # "Net 30" is about what its issue says
        weights |= dict.fromkeys(sorted(topic), _ISSUE_WEIGHT)
    return Requirement(text.strip(), weights, topic, amounts, commitment_of(text))


@dataclass(frozen=True)
class Outcome:
    """How a document stands to a requirement, with the number of the sentence that shows it, and why."""

    kind: str
    sentence: int = -1
    why: str = ""
    coverage: float = 0.0


class Candidate(NamedTuple):
    """A sentence that speaks of a requirement, and the share of the required words that it covers."""

    score: float
    sentence: int
    coverage: float


class Matcher:
    """Looks up requirements in one document."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def look_up(self, wanted: Requirement) -> Outcome:
        """Return the outcome of the best sentence, or a conflict with it or with one much like it."""
        candidates = self.candidates(wanted)
        if not candidates:
            return Outcome(ABSENT)
        enough = _ENOUGH_OF_FEW if len(wanted.weights.keys() - GENERIC) <= _FEW else ENOUGH
        best = candidates[0]
        alike = max(ENOUGH, _ALIKE * best.coverage)
        outcomes = [
            self._judge(wanted, one, enough) for one in candidates if one.score == best.score or one.coverage >= alike
        ]
        by_kind = {one.kind: one for one in reversed(outcomes)}
        return by_kind.get(CONFLICTS) or by_kind.get(MET) or outcomes[0]

    def says(self, wanted: Requirement) -> Outcome | None:
        """Return the first sentence that says what is required, whatever the others say."""
        outcomes = (self._judge(wanted, one, ENOUGH) for one in self.candidates(wanted))
        return next((one for one in outcomes if one.kind == MET), None)

    def sentences_on(self, topic: str, *, most: int) -> list[int]:
        """Return the sentences on a topic, in the order of the text; all of them if the topic has no words."""
        keys = meanings_of(topic)
        if not keys:
            return list(range(len(self.document.sentences)))
        found = self.candidates(Requirement(topic, dict.fromkeys(sorted(keys), 1.0)), most=most)
        return sorted(one.sentence for one in found if one.coverage >= ENOUGH)

    def quantities(self, sentence: int) -> list[Quantity]:
        return quantities(self.document.sentence_text(sentence))

    def candidates(self, wanted: Requirement, *, most: int = _CANDIDATES) -> list[Candidate]:
        """Return the sentences that speak of the requirement, best first; ties in the order of the text."""
        index = self.document.index
        covered: dict[int, float] = {}
        on_issue: dict[int, float] = {}
        for key, weight in wanted.weights.items():
            for sentence, share in index.get(key, {}).items():
                covered[sentence] = covered.get(sentence, 0.0) + share * weight
        for key in sorted(wanted.issue):
            for sentence in set().union(*(index.get(one, {}) for one in (key, *OPPOSITES.get(key, ())))):
                on_issue[sentence] = on_issue.get(sentence, 0.0) + 1 / len(wanted.issue)
        total = wanted.total or 1.0
        found = (
            Candidate(round(weight / total + 0.25 * on_issue.get(sentence, 0.0), 6), sentence, weight / total)
            for sentence, weight in covered.items()
            if weight / total >= (_RELATED_ON_ISSUE if on_issue.get(sentence, 0.0) >= _ON_ISSUE else _RELATED)
        )
        spoken = (one for one in found if not self.document.sentences[one.sentence].is_heading)
        return heapq.nsmallest(most, spoken, key=lambda one: (-one.score, one.sentence))

    def _judge(self, wanted: Requirement, candidate: Candidate, enough: float) -> Outcome:
        text = self.document.sentence_text(candidate.sentence)
        meanings = meanings_of(text)
        coverage = candidate.coverage
        if is_mutual(text) and _MUTUAL in wanted.weights.keys() - meanings:  # "each party shall" is a mutual clause
            coverage += wanted.weights[_MUTUAL] / wanted.total
        clause = _closest_clause(wanted, text)
        commitment = commitment_of(clause)
        opposite = _opposite(wanted, meanings, text)
        if opposite and wanted.commitment.polarity == FORBIDS and commitment.polarity == AFFIRMS:
            return Outcome(MET, candidate.sentence, "", coverage)  # "no unlimited liability" is met by a limited one
        amounts = quantities(text)
        conflict = (
            _other_figure(wanted, amounts)
            or (contradiction(commitment, wanted.commitment) if coverage >= _RELATED else "")
            or _other_name(wanted, clause)
            or opposite
        )
        if conflict:
            return Outcome(CONFLICTS, candidate.sentence, conflict, coverage)
        lacking = next((one for one in wanted.quantities if not nearest(amounts, one)), None)
        if lacking:
            return Outcome(PARTLY, candidate.sentence, f"it states no figure for {lacking.text!r}", coverage)
        if coverage >= enough:
            return Outcome(MET, candidate.sentence, "", coverage)
        missing = [
            word.text for word in words_of(wanted.text) if meaning(word.text) in wanted.weights.keys() - meanings
        ]
        why = f"it does not speak of: {', '.join(list(dict.fromkeys(missing))[:6])}"
        return Outcome(PARTLY, candidate.sentence, why, coverage)


def _closest_clause(wanted: Requirement, text: str) -> str:
    return max(CLAUSE_END.split(text), key=lambda part: sum(wanted.weights.get(key, 0.0) for key in meanings_of(part)))


def _other_figure(wanted: Requirement, amounts: list[Quantity]) -> str:
    pairs = ((nearest(amounts, one), one) for one in wanted.quantities)
    return next((why for found, one in pairs if found and (why := difference(found, one))), "")


def _other_name(wanted: Requirement, clause: str) -> str:
    missing = names_in(wanted.text) - meanings_of(clause)
    instead = names_in(clause) - meanings_of(wanted.text)
    if missing and instead:
        return f"it names {_written(clause, instead)} where {_written(wanted.text, missing)} is asked for"
    return ""


def names_in(text: str) -> frozenset[str]:
    """Return the proper names: capitals inside a sentence that no article makes a defined term."""
    names = (
        match[0]
        for match in _NAME.finditer(text)
        if not _DETERMINED.search(text[max(0, match.start() - 8) : match.start()])
    )
    return meanings_of(" ".join(names)) - GENERIC


def _opposite(wanted: Requirement, meanings: frozenset[str], text: str) -> str:
    for key in sorted((wanted.weights.keys() | wanted.issue) - meanings):
        if clash := OPPOSITES.get(key, set()) & meanings - wanted.weights.keys():
            return f"it says {_written(text, clash)} where {_written(wanted.text, {key}) or key} is asked for"
    return ""


def _written(text: str, keys: Set[str]) -> str:
    """The words of a text that have the given meanings, as they are written there."""
    words = (text[word.start : word.end] for word in words_of(text) if meaning(word.text) in keys)
    return " ".join(dict.fromkeys(words))
