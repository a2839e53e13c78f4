"""Finds where a document speaks of what a text demands, and tells whether it says the same. Pure text matching.

Weights are fixed and local: what a sentence counts for never depends on the rest of the document, so added or moved
paragraphs change no verdict.
"""

import heapq
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from agents.definitions.playbooks import Position, Rule
from agents.providers.offline.text import (
    EVERY,
    GENERIC,
    LEAST,
    MONEY,
    MOST,
    OPPOSITE_ROLE,
    OPPOSITES,
    Document,
    Quantity,
    compare,
    meaning,
    normal,
    quantities,
    split,
    stems_of,
    words_of,
)

# --- Whether a clause demands, allows or forbids: negation, conditions on what is allowed, and modal verbs ---


AFFIRMS, FORBIDS, RESTRICTS = "affirms", "forbids", "restricts"

_I = re.IGNORECASE
# Idioms whose "not" or "without" denies nothing, and bounds, which are compared as quantities.
_IDIOMS = re.compile(
    r"\b(?:neither|no|in\s+no\s+\w+)\b(?:\W+\w+){0,8}?\W+exceed\w*|\bnot\s+(?:be\s+)?limited\s+to|\bwhether\s+or\s+not|\bnot\s+only|\bwithout\s+(?:limitation|prejudice|undue\s+delay|delay|limiting)"
    r"|\b(?:not|never|no|nor)\s+(?:to\s+)?(?:be\s+)?(?:in\s+)?(?:exceed\w*|excess|more|less|fewer|later|longer|greater|higher|lower|"
    r"earlier|sooner|shorter)\b"
    r"|\bunless\s+(?:otherwise|required\s+by)\b|\bno\.\s*\d|(?:\[ \]|\u2610)\s*\w+|\bno\s+doubt\b"
    r"|(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)(?<!\bwere\s)(?<!\bbe\s)\bnot\s+(?:yet\s+)?(?:paid|received|used|covered|listed|included)\b",
    _I,
)
_CONDITION = re.compile(
    r"\b(?:if|where|when|whenever|in\s+case|in\s+the\s+event|to\s+the\s+extent|provided\s+that|as)\b[^,;]*", _I
)
_DENIAL = re.compile(r"\b(?:not|no|never|neither|nor|none|cannot|nobody|nothing)\b|n['\u2019]t\b", _I)
_EXCLUSION = re.compile(
    r"\b(?:is|are|be|been|being)\s+(?:not\s+)?(?:\w+ly\s+)?(?:prohibited|forbidden|excluded|waived|banned|barred|denied|precluded|disabled)\b"
    r"|\b(?:waives?|disclaims?|excludes?|declines?|refuses?|prohibits?|forbids?|refrains?|lacks?)\b",
    _I,
)
_WITH_EXCEPTION = re.compile(r"\b(?:without|unless|except|other\s+than|until|save)\b", _I)
_ONLY = re.compile(
    r"\b(?:only|solely|exclusively)\s+(?:\w+\s+){0,3}?(?:with|upon|on|after|if|where|when|following|subject|by)\b"
    r"|\b(?:requires?|subject\s+to|conditional\s+on)\b(?:\W+\w+){0,8}?\W+(?:consent|approval|permission|authori[sz]ation|agreement)\b",
    _I,
)
_STRONG = re.compile(
    r"\b(?:shall|must|will|(?:is|are|be)\s+(?:\w+ly\s+)?(?:required|obliged|obligated|bound|responsible)|agrees?\s+to|undertakes?|has\s+to"
    r"|have\s+to|needs?\s+to|ensures?|mandatory)\b",
    _I,
)
_WEAK = re.compile(
    r"\b(?<!\d\s)(?:may|can|could|might|should)\b(?!\s+\d)|\b(?:entitled|permitted|allowed|optional(?:ly)?|discretion|voluntar(?:y|ily))\b"
    r"|\bright\s+to\b|\b(?:encouraged|recommended|advised|advisable)\b",
    _I,
)
_EFFORTS = re.compile(
    r"\b(?:efforts?|endeavou?rs?|where\s+(?:possible|practicable|feasible)|aims?\s+to|tr(?:y|ies)\s+to|intends?\s+to|if\s+possible)\b",
    _I,
)
# What follows a question mark is optional, so that a run of them is passed over once and not from each of its marks.
_ANSWER = re.compile(r"\?\W*+(?:(?:\w++\s*+[:.]\s*+)?(?:(?P<yes>yes)|(?P<no>no|none|not|n/a))\b)?", _I)
_SOLELY = re.compile(r"\b(?:solely|exclusively|only)\b", _I)  # "may be used solely as" allows nothing else
_MODAL = re.compile(rf"{_STRONG.pattern}|{_WEAK.pattern}", _I)
_AGENT = re.compile(r"\bby\s+(?:the\s+|its\s+)?([A-Za-z]+)", _I)
BOTH_PARTIES = re.compile(r"\b(?:either|each|both|any|neither|no)\s+part(?:y|ies)\b|\bthe\s+parties\b|\bmutual", _I)


