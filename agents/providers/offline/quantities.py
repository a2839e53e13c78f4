"""Quantities in a sentence: amounts, percentages, spans of time, frequencies and counted things, with their bounds.

"net 30", "thirty (30) days" and "within one month" become numbers that can be compared. A year has 365.25 days, a
month a twelfth of it, and five business days make a week; spans of time count as equal within 2 %.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agents.providers.offline.words import STOP, WORD, meanings_of, normalised, stem

MOST, LEAST = "max", "min"
DAY, EVERY, PERCENT, PERCENT_A_YEAR, MONEY = "days", "every", "%", "% a year", "money"
_YEAR = 365.25
_SAME_WITHIN = 0.02
_CONTEXT_CHARS = 60

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {word: value for value, word in enumerate(_SMALL.split())}
_NUMBERS |= {word: 10 * value for value, word in enumerate(_TENS.split(), 2)}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_SHORT_SCALES = {"k": 1_000, "m": 1_000_000, "mn": 1_000_000, "bn": 1_000_000_000}
_DAYS_IN = {
    "minute": 1 / 1440,
    "hour": 1 / 24,
    "day": 1.0,
    "week": 7.0,
    "fortnight": 14.0,
    "month": _YEAR / 12,
    "quarter": _YEAR / 4,
    "year": _YEAR,
}
_ADVERBS = {"daily": "day", "annual": "year", "annually": "year"}  # the others end in -ly
_CODES = "USD EUR GBP CHF JPY INR AUD CAD SEK"
_CURRENCIES = {code.lower(): code for code in _CODES.split()}
_CURRENCIES |= {"$": "USD", "us$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR"}
_CURRENCIES |= {"dollar": "USD", "euro": "EUR", "pound": "GBP"}
_PLACES = "section clause article schedule exhibit annex appendix page paragraph no item"
_NOT_COUNTED = frozenset(map(stem, _PLACES.split()))

_CODE = "|".join(map(re.escape, sorted(_CURRENCIES, key=len, reverse=True)))
_NUMBER_WORD = "|".join(sorted([*_NUMBERS, *_SCALES], key=len, reverse=True))
_DIGITS = r"\d++(?:[.,]\d++)*+"
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATE_AFTER = rf"(?:st|nd|rd|th)?[\s,]+(?:{_MONTHS})[a-z]*\b|[-/.]\d|:\d\d|(?:st|nd|rd|th)\b"
_DATE_BEFORE = re.compile(rf"(?:{_MONTHS})[a-z]*\.?\s+(?:\d+,\s*)?$|\d[-/.]$|\b\d\d?:$", re.IGNORECASE)
_QUANTITY = re.compile(
    rf"""
    (?: \b(?P<every>every|each|once\s+(?:per|an?|every|each|in))\s+(?:other\s+)? )?
    (?:
        (?: (?<!\w)(?P<currency>{_CODE})\s? | (?<![\w.]) )
        (?P<digits>{_DIGITS})(?!{_DATE_AFTER})
        (?: \s?(?P<scale>hundred|thousand|million|billion|bn|mn|[km])\b )?
      | \b(?P<words>(?:{_NUMBER_WORD})(?:[\s-]+(?:and\s+)?(?:{_NUMBER_WORD}))*)\b
    )
    (?: \s*+\(\s*+[^\s()\d]{{0,3}}(?P<figure>{_DIGITS})\s*+(?P<figure_percent>%\s*+)?\) )?
    (?:
        [\s-]*(?P<percent>%|per\s?cent\b)
        (?: \s*(?:per|a|each|every|/)\s*(?P<rate>month|annum|year) | \s+(?P<adverb>monthly|annually|yearly) )?
      | \s?(?P<currency_after>(?:{_CODE})(?!\w)|(?:dollar|euro|pound)s\b)
      | [\s-]*(?P<business>(?:business|working|banking)\s+)?(?:(?:calendar|consecutive|full|clear)\s+)?
        (?P<time>minutes?|hours?|days?|weeks?|fortnights?|months?|quarters?|years?)\b
    )?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FREQUENCY = re.compile(
    r"\b(?P<adverb>(?:hour|week|fortnight|month|quarter|year)ly|daily|annual(?:ly)?)\b"
    r"|\b(?:every|each|once\s+(?:per|an?|every|each))\s+(?:calendar\s+)?(?P<unit>hour|day|week|month|quarter|year)\b",
    re.IGNORECASE,
)
_DAY_OF_MONTH = re.compile(
    rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)|({'|'.join(_ORDINALS)}))\s+(?:(?:business|calendar)\s+)?day\b", re.IGNORECASE
)
_NET = re.compile(r"\bnet[\s-]*$", re.IGNORECASE)
_COUNTED_AFTER = re.compile(r"[\s-](?:or\s+(?:more|fewer|less)\s+)?", re.IGNORECASE)
_NAMED_BEFORE = re.compile(r"([A-Za-z][\w.]*)[\s:-]*$")

