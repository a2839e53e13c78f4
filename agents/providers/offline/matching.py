"""Finds where a document speaks of what a text demands, and tells whether it says the same. Pure text matching.

Weights are fixed and local: what a sentence counts for never depends on the rest of the document, so added or moved
paragraphs change no verdict.
"""

import heapq
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from agents.providers.offline import offline_stance
from agents.providers.offline.offline_demands import CLAUSE, Demand, names_in
from agents.providers.offline.offline_document import Document
from agents.providers.offline.offline_quantities import EVERY, LEAST, MONEY, MOST, Quantity, compare, quantities
from agents.providers.offline.offline_stance import AFFIRMS, BOTH_PARTIES, FORBIDS, Stance, stance_of
from agents.providers.offline.offline_words import GENERIC, OPPOSITES, meaning
from agents.providers.offline.text import stems_of, words_of

MET, PARTLY, CONFLICTS, ABSENT = "met", "partly", "conflicts", "absent"
ENOUGH = 0.6  # of the weight of the demanded words: the same is said
FEW, ENOUGH_OF_FEW = 3, 0.75  # where few words are demanded, each of them counts for more
RELATED = 0.55  # the sentence speaks of it, whatever the issue is called
ON_ISSUE, ON_ISSUE_WORDS = 0.6, 0.15  # it names the issue, and shares at least some words
CONTEXT_SHARE = 0.8  # what the heading or the neighbours say counts for a little less
RIVAL_WORDS = 0.85
RIVAL = 0.75  # a sentence this near to the best one has to agree as well
CANDIDATES = 12
MUTUAL = meaning("mutual")


@dataclass(frozen=True)
class Outcome:
    """How a document stands to a demand, with the sentence that shows it. `why` is for people."""

    kind: str
    sentence: int = -1
    why: str = ""
    coverage: float = 0.0


class Matcher:
    """Looks up demands in one document. What it works out about a sentence is kept for the next demand."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._amounts: dict[int, list[Quantity]] = {}
        self._words: dict[int, frozenset[str]] = {}

    def look_up(self, demand: Demand) -> Outcome:
        """The document's stand: in conflict if the best place or a rival of it is, else what the best one gives."""
        ranked = self.ranked(demand)
        if not ranked:
            return Outcome(ABSENT)
        enough = ENOUGH_OF_FEW if len(demand.weights.keys() - GENERIC) <= FEW else ENOUGH
        best = ranked[0][0]
        places = [
            place
            for score, place, coverage in ranked
            if score == best or (score >= RIVAL * best and coverage >= RELATED)
        ]
        outcomes = [self._judge(demand, place, enough) for place in places]
        settled = next((one for one in outcomes if one.kind == MET), None)
        refused = next((one for one in outcomes if one.kind == CONFLICTS), None)
        if refused and settled and not self._same_matter(demand, refused, settled):
            refused = None
        return refused or settled or outcomes[0]

    def says(self, demand: Demand, *, enough: float) -> Outcome | None:
        """The first place that says what is demanded, whatever the others say."""
        outcomes = (self._judge(demand, place, enough) for _, place, _ in self.ranked(demand))
        return next((one for one in outcomes if one.kind == MET), None)

    def places(self, topic: str, *, most: int) -> list[int]:
        """The sentences on a topic, in the order of the text; all of them if the topic has no words."""
        keys = self.words(topic)
        if not keys:
            return list(range(len(self.document.sentences)))
        demand = Demand(topic, dict.fromkeys(sorted(keys), 1.0), frozenset(), (), Stance())
        return sorted(place for _, place, coverage in self.ranked(demand, most=most) if coverage >= ENOUGH)

    @staticmethod
    def words(topic: str) -> frozenset[str]:
        return stems_of(topic)

    def _same_matter(self, demand: Demand, refused: Outcome, settled: Outcome) -> bool:
        """A second place that differs counts only if it is about the same side of the contract."""
        found = stance_of(self._text(refused.sentence)).subject
        alike = refused.coverage >= max(ENOUGH, RIVAL_WORDS * settled.coverage)
        return alike and (not demand.stance.subject or found in {"", demand.stance.subject})

    def ranked(self, demand: Demand, *, most: int = CANDIDATES) -> list[tuple[float, int, float]]:
        """(score, sentence, coverage) of the places that speak of it, best first; ties in the order of the text."""
        words: dict[int, float] = {}
        issue: dict[int, float] = {}
        for key in {**demand.weights, **dict.fromkeys(sorted(demand.issue), 0.0)}:
            weight = demand.weights.get(key, 0.0)
            direct = self.document.index.get(key, ())
            context = self.document.context_index.get(key, ())
            held = set(direct)
            for place in direct:
                words[place] = words.get(place, 0.0) + weight
            for place in context:
                if place not in held:
                    words[place] = words.get(place, 0.0) + CONTEXT_SHARE * weight
            if key in demand.issue:
                for place in held.union(context, *(self.document.index.get(other, ()) for other in turned(key))):
                    issue[place] = issue.get(place, 0.0) + 1 / len(demand.issue)
        total = demand.total or 1.0
        rated = (
            (round(weight / total + 0.25 * issue.get(place, 0.0), 6), place, weight / total)
            for place, weight in words.items()
            if not self.document.sentences[place].is_heading and _speaks(weight / total, issue.get(place, 0.0))
        )
        return heapq.nsmallest(most, rated, key=lambda one: (-one[0], one[1]))

    def _text(self, place: int) -> str:
        sentence = self.document.sentences[place]
        return f"{sentence.lead} {self.document.shown(sentence)}" if sentence.lead else self.document.shown(sentence)

    def _judge(self, demand: Demand, place: int, enough: float) -> Outcome:
        text = self._text(place)
        near = self._stems(place)
        others = (self._stems(other) for other in self.document.around(place))
        around = near.union(self.document.context(self.document.sentences[place]), *others)
        held = sum(w if key in near else CONTEXT_SHARE * w for key, w in demand.weights.items() if key in around)
        coverage = held / demand.total if demand.total else 1.0
        clause = self._clause(demand, text)
        stance = stance_of(clause)
        if demand.stance.polarity == FORBIDS and stance.polarity == AFFIRMS and _opposites(demand, near, text):
            return Outcome(MET, place, "", coverage)  # "no unlimited liability" is met by a limited one
        why = (
            self._quantities_differ(demand, place)
            or (offline_stance.conflict(stance, demand.stance) if coverage >= RELATED else "")
            or _names_differ(demand, clause)
            or _opposites(demand, near, text)
        )
        if why:
            return Outcome(CONFLICTS, place, why, coverage)
        lacking = self._lacking(demand, place)
        if lacking:
            return Outcome(PARTLY, place, lacking, coverage)
        if coverage >= enough:
            return Outcome(MET, place, "", coverage)
        missing = [key for key in _shown_words(demand.text) if meaning(key) in demand.weights.keys() - around]
        return Outcome(PARTLY, place, f"it does not speak of: {', '.join(missing[:6])}", coverage)

    def _clause(self, demand: Demand, text: str) -> str:
        """The part of the sentence that shares most with the demand."""
        parts = CLAUSE.split(text)
        shared = [sum(demand.weights.get(key, 0.0) for key in stems_of(part)) for part in parts]
        return parts[shared.index(max(shared))]

    def quantities(self, place: int) -> list[Quantity]:
        if place not in self._amounts:
            self._amounts[place] = quantities(self._text(place))
        return self._amounts[place]

    def _stems(self, place: int) -> frozenset[str]:
        if place not in self._words:
            text = self._text(place)
            # Who writes "each party shall" has written a mutual clause.
            self._words[place] = stems_of(text) | ({MUTUAL} if BOTH_PARTIES.search(text) else set())
        return self._words[place]

    def _quantities_differ(self, demand: Demand, place: int) -> str:
        for wanted in demand.quantities:
            found = nearest(self.quantities(place), wanted)
            if found and (why := beyond(found, wanted)):
                return why
        return ""

    def _lacking(self, demand: Demand, place: int) -> str:
        """The quantity that is demanded and that neither the sentence nor its neighbours state."""
        around = [one for other in self.document.around(place) for one in self.quantities(other)]
        for wanted in demand.quantities:
            if not nearest(self.quantities(place), wanted) and not any(
                one.unit == wanted.unit and not beyond(one, wanted) for one in around
            ):
                return f"it states no figure for {wanted.shown!r}"
        return ""