@dataclass(frozen=True)
class Stance:
    """How a clause stands to what it speaks of. `subject` is the role that it binds or entitles, if it names one."""

    polarity: str = AFFIRMS
    optional: bool = False
    efforts: bool = False
    subject: str = ""


def stance_of(clause: str) -> Stance:
    plain = _IDIOMS.sub(" ", clause)
    optional = bool(_WEAK.search(plain)) and not _STRONG.search(plain) and not _SOLELY.search(plain)
    return Stance(_polarity(plain), optional, bool(_EFFORTS.search(plain)), _subject(plain))


def _polarity(plain: str) -> str:
    answers = {found.lastgroup for found in _ANSWER.finditer(plain)}
    if answers - {None}:
        return AFFIRMS if "yes" in answers else FORBIDS
    denial = _DENIAL.search(plain)
    if (denial and _WITH_EXCEPTION.search(plain, denial.end())) or _ONLY.search(plain):
        return RESTRICTS
    bare = _CONDITION.sub(" ", plain)
    return FORBIDS if bool(_DENIAL.search(bare)) != bool(_EXCLUSION.search(bare)) else AFFIRMS


def _subject(plain: str) -> str:
    """Who acts: the role after "by", else the last one before the modal verb, else the first word; none if both do."""
    if BOTH_PARTIES.search(plain):
        return ""
    agent = _AGENT.search(plain)
    if agent and (role := meaning(normal(agent[1]))) in OPPOSITE_ROLE:
        return role
    modal = _MODAL.search(plain)
    before = words_of(plain[: modal.start()])[-12:] if modal else words_of(plain)[:3]
    roles = [meaning(word.text) for word in before]
    return next((role for role in reversed(roles) if role in OPPOSITE_ROLE), "")


def conflict(found: Stance, wanted: Stance) -> str:
    """Why the two cannot stand side by side, in words; empty when they can."""
    reason = _CONFLICTS.get((wanted.polarity, found.polarity), "")
    if reason == _LIMITS_IT and not wanted.optional:  # a duty that arises on a condition is still a duty
        reason = ""
    if not reason and found.subject in OPPOSITE_ROLE.get(wanted.subject, ()):
        reason = "it binds or entitles the other side"
    if not reason and found.efforts and not wanted.efforts:
        reason = "it promises efforts only"
    if not reason and found.optional and not wanted.optional and found.polarity == wanted.polarity == AFFIRMS:
        reason = "it allows what the text to be met demands"
    return reason


_LIMITS_IT = "it sets a condition"
_CONFLICTS = {
    (AFFIRMS, FORBIDS): "it says the opposite (negated)",
    (FORBIDS, AFFIRMS): "it says the opposite (not negated)",
    (FORBIDS, RESTRICTS): "it makes an exception",
    (RESTRICTS, AFFIRMS): "it lacks the condition",
    (AFFIRMS, RESTRICTS): _LIMITS_IT,
}


# What a text demands of a document: its sentences taken apart into weighted words, quantities and a stance.


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
            or (conflict(stance, demand.stance) if coverage >= RELATED else "")
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


# Verdicts of the offline analyst: each position of a playbook and each rule of a skill against one document.


MEETS, FALLBACK, DEVIATES, MISSING = "meets", "fallback", "deviates", "missing"
ENOUGH_TO_FORBID = 0.7
TERSE = 2.5
LIMITED_PLACES = 400
LABEL_LENGTH = 80

_STATES = re.compile(
    r"(?:clearly\s+|explicitly\s+)?"
    r"(?:state|specify|mention|contain|include|name|identify|describe|say|set out|define|have|address|show|list)s?"
    r"\b(?:\s+(?:that|whether|how|a|an|the))?\s*",
    re.IGNORECASE,
)
_EXCEEDS = re.compile(
    r"(?:be\s+)?(?:exceed|more|less|longer|later|fewer|greater|higher|lower|shorter|above|below)\b", re.IGNORECASE
)
_EDGES = " \t:,;.-\u2013\u2014"


