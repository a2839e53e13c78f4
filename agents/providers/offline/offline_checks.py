"""Verdicts of the offline analyst: each position of a playbook and each rule of a skill against one document."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agents.definitions.playbook_text import Position, Rule
from agents.providers.offline.matching import ABSENT, CONFLICTS, ENOUGH, MET, Matcher, Outcome, beyond, nearest
from agents.providers.offline.offline_demands import Demand, demands, with_direction
from agents.providers.offline.offline_quantities import LEAST, Quantity, quantities

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