_BOUND_BEFORE = re.compile(
    r"(?<!\w)(?P<negated>(?:no|not|never|nor)\s+(?:to\s+)?(?:be\s+)?(?:in\s+)?)?"
    r"(?:(?P<least>at\s+least|(?:at|as)\s+a\s+minimum|minimum|min\.?|≥|>=|exceed\w*|(?:in\s+)?excess|over|above"
    r"|(?:more|later|longer|greater|higher|older)(?:\s+than)?)"
    r"|(?P<most>within|at\s+most|maximum|max\.?|up\s+to|capped|limited\s+to|net|≤|<=|≦|under|below"
    r"|(?:less|fewer|shorter|lower|earlier|sooner)(?:\s+than)?))"
    r"(?:\s+(?:a|an|the|of|to|be|is|by|at|in|period|total|maximum|minimum|amount|sum|aggregate|term|rate|length|any|its"
    r"|than))*\W*$",
    re.IGNORECASE,
)
_BOUND_AFTER = re.compile(
    r"[\s)%]*(?:\w+\s){0,2}?"
    r"(?:(?P<most>or\s+(?:less|fewer|under|below|sooner|earlier|shorter)|maximum\b|at\s+most)"
    r"|(?P<least>or\s+(?:more|greater|longer|higher|later|above|newer|older)|minimum\b|\+|at\s+least|and\s+above))",
    re.IGNORECASE,
)
_CONTINENTAL = re.compile(r"\d{1,3}(?:\.\d{3})+,\d{1,2}|\d{1,3}(?:\.\d{3}){2,}")


@dataclass(frozen=True)
class Quantity:
    """A number with its unit. `near` are the words around it, which tell what it measures."""

    value: float
    unit: str
    start: int
    end: int
    text: str
    bound: str = ""
    inferred: bool = False  # the bound comes from the fallbacks, not from the wording
    near: frozenset[str] = frozenset()


def quantities(text: str) -> list[Quantity]:
    """Return the quantities of a sentence, in order; of overlapping ones the first and longest."""
    read = filter(None, (_read(text, match) for match in _QUANTITY.finditer(text)))
    found: list[Quantity] = []
    for one in sorted([*read, *_without_number(text)], key=lambda one: (one.start, -one.end)):
        if not found or one.start >= found[-1].end:
            around = text[max(0, one.start - _CONTEXT_CHARS) : one.start], text[one.end : one.end + _CONTEXT_CHARS]
            found.append(replace(one, bound=one.bound or _bound(text, one), near=meanings_of(" ".join(around))))
    return found


def _read(text: str, match: re.Match[str]) -> Quantity | None:
    before = text[max(0, match.start("digits") - _CONTEXT_CHARS) : match.start("digits")] if match["digits"] else ""
    if _DATE_BEFORE.search(before):
        return None
    value = figure(match["digits"]) if match["digits"] else _number_in_words(match["words"])
    if match["figure"]:  # "thirty (30) days": the figure counts
        value = figure(match["figure"])
    if match["scale"]:
        value *= (_SCALES | _SHORT_SCALES)[match["scale"].lower()]
    read = _with_unit(match, value)
    if read is None:
        return _counted(text, match, value)
    value, unit = read
    start = match.start() if unit == EVERY or not match["every"] else _number_start(match)
    return Quantity(value, unit, start, match.end(), text[start : match.end()].strip())


def _number_start(match: re.Match[str]) -> int:
    return min(match.start(name) for name in ("currency", "digits", "words") if match[name])


def _with_unit(match: re.Match[str], value: float) -> tuple[float, str] | None:
    """The value in its base unit, and that unit; None when the text names none."""
    if currency := match["currency"] or match["currency_after"]:
        return value, f"{MONEY} {_CURRENCIES[currency.lower().removesuffix('s')]}"
    if rate := match["rate"] or match["adverb"]:
        return value * (12 if rate.lower().startswith("month") else 1), PERCENT_A_YEAR
    if match["percent"] or match["figure_percent"]:
        return value, PERCENT
    if match["time"]:
        days = _DAYS_IN[match["time"].lower().rstrip("s")] * (7 / 5 if match["business"] else 1)
        return value * days, EVERY if match["every"] else DAY
    return None