@dataclass(frozen=True)
class Verdict:
    """What was decided on one position or rule. `start:end` is the place that shows it; an empty one shows nothing."""

    label: str
    severity: str
    kind: str
    wanted: str
    why: str = ""
    start: int = 0
    end: int = 0


def check_position(matcher: Matcher, position: Position) -> Verdict:
    """Forbidden phrases first, then the standard, then the fallbacks in order; demanded phrases in any case."""
    found = _verdict(matcher, position)
    if found.kind in {DEVIATES, MISSING}:
        return found
    lacking = [phrase for phrase in position.must_contain if matcher.document.phrase(phrase) is None]
    if not lacking:
        return found
    kind = DEVIATES if position.standard else MISSING
    return replace(found, kind=kind, why=f"the document does not contain {lacking[0]!r}", wanted=_wanted(position))


def _verdict(matcher: Matcher, position: Position) -> Verdict:
    blank = Verdict(position.issue, position.severity, MEETS, _wanted(position))
    for phrase in position.must_not_contain:
        if place := matcher.document.phrase(phrase):
            return replace(_at(matcher, blank, place), kind=DEVIATES, why=f"it contains {phrase!r}")
    if not position.standard and (position.must_contain or position.must_not_contain):
        return blank  # phrases are all that is asked for, and they were looked up
    tiers = tuple(quantity for text in position.fallbacks for quantity in quantities(text))
    standard = [_directed(one, tiers) for one in demands(position.standard or position.issue, issue=position.issue)]
    if not standard:
        return blank
    first = _stand(matcher, standard, blank)
    if first.kind == MEETS:
        return first
    for number, text in enumerate(position.fallbacks, 1):
        tier = _stand(matcher, _tier(text, position, standard), blank)
        if tier.kind == MEETS:
            return replace(tier, kind=FALLBACK, why=f"fallback {number} is met; the standard is not: {first.why}")
    return first


def _wanted(position: Position) -> str:
    return position.standard or "; ".join(position.must_contain) or position.issue


def _directed(demand: Demand, tiers: Sequence[Quantity]) -> Demand:
    return replace(demand, quantities=tuple(with_direction(one, tiers) for one in demand.quantities))


def _tier(text: str, position: Position, standard: list[Demand]) -> list[Demand]:
    """What a fallback demands. A terse one ("45 days") is the standard with another figure, in the same direction."""
    own = demands(text, issue=position.issue)
    limits = {one.unit: one for demand in standard for one in demand.quantities if one.bound}
    own = [replace(one, quantities=tuple(_like(q, limits.get(q.unit)) for q in one.quantities)) for one in own]
    figures = {quantity.unit: quantity for demand in own for quantity in demand.quantities}
    weight = sum(w for demand in own for key, w in demand.weights.items() if key not in demand.issue)
    if not figures or weight > TERSE:
        return own
    return [replace(one, quantities=tuple(figures.get(q.unit, q) for q in one.quantities)) for one in standard]


def _like(quantity: Quantity, limit: Quantity | None) -> Quantity:
    return replace(quantity, bound=limit.bound, inferred=limit.inferred) if limit else quantity


def _stand(matcher: Matcher, wanted: list[Demand], blank: Verdict) -> Verdict:
    """All demands together: the worst of them decides, and its sentence is shown."""
    outcomes = [matcher.look_up(one) for one in wanted]
    spoken = [one for one in outcomes if one.kind != ABSENT]
    if not spoken:
        return replace(blank, kind=MISSING, why="the document does not speak of it")
    failed = [one for one in spoken if one.kind != MET]
    if worst := next((one for one in failed if one.kind == CONFLICTS), failed[0] if failed else None):
        return replace(_shown(matcher, blank, worst), kind=DEVIATES, why=worst.why)
    silent = next((one.text for one, outcome in zip(wanted, outcomes, strict=True) if outcome.kind == ABSENT), None)
    if silent is not None:
        return replace(_shown(matcher, blank, spoken[0]), kind=DEVIATES, why=f"it says nothing about: {silent}")
    return _shown(matcher, blank, spoken[0])


