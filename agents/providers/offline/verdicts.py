"""Verdicts of the offline analyst: each position of a playbook and each rule of a skill against one document.

One matcher decides all of them: a sentence says what is required if it shares enough of its words, its figures satisfy
the required ones, and both or neither are negated. It compares words and understands nothing.
"""

import heapq
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from agents.definitions.playbooks import Position, Rule
from agents.providers.offline.text import (
    LEAST,
    MOST,
    Document,
    Quantity,
    compare,
    difference,
    pairs,
    quantities,
    split_sentences,
    stems_of,
)
from agents.text.clean import one_line

# --- Requirements ---

_CLAUSE_END: Final = re.compile(r";\s++|,?\s++(?:and|but)\s++(?=(?:shall|must|may|will)\b)", re.IGNORECASE)
_NEGATION: Final = re.compile(
    r"\b(?:not|no|never|neither|nor|none|nobody|nothing|cannot|without|prohibited|forbidden)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_EXCEPTION: Final = re.compile(r"\b(?:unless|except)\b", re.IGNORECASE)
# Bounds, which are compared as figures, and idioms that deny nothing.
_NO_NEGATION: Final = re.compile(
    r"\b(?:not|no|neither)\b[^.;]{0,60}?\bexceed|\b(?:not|no)\s++(?:be\s++)?(?:more|less|fewer|later|longer|limited)"
    r"|\bwithout\s++(?:undue\s++)?(?:delay|limitation|prejudice|regard)|\bunless\s++otherwise|\bnot\s++only|\bno\.\s*\d",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Requirement:
    """One thing that a text requires: its words, its figures, and whether it is negated; None: either will do."""

    text: str
    stems: frozenset[str]
    quantities: tuple[Quantity, ...] = ()
    is_negated: bool | None = None


def requirements_of(text: str, *, issue: str = "") -> list[Requirement]:
    """Return one requirement for each sentence, or each clause with a modal verb of its own."""
    parts = [part for one in split_sentences(text) for part in _CLAUSE_END.split(text[one.start : one.end])]
    read = [
        Requirement(part.strip(), stems_of(part) or stems_of(issue), tuple(quantities(part)), is_negated(part))
        for part in parts
    ]
    return [one for one in read if one.stems]


def is_negated(text: str) -> bool:
    """Return whether an odd number of words deny: "not without consent", "not unless" and "only with" are alike."""
    plain = _NO_NEGATION.sub(" ", text)
    return len(_NEGATION.findall(plain)) % 2 == 1 and not _EXCEPTION.search(plain)


# --- The matcher ---

MET, PARTLY, CONFLICTS, ABSENT = "met", "partly", "conflicts", "absent"
ENOUGH: Final = 0.7  # share of the required words that says the same
_RELATED: Final = 0.4  # share that makes a sentence speak of the requirement
_ALIKE: Final = 0.85  # a sentence that covers this share of what the best one covers must agree as well
_CANDIDATES: Final = 12
_MAX_MISSING: Final = 6


@dataclass(frozen=True)
class Outcome:
    """How a document stands to a requirement, with the number of the sentence that shows it, and why."""

    kind: str
    sentence: int = -1
    why: str = ""
    coverage: float = 0.0


class Matcher:
    """Looks up requirements in one document."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def look_up(self, wanted: Requirement) -> Outcome:
        """Return the outcome of the best sentence, or a conflict with it or with one much like it."""
        candidates = self.candidates(wanted.stems)
        if not candidates:
            return Outcome(ABSENT)
        best = candidates[0][0]
        outcomes = [
            self._judge(wanted, sentence, coverage)
            for coverage, sentence in candidates
            if coverage == best or coverage >= max(ENOUGH, _ALIKE * best)
        ]
        by_kind = {one.kind: one for one in reversed(outcomes)}
        return by_kind.get(CONFLICTS) or by_kind.get(MET) or outcomes[0]

    def says(self, wanted: Requirement) -> Outcome | None:
        """Return the first sentence that says what is required, whatever the others say."""
        outcomes = (self._judge(wanted, sentence, coverage) for coverage, sentence in self.candidates(wanted.stems))
        return next((one for one in outcomes if one.kind == MET), None)

    def candidates(self, stems: frozenset[str]) -> list[tuple[float, int]]:
        """Return the share of the words and the number of each sentence that speaks of them, best first."""
        shares: dict[int, float] = {}
        for key in sorted(stems):
            for number, share in self.document.index.get(key, {}).items():
                shares[number] = shares.get(number, 0.0) + share / len(stems)
        found = (
            (share, number)
            for number, share in shares.items()
            if share >= _RELATED and not self.document.sentences[number].is_heading
        )
        return heapq.nsmallest(_CANDIDATES, found, key=lambda one: (-one[0], one[1]))

    def _judge(self, wanted: Requirement, sentence: int, coverage: float) -> Outcome:
        text = self.document.sentence_text(sentence)
        figures = pairs(quantities(text), wanted.quantities)
        why = next((why for found, one in figures if found and (why := difference(found, one))), "")
        if not why and wanted.is_negated not in {None, is_negated(text)}:
            why = "it says the opposite (not negated)" if wanted.is_negated else "it says the opposite (negated)"
        if why:
            return Outcome(CONFLICTS, sentence, why, coverage)
        lacking = next((one.text for found, one in figures if not found), "")
        if lacking:
            return Outcome(PARTLY, sentence, f"it states no figure for {lacking!r}", coverage)
        if coverage >= ENOUGH:
            return Outcome(MET, sentence, "", coverage)
        missing = wanted.stems - stems_of(f"{self.document.sentences[sentence].context} {text}")
        words = dict.fromkeys(word.strip(".,;:()") for word in wanted.text.split() if stems_of(word) & missing)
        return Outcome(PARTLY, sentence, f"it does not speak of: {', '.join(list(words)[:_MAX_MISSING])}", coverage)


# --- Positions of a playbook ---

MEETS, FALLBACK, DEVIATES, MISSING = "meets", "fallback", "deviates", "missing"
_NOT_MENTIONED: Final = "the document does not speak of it"


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


def check_position(matcher: Matcher, position: Position) -> Verdict:
    """Check forbidden phrases, then the standard, then the fallbacks in order; required phrases in any case."""
    wanted = position.standard or "; ".join(position.must_contain) or position.issue
    blank = Verdict(position.issue, position.severity, MEETS, wanted)
    found = _without_phrases(matcher, position.must_not_contain, blank)
    if found.kind == MEETS and not is_phrases_only(position):
        found = _check_wording(matcher, position, blank)
    lacking = _lacking(matcher, position.must_contain)
    if found.kind in {DEVIATES, MISSING} or not lacking:
        return found
    kind = DEVIATES if position.standard else MISSING
    return replace(found, kind=kind, why=f"the document does not contain {lacking[0]!r}")


def is_phrases_only(position: Position) -> bool:
    return not position.standard and bool(position.must_contain or position.must_not_contain)


def _lacking(matcher: Matcher, phrases: tuple[str, ...]) -> list[str]:
    return [phrase for phrase in phrases if matcher.document.phrase(phrase) is None]


def _without_phrases(matcher: Matcher, phrases: tuple[str, ...], blank: Verdict) -> Verdict:
    """Deviates where a forbidden phrase stands; the whole sentence that holds it is shown."""
    document = matcher.document
    for phrase in phrases:
        if place := document.phrase(phrase):
            sentence = document.sentences[document.sentence_at(place[0])]
            end = max(sentence.end, place[1])
            return replace(blank, kind=DEVIATES, why=f"it contains {phrase!r}", start=sentence.start, end=end)
    return blank


def _check_wording(matcher: Matcher, position: Position, blank: Verdict) -> Verdict:
    tiers = [quantity for text in position.fallbacks for quantity in quantities(text)]
    read = requirements_of(position.standard or position.issue, issue=position.issue)
    standard = _with_figures(read, lambda wanted: _with_direction(wanted, tiers))
    first = _check_all(matcher, standard, blank)
    if first.kind == MEETS:
        return first
    for text in position.fallbacks:
        tier = _check_all(matcher, _fallback(text, position.issue, standard), blank)
        if tier.kind == MEETS:
            return replace(tier, kind=FALLBACK)
    return first


def _with_figures(read: list[Requirement], change: Callable[[Quantity], Quantity]) -> list[Requirement]:
    return [replace(one, quantities=tuple(map(change, one.quantities))) for one in read]


def _with_direction(wanted: Quantity, tiers: list[Quantity]) -> Quantity:
    """The quantity as a limit, if the fallbacks show in which direction one may go from it."""
    orders = {compare(one, wanted) for one in tiers if one.unit == wanted.unit} - {0}
    return replace(wanted, bound=MOST if orders == {1} else LEAST) if len(orders) == 1 else wanted


def _fallback(text: str, issue: str, standard: list[Requirement]) -> list[Requirement]:
    """Read a fallback. A terse one ("45 days") is the standard with another figure, in the same direction."""
    bounds = {one.unit: one.bound for wanted in standard for one in wanted.quantities}
    read = requirements_of(text, issue=issue)
    own = _with_figures(read, lambda figure: replace(figure, bound=bounds.get(figure.unit, figure.bound)))
    figures = {figure.unit: figure for one in own for figure in one.quantities}
    known = stems_of(issue).union(*(one.stems for one in standard))
    is_terse = bool(figures) and all(one.stems <= known for one in own)
    return _with_figures(standard, lambda figure: figures.get(figure.unit, figure)) if is_terse else own


def _check_all(matcher: Matcher, wanted: list[Requirement], blank: Verdict) -> Verdict:
    """Check all requirements together: the worst of them decides, and its sentence is shown."""
    outcomes = [matcher.look_up(one) for one in wanted]
    found = [one for one in outcomes if one.kind != ABSENT]
    if wanted and not found:
        return replace(blank, kind=MISSING, why=_NOT_MENTIONED)
    failed = sorted((one for one in found if one.kind != MET), key=lambda one: one.kind != CONFLICTS)
    if failed:
        return _shown(matcher, replace(blank, kind=DEVIATES, why=failed[0].why), failed[0].sentence)
    silent = [one.text for one, outcome in zip(wanted, outcomes, strict=True) if outcome.kind == ABSENT]
    if silent:
        blank = replace(blank, kind=DEVIATES, why=f"it says nothing about: {silent[0]}")
    return _shown(matcher, blank, found[0].sentence) if found else blank


def _shown(matcher: Matcher, verdict: Verdict, number: int) -> Verdict:
    sentence = matcher.document.sentences[number]
    return replace(verdict, start=sentence.start, end=sentence.end)


# --- Rules of a skill ---

_LABEL_CHARS: Final = 80
_STATES: Final = re.compile(
    r"(?:state|specify|mention|contain|include|name|identify|describe|define|list)s?\b", re.IGNORECASE
)


def check_rule(matcher: Matcher, rule: Rule) -> Verdict:
    wanted = f"{rule.form} {'; '.join(rule.phrases) or rule.text}"
    blank = Verdict(one_line(wanted, _LABEL_CHARS), rule.severity, MEETS, wanted)
    if rule.form == "must not mention":
        return _without_phrases(matcher, rule.phrases or (rule.text,), blank)
    if rule.phrases:
        lacking = _lacking(matcher, rule.phrases)
        is_kept = len(lacking) < len(rule.phrases) if rule.form == "must mention one of" else not lacking
        return blank if is_kept else replace(blank, kind=MISSING, why=f"the document does not contain {lacking[0]!r}")
    if rule.form.startswith("at "):
        return _check_limit(matcher, rule, blank)
    if rule.form == "must not":
        said = next((found for one in requirements_of(rule.text) if (found := matcher.says(one))), None)
        forbidden = replace(blank, kind=DEVIATES, why="the document says what it must not say")
        return _shown(matcher, forbidden, said.sentence) if said else blank
    if "mention" in rule.form or _STATES.match(rule.text):
        stems = stems_of(_STATES.sub("", rule.text, count=1))
        is_mentioned = not stems or any(coverage >= ENOUGH for coverage, _ in matcher.candidates(stems))
        return blank if is_mentioned else replace(blank, kind=MISSING, why=_NOT_MENTIONED)
    return _check_all(matcher, requirements_of(rule.text), blank)


def is_checkable(rule: Rule) -> bool:
    """Return False for a limit without a figure or without words that say what it limits."""
    return not rule.form.startswith("at ") or _limit(rule) is not None


def _limit(rule: Rule) -> Requirement | None:
    read = requirements_of(f"{rule.form} {rule.text}")
    return next((replace(one, is_negated=None) for one in read if one.quantities), None)


def _check_limit(matcher: Matcher, rule: Rule, blank: Verdict) -> Verdict:
    """Every figure on the topic must keep the limit; "at least" must also be stated."""
    limit = _limit(rule)
    found = matcher.look_up(limit) if limit else Outcome(ABSENT)
    if found.kind == CONFLICTS:
        return _shown(matcher, replace(blank, kind=DEVIATES, why=found.why), found.sentence)
    if found.kind == MET:
        return _shown(matcher, blank, found.sentence)
    return blank if rule.form == "at most" else replace(blank, kind=MISSING, why="the document states no such figure")