def _speaks(coverage: float, issue: float) -> bool:
    return coverage >= RELATED or (issue >= ON_ISSUE and coverage >= ON_ISSUE_WORDS)


def nearest(found: Sequence[Quantity], wanted: Quantity) -> Quantity | None:
    """The quantity of the same kind whose surroundings are most like those of the wanted one."""
    kind = wanted.unit.partition(" ")[0] if wanted.unit.startswith(MONEY) else wanted.unit
    same = [one for one in found if one.unit == wanted.unit or (kind == MONEY and one.unit.startswith(MONEY))]
    return max(same, key=lambda one: (len(one.near & wanted.near), one.unit == wanted.unit, -one.start), default=None)


def beyond(found: Quantity, wanted: Quantity) -> str:
    """Why the found quantity does not satisfy the wanted one; empty when it does."""
    if found.unit != wanted.unit:
        return f"{found.shown!r} is in another currency than {wanted.shown!r}"
    order = compare(found, wanted)
    if wanted.inferred:
        found = replace(found, bound="")
    if wanted.bound == MOST and (order > 0 or (found.bound == LEAST and found.unit != EVERY)):
        return f"{found.shown!r} is more than {wanted.shown!r}" if order > 0 else f"{found.shown!r} is only a minimum"
    if wanted.bound == LEAST and (order < 0 or found.bound == MOST):
        return f"{found.shown!r} is less than {wanted.shown!r}" if order < 0 else f"{found.shown!r} is only a maximum"
    return f"{found.shown!r} differs from {wanted.shown!r}" if order and not wanted.bound else ""


def _names_differ(demand: Demand, clause: str) -> str:
    missing = demand.names - stems_of(clause)
    instead = names_in(clause) - stems_of(demand.text)
    if missing and instead:
        return f"it names {_written(clause, instead)} where {_written(demand.text, missing)} is asked for"
    return ""


def _opposites(demand: Demand, near: frozenset[str], text: str) -> str:
    for key in sorted((demand.weights.keys() | demand.issue) - near):
        if clash := turned(key) & near - demand.weights.keys():
            return f"it says {_written(text, clash)} where {_written(demand.text, {key}) or key} is asked for"
    return ""


def _written(text: str, keys: Set[str]) -> str:
    """The words of a text that have the given meanings, as they are written there."""
    words = (text[word.start : word.end] for word in words_of(text) if meaning(word.text) in keys)
    return " ".join(dict.fromkeys(words))


def turned(key: str) -> set[str]:
    """The words that say the opposite of a word."""
    return OPPOSITES.get(key, set()) | {f"un{key}", f"non{key}", key.removeprefix("un"), key.removeprefix("non")} - {
        key
    }


def _shown_words(text: str) -> list[str]:
    return list(dict.fromkeys(word.text for word in words_of(text)))