def _shown(matcher: Matcher, blank: Verdict, outcome: Outcome) -> Verdict:
    sentence = matcher.document.sentences[outcome.sentence]
    return replace(blank, start=sentence.start, end=sentence.end)


def _at(matcher: Matcher, blank: Verdict, place: tuple[int, int]) -> Verdict:
    """The sentence that holds the place, or the place itself where it runs over the sentence's end."""
    sentence = matcher.document.sentence_at(place[0])
    return replace(blank, start=min(sentence.start, place[0]), end=max(sentence.end, place[1]))


def check_rule(matcher: Matcher, rule: Rule) -> Verdict:
    """The verdict on a checkable rule."""
    text = "; ".join(rule.phrases) or rule.text
    label = f"{rule.form} {text}"
    blank = Verdict(label if len(label) <= LABEL_LENGTH else f"{label[:LABEL_LENGTH]}…", rule.severity, MEETS, label)
    return _CHECKS[rule.form](matcher, rule, blank)


def is_checkable(rule: Rule) -> bool:
    """False for a limit without a figure, which nothing can be held against."""
    return not rule.form.startswith("at ") or _limit(f"{rule.form} {rule.text}") is not None


def _must(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    stated = _STATES.match(rule.text)
    if stated and stated.end() < len(rule.text):
        return _topic(matcher, rule.text[stated.end() :], blank)
    return _stand(matcher, demands(rule.text), blank)


def _must_not(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    if _EXCEEDS.match(rule.text) and (limit := _limit(f"must not {rule.text}")):
        return _within(matcher, limit, blank)
    for one in demands(rule.text, whole=True):
        said = matcher.says(one, enough=ENOUGH_TO_FORBID)
        if said:
            return replace(_shown(matcher, blank, said), kind=DEVIATES, why="the document says what it must not say")
    return blank


def _mention(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    if not rule.phrases:
        return _topic(matcher, rule.text, blank)
    lacking = [phrase for phrase in rule.phrases if matcher.document.phrase(phrase) is None]
    enough = len(lacking) < len(rule.phrases) if rule.form == "must mention one of" else not lacking
    return blank if enough else replace(blank, kind=MISSING, why=f"the document does not contain {lacking[0]!r}")


def _no_mention(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    for phrase in rule.phrases or (rule.text,):
        if place := matcher.document.phrase(phrase):
            return replace(_at(matcher, blank, place), kind=DEVIATES, why=f"it contains {phrase!r}")
    return blank


def _topic(matcher: Matcher, text: str, blank: Verdict) -> Verdict:
    """Unquoted words: some sentence has to speak of them, in any form."""
    wanted = demands(text, whole=True)
    if not wanted or any(coverage >= ENOUGH for one in wanted for _, _, coverage in matcher.ranked(one)):
        return blank
    return replace(blank, kind=MISSING, why="the document does not speak of it")


def _limited(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    limit = _limit(f"{rule.form} {rule.text}")
    return _within(matcher, limit, blank) if limit else blank


def _limit(text: str) -> tuple[Quantity, str] | None:
    """The figure of a limit and the words that say what it limits."""
    found = next((one for one in quantities(text) if one.bound), None)
    if found is None:
        return None
    topic = text[found.end :].lstrip("'\u2019").strip(_EDGES) or text[: found.start]
    return found, re.sub(r"^(?:of|for|on|as|in)\s+", "", topic)


def _within(matcher: Matcher, limit: tuple[Quantity, str], blank: Verdict) -> Verdict:
    """Every sentence on the topic that states such a quantity has to keep the limit; "at least" has to be stated."""
    wanted, topic = limit
    seen: Verdict | None = None
    for place in matcher.places(topic, most=LIMITED_PLACES):
        found = nearest(matcher.quantities(place), replace(wanted, near=frozenset(matcher.words(topic))))
        if found is None:
            continue
        sentence = matcher.document.sentences[place]
        here = replace(blank, start=sentence.start, end=sentence.end)
        if why := beyond(found, wanted):
            return replace(here, kind=DEVIATES, why=why)
        seen = seen or here
    if seen is None and wanted.bound == LEAST:
        return replace(blank, kind=MISSING, why="the document states no such figure")
    return seen or blank


_CHECKS = {
    "must": _must,
    "should": _must,
    "must not": _must_not,
    "must mention": _mention,
    "must mention one of": _mention,
    "must not mention": _no_mention,
    "at least": _limited,
    "at most": _limited,
}