def _counted(text: str, match: re.Match[str], value: float) -> Quantity | None:
    """A number of things ("12 characters"), a payment term ("net 30"), or a release ("TLS 1.2")."""
    start, end = _number_start(match), match.end()
    before = text[max(0, start - _CONTEXT_CHARS) : start]
    if _NET.search(before):
        return Quantity(value, DAY, start, end, text[start:end], MOST)
    gap = _COUNTED_AFTER.match(text, end)
    thing = WORD.match(text, gap.end()) if gap else None
    word = normalised(thing[0]) if thing else ""
    if thing and word not in STOP and word not in _NUMBERS and not word[0].isdigit() and match["words"] != "one":
        found = Quantity(value, stem(word), start, thing.end(), text[start : thing.end()])
        return replace(found, bound=_bound(text, replace(found, end=end)))  # "8 or more characters"
    named = _NAMED_BEFORE.search(before)
    if named is None or not match["digits"] or normalised(named[1]) in STOP or stem(named[1].lower()) in _NOT_COUNTED:
        return None
    start -= len(named[0])
    return Quantity(value, stem(normalised(named[1])), start, end, text[start:end])


def _without_number(text: str) -> Iterator[Quantity]:
    """How often, and the day of a month."""
    for match in _FREQUENCY.finditer(text):
        word = (match["unit"] or match["adverb"]).lower()
        unit = _ADVERBS.get(word) or word.removesuffix("ly")
        yield Quantity(_DAYS_IN[unit], EVERY, match.start(), match.end(), match[0], MOST)
    for match in _DAY_OF_MONTH.finditer(text):
        value = int(match[1]) if match[1] else _ORDINALS.index(match[2].lower()) + 1
        yield Quantity(value, "day of the month", match.start(), match.end(), match[0])


def _bound(text: str, one: Quantity) -> str:
    """Whether a quantity is a most or a least by the words before it, else by those after it."""
    before = _BOUND_BEFORE.search(text[max(0, one.start - _CONTEXT_CHARS) : one.start])
    found = before or _BOUND_AFTER.match(text, one.end)
    if found is None:
        return MOST if one.unit == EVERY else ""
    is_most = bool(found["most"]) != bool(before and before["negated"])
    if before and one.unit == EVERY:  # what recurs at least every week recurs every seven days at most
        is_most = not is_most
    return MOST if is_most else LEAST


def figure(digits: str) -> float:
    """Read a figure in English or, where the marks can only mean that, in continental notation."""
    if _CONTINENTAL.fullmatch(digits):
        digits = digits.replace(".", "").replace(",", ".")
    whole, _, rest = digits.replace(",", "").partition(".")
    return float(f"{whole[:18]}.{rest.replace('.', '')[:9] or '0'}")


def _number_in_words(words: str) -> float:
    total, part = 0, 0
    for word in re.split(r"[\s-]+", words.lower()):
        if word == "hundred":
            part = max(part, 1) * 100
        elif word in _SCALES:
            total, part = total + max(part, 1) * _SCALES[word], 0
        else:
            part += _NUMBERS.get(word, 0)
    return float(total + part)


def compare(found: Quantity, wanted: Quantity) -> int:
    """Return -1, 0 or 1: the first is smaller, equal or greater."""
    tolerance = _SAME_WITHIN * wanted.value if found.unit in {DAY, EVERY} else 0.0
    if abs(found.value - wanted.value) <= tolerance:
        return 0
    return -1 if found.value < wanted.value else 1


def nearest(found: Sequence[Quantity], wanted: Quantity) -> Quantity | None:
    """Return the quantity of the same kind whose surroundings are most like those of the wanted one."""
    kind = MONEY if wanted.unit.startswith(MONEY) else wanted.unit
    same = [one for one in found if one.unit == wanted.unit or (kind == MONEY and one.unit.startswith(MONEY))]
    return max(same, key=lambda one: (len(one.near & wanted.near), one.unit == wanted.unit, -one.start), default=None)


def difference(found: Quantity, wanted: Quantity) -> str:
    """Say why the found quantity does not satisfy the wanted one; empty when it does."""
    if found.unit != wanted.unit:
        return f"{found.text!r} is in another currency than {wanted.text!r}"
    order = compare(found, wanted)
    bound = "" if wanted.inferred else found.bound
    if wanted.bound == MOST and order > 0:
        return f"{found.text!r} is more than {wanted.text!r}"
    if wanted.bound == MOST and bound == LEAST and found.unit != EVERY:
        return f"{found.text!r} is only a minimum"
    if wanted.bound == LEAST and order < 0:
        return f"{found.text!r} is less than {wanted.text!r}"
    if wanted.bound == LEAST and bound == MOST:
        return f"{found.text!r} is only a maximum"
    return f"{found.text!r} differs from {wanted.text!r}" if order and not wanted.bound else ""
