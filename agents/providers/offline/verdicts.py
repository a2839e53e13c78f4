"""Verdicts of the offline analyst: each position of a playbook and each rule of a skill against one document."""

import re
from dataclasses import dataclass, replace

from agents.definitions.playbooks import Position, Rule
from agents.providers.offline.matcher import (
    ABSENT,
    CONFLICTS,
    ENOUGH,
    MET,
    Matcher,
    Outcome,
    Requirement,
    requirements_of,
)
from agents.providers.offline.quantities import LEAST, MOST, Quantity, compare, difference, nearest, quantities
from agents.providers.offline.words import meanings_of

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
