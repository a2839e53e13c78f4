"""Verdicts of the offline analyst: each position of a playbook and each rule of a skill against one document."""

import heapq
import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from agents.definitions.playbooks import Position, Rule
from agents.providers.offline.text import (
    GENERIC,
    LEAST,
    MOST,
    OPPOSITE_ROLES,
    OPPOSITES,
    Document,
    Quantity,
    compare,
    difference,
    meaning,
    meanings_of,
    nearest,
    normalised,
    quantities,
    split_sentences,
    words_of,
)

# --- Whether a clause requires, allows or forbids, whom it binds, and when two clauses contradict each other ---


AFFIRMS, FORBIDS, RESTRICTS = "affirms", "forbids", "restricts"

# Idioms whose "not" or "without" denies nothing, and bounds, which are compared as quantities.
_IDIOMS = re.compile(
    r"\b(?:neither|no|in\s+no\s+\w+)\b(?:\W+\w+){0,8}?\W+exceed\w*|\bnot\s+(?:be\s+)?limited\s+to|\bwhether\s+or\s+not"
    r"|\bnot\s+only|\bwithout\s+(?:limitation|prejudice|undue\s+delay|delay|limiting)"
    r"|\b(?:not|never|no|nor)\s+(?:to\s+)?(?:be\s+)?(?:in\s+)?(?:exceed\w*|excess|more|less|fewer|later|longer|greater"
    r"|higher|lower|earlier|sooner|shorter)\b"
    r"|\bunless\s+(?:otherwise|required\s+by)\b|\bno\.\s*\d|(?:\[ \]|\u2610)\s*\w+|\bno\s+doubt\b"
    r"|(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)(?<!\bwere\s)(?<!\bbe\s)\bnot\s+(?:yet\s+)?"
    r"(?:paid|received|used|covered|listed|included)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if|where|when|whenever|in\s+case|in\s+the\s+event|to\s+the\s+extent|provided\s+that|as)\b[^,;]*",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:not|no|never|neither|nor|none|cannot|nobody|nothing)\b|n['\u2019]t\b", re.IGNORECASE)
_EXCLUSION = re.compile(
    r"\b(?:is|are|be|been|being)\s+(?:not\s+)?(?:\w+ly\s+)?"
    r"(?:prohibited|forbidden|excluded|waived|banned|barred|denied|precluded|disabled)\b"
    r"|\b(?:waives?|disclaims?|excludes?|declines?|refuses?|prohibits?|forbids?|refrains?|lacks?)\b",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"\b(?:without|unless|except|other\s+than|until|save)\b", re.IGNORECASE)
_ONLY = re.compile(
    r"\b(?:only|solely|exclusively)\s+(?:\w+\s+){0,3}?(?:with|upon|on|after|if|where|when|following|subject|by)\b"
    r"|\b(?:requires?|subject\s+to|conditional\s+on)\b(?:\W+\w+){0,8}?\W+"
    r"(?:consent|approval|permission|authori[sz]ation|agreement)\b",
    re.IGNORECASE,
)
_DUTY = re.compile(
    r"\b(?:shall|must|will|(?:is|are|be)\s+(?:\w+ly\s+)?(?:required|obliged|obligated|bound|responsible)|agrees?\s+to"
    r"|undertakes?|has\s+to|have\s+to|needs?\s+to|ensures?|mandatory)\b",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"\b(?<!\d\s)(?:may|can|could|might|should)\b(?!\s+\d)"
    r"|\b(?:entitled|permitted|allowed|optional(?:ly)?|discretion|voluntar(?:y|ily))\b"
    r"|\bright\s+to\b|\b(?:encouraged|recommended|advised|advisable)\b",
    re.IGNORECASE,
)
_MODAL = re.compile(rf"{_DUTY.pattern}|{_OPTION.pattern}", re.IGNORECASE)
_EFFORTS = re.compile(
    r"\b(?:efforts?|endeavou?rs?|where\s+(?:possible|practicable|feasible)|aims?\s+to|tr(?:y|ies)\s+to|intends?\s+to"
    r"|if\s+possible)\b",
    re.IGNORECASE,
)
# What follows a question mark is optional, so that a run of them is passed over once and not from each of its marks.
_ANSWER = re.compile(r"\?\W*+(?:(?:\w++\s*+[:.]\s*+)?(?:(?P<yes>yes)|(?P<no>no|none|not|n/a))\b)?", re.IGNORECASE)
_SOLELY = re.compile(r"\b(?:solely|exclusively|only)\b", re.IGNORECASE)  # "may be used solely as" allows nothing else
_AGENT = re.compile(r"\bby\s+(?:the\s+|its\s+)?([A-Za-z]+)", re.IGNORECASE)
_BOTH_PARTIES = re.compile(
    r"\b(?:either|each|both|any|neither|no)\s+part(?:y|ies)\b|\bthe\s+parties\b|\bmutual", re.IGNORECASE
)


@dataclass(frozen=True)
class Commitment:
    """What a clause commits to. `role` is the party that it binds or entitles, if it names one."""

    polarity: str = AFFIRMS
    is_optional: bool = False
    is_efforts_only: bool = False
    role: str = ""


def commitment_of(clause: str) -> Commitment:
    plain = _IDIOMS.sub(" ", clause)
    is_optional = bool(_OPTION.search(plain)) and not _DUTY.search(plain) and not _SOLELY.search(plain)
    return Commitment(_polarity(plain), is_optional, bool(_EFFORTS.search(plain)), _role(plain))


def _polarity(plain: str) -> str:
    answers = {found.lastgroup for found in _ANSWER.finditer(plain)}
    if answers - {None}:
        return AFFIRMS if "yes" in answers else FORBIDS
    denial = _DENIAL.search(plain)
    if (denial and _EXCEPTION.search(plain, denial.end())) or _ONLY.search(plain):
        return RESTRICTS
    bare = _CONDITION.sub(" ", plain)
    return FORBIDS if bool(_DENIAL.search(bare)) != bool(_EXCLUSION.search(bare)) else AFFIRMS


def _role(plain: str) -> str:
    """The role after "by", else the last one before the modal verb; none if the clause binds both parties."""
    if is_mutual(plain):
        return ""
    agent = _AGENT.search(plain)
    if agent and (role := meaning(normalised(agent[1]))) in OPPOSITE_ROLES:
        return role
    modal = _MODAL.search(plain)
    before = words_of(plain[: modal.start()])[-12:] if modal else words_of(plain)[:3]
    roles = [meaning(word.text) for word in before]
    return next((role for role in reversed(roles) if role in OPPOSITE_ROLES), "")


def is_mutual(text: str) -> bool:
    return _BOTH_PARTIES.search(text) is not None


_CONTRADICTIONS = {
    (AFFIRMS, FORBIDS): "it says the opposite (negated)",
    (FORBIDS, AFFIRMS): "it says the opposite (not negated)",
    (FORBIDS, RESTRICTS): "it makes an exception",
    (RESTRICTS, AFFIRMS): "it lacks the condition",
}


def contradiction(found: Commitment, wanted: Commitment) -> str:
    """Say why the found clause contradicts the wanted one; empty when it does not."""
    if reason := _CONTRADICTIONS.get((wanted.polarity, found.polarity)):
        return reason
    if wanted.is_optional and (wanted.polarity, found.polarity) == (AFFIRMS, RESTRICTS):
        return "it sets a condition"  # a duty that arises on a condition is still a duty
    if found.role in OPPOSITE_ROLES.get(wanted.role, ()):
        return "it binds or entitles the other side"
    if found.is_efforts_only and not wanted.is_efforts_only:
        return "it promises efforts only"
    if found.is_optional and not wanted.is_optional and found.polarity == wanted.polarity == AFFIRMS:
        return "it allows what the standard requires"
    return ""


# --- Finds where a document speaks of what a text requires, and whether it says the same. Pure text matching ---
#
# A sentence is held against a requirement by the words it covers, then by its figures, then by negation, role, names
# and opposites. Weights are fixed: added or moved paragraphs change no outcome.


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


MEETS, FALLBACK, DEVIATES, MISSING = "meets", "fallback", "deviates", "missing"
_TERSE_WEIGHT = 2.5
_LIMITED_SENTENCES = 400
_LABEL_LENGTH = 80
_NOT_MENTIONED = "the document does not speak of it"

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
    """The decision on one position or rule. `start:end` is the place that shows it; an empty one shows nothing."""

    label: str
    severity: str
    kind: str
    wanted: str
    why: str = ""
    start: int = 0
    end: int = 0


# --- Positions of a playbook ---


def check_position(matcher: Matcher, position: Position) -> Verdict:
    """Check forbidden phrases, then the standard, then the fallbacks in order; required phrases in any case."""
    wanted = position.standard or "; ".join(position.must_contain) or position.issue
    blank = Verdict(position.issue, position.severity, MEETS, wanted)
    found = _without_phrases(matcher, position.must_not_contain, blank)
    only_phrases = not position.standard and (position.must_contain or position.must_not_contain)
    if found.kind == MEETS and not only_phrases:
        found = _check_wording(matcher, position, blank)
    if found.kind in {DEVIATES, MISSING}:
        return found
    lacking = [phrase for phrase in position.must_contain if matcher.document.phrase(phrase) is None]
    if not lacking:
        return found
    kind = DEVIATES if position.standard else MISSING
    return replace(found, kind=kind, why=f"the document does not contain {lacking[0]!r}")


def _without_phrases(matcher: Matcher, phrases: tuple[str, ...], blank: Verdict) -> Verdict:
    """Deviates where a forbidden phrase stands; the whole sentence that holds it is shown."""
    for phrase in phrases:
        if place := matcher.document.phrase(phrase):
            sentence = matcher.document.sentence_at(place[0])
            start, end = min(sentence.start, place[0]), max(sentence.end, place[1])
            return replace(blank, kind=DEVIATES, why=f"it contains {phrase!r}", start=start, end=end)
    return blank


def _check_wording(matcher: Matcher, position: Position, blank: Verdict) -> Verdict:
    tiers = [quantity for text in position.fallbacks for quantity in quantities(text)]
    read = requirements_of(position.standard or position.issue, issue=position.issue)
    standard = [one.with_quantities(lambda quantity: _with_direction(quantity, tiers)) for one in read]
    if not standard:
        return blank
    first = _check_all(matcher, standard, blank)
    if first.kind == MEETS:
        return first
    for number, text in enumerate(position.fallbacks, 1):
        tier = _check_all(matcher, _fallback(text, position.issue, standard), blank)
        if tier.kind == MEETS:
            return replace(tier, kind=FALLBACK, why=f"fallback {number} is met; the standard is not: {first.why}")
    return first


def _with_direction(wanted: Quantity, tiers: list[Quantity]) -> Quantity:
    """The quantity as a limit, if the fallbacks show in which direction one may go from it."""
    orders = {compare(one, wanted) for one in tiers if one.unit == wanted.unit} - {0}
    if len(orders) != 1:
        return wanted
    return replace(wanted, bound=MOST if orders == {1} else LEAST, inferred=True)


def _fallback(text: str, issue: str, standard: list[Requirement]) -> list[Requirement]:
    """What a fallback requires. A terse one ("45 days") is the standard with another figure, in the same direction."""
    limits = {one.unit: one for wanted in standard for one in wanted.quantities if one.bound}
    read = requirements_of(text, issue=issue)
    own = [one.with_quantities(lambda quantity: _like(quantity, limits.get(quantity.unit))) for one in read]
    figures = {quantity.unit: quantity for one in own for quantity in one.quantities}
    weight = sum(weight for one in own for key, weight in one.weights.items() if key not in one.issue)
    if not figures or weight > _TERSE_WEIGHT:
        return own
    return [one.with_quantities(lambda quantity: figures.get(quantity.unit, quantity)) for one in standard]


def _like(quantity: Quantity, limit: Quantity | None) -> Quantity:
    return replace(quantity, bound=limit.bound, inferred=limit.inferred) if limit else quantity


def _check_all(matcher: Matcher, wanted: list[Requirement], blank: Verdict) -> Verdict:
    """Check all requirements together: the worst of them decides, and its sentence is shown."""
    outcomes = [matcher.look_up(one) for one in wanted]
    found = [one for one in outcomes if one.kind != ABSENT]
    if not found:
        return replace(blank, kind=MISSING, why=_NOT_MENTIONED)
    failed = sorted((one for one in found if one.kind != MET), key=lambda one: one.kind != CONFLICTS)
    if failed:
        return _shown(matcher, replace(blank, kind=DEVIATES, why=failed[0].why), failed[0])
    silent = next((one.text for one, outcome in zip(wanted, outcomes, strict=True) if outcome.kind == ABSENT), None)
    if silent is not None:
        blank = replace(blank, kind=DEVIATES, why=f"it says nothing about: {silent}")
    return _shown(matcher, blank, found[0])


def _shown(matcher: Matcher, verdict: Verdict, outcome: Outcome) -> Verdict:
    sentence = matcher.document.sentences[outcome.sentence]
    return replace(verdict, start=sentence.start, end=sentence.end)


# --- Rules of a skill ---


def check_rule(matcher: Matcher, rule: Rule) -> Verdict:
    text = "; ".join(rule.phrases) or rule.text
    label = f"{rule.form} {text}"
    short = label if len(label) <= _LABEL_LENGTH else f"{label[:_LABEL_LENGTH]}…"
    return _CHECKS[rule.form](matcher, rule, Verdict(short, rule.severity, MEETS, label))


def is_checkable(rule: Rule) -> bool:
    """Return False for a limit without a figure."""
    return not rule.form.startswith("at ") or _limit(f"{rule.form} {rule.text}") is not None


def _must(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    stated = _STATES.match(rule.text)
    if stated and stated.end() < len(rule.text):
        return _mentions(matcher, rule.text[stated.end() :], blank)
    return _check_all(matcher, requirements_of(rule.text), blank)


def _must_not(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    if _EXCEEDS.match(rule.text) and (limit := _limit(f"must not {rule.text}")):
        return _within(matcher, limit, blank)
    for one in requirements_of(rule.text, whole=True):
        if found := matcher.says(one):
            return _shown(matcher, replace(blank, kind=DEVIATES, why="the document says what it must not say"), found)
    return blank


def _must_mention(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    if not rule.phrases:
        return _mentions(matcher, rule.text, blank)
    lacking = [phrase for phrase in rule.phrases if matcher.document.phrase(phrase) is None]
    is_kept = len(lacking) < len(rule.phrases) if rule.form == "must mention one of" else not lacking
    return blank if is_kept else replace(blank, kind=MISSING, why=f"the document does not contain {lacking[0]!r}")


def _must_not_mention(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    return _without_phrases(matcher, rule.phrases or (rule.text,), blank)


def _mentions(matcher: Matcher, text: str, blank: Verdict) -> Verdict:
    """Met when some sentence speaks of the words, in any form."""
    wanted = requirements_of(text, whole=True)
    if not wanted or any(found.coverage >= ENOUGH for one in wanted for found in matcher.candidates(one)):
        return blank
    return replace(blank, kind=MISSING, why=_NOT_MENTIONED)


def _limited(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    limit = _limit(f"{rule.form} {rule.text}")
    return _within(matcher, limit, blank) if limit else blank


def _limit(text: str) -> tuple[Quantity, str] | None:
    """The figure of a limit, and the words that say what it limits."""
    found = next((one for one in quantities(text) if one.bound), None)
    if found is None:
        return None
    return found, text[found.end :].lstrip("'\u2019").strip(_EDGES) or text[: found.start]


def _within(matcher: Matcher, limit: tuple[Quantity, str], blank: Verdict) -> Verdict:
    """Every figure on the topic must keep the limit; "at least" must also be stated."""
    wanted, topic = limit
    wanted = replace(wanted, near=meanings_of(topic))
    seen: Verdict | None = None
    for number in matcher.sentences_on(topic, most=_LIMITED_SENTENCES):
        found = nearest(matcher.quantities(number), wanted)
        if found is None:
            continue
        sentence = matcher.document.sentences[number]
        here = replace(blank, start=sentence.start, end=sentence.end)
        if why := difference(found, wanted):
            return replace(here, kind=DEVIATES, why=why)
        seen = seen or here
    if seen is None and wanted.bound == LEAST:
        return replace(blank, kind=MISSING, why="the document states no such figure")
    return seen or blank


_CHECKS = {
    "must": _must,
    "should": _must,
    "must not": _must_not,
    "must mention": _must_mention,
    "must mention one of": _must_mention,
    "must not mention": _must_not_mention,
    "at least": _limited,
    "at most": _limited,
}
