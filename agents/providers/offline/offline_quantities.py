"""Quantities in a sentence: amounts, percentages, spans of time, frequencies and counted things, with their bounds.

"net 30", "thirty (30) days" and "within one month" become numbers that can be compared. A year has 365.25 days, a month
a twelfth of it, and five business days make a week; figures in different units count as equal within 2 %.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from agents.providers.offline.offline_words import STOP, meaning, stem
from agents.providers.offline.text import WORD, normal

MOST, LEAST = "max", "min"
DAY, EVERY, PERCENT, PERCENT_A_YEAR, MONEY = "days", "every", "%", "% a year", "money"
YEAR = 365.25
SAME_WITHIN = 0.02

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth"
_CODES = "USD EUR GBP CHF JPY INR AUD CAD SEK"
_PLACES = "section clause article schedule exhibit annex appendix page paragraph no item"
NUMBERS = {word: value for value, word in enumerate(_SMALL.split())}
NUMBERS |= {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_SHORT_SCALES = {"k": 1_000, "m": 1_000_000, "mn": 1_000_000, "bn": 1_000_000_000}
ORDINALS = {word: n for n, word in enumerate(_ORDINALS.split(), 1)}
_IN_DAYS = {
    "minute": 1 / 1440, "min": 1 / 1440, "hour": 1 / 24, "hr": 1 / 24, "day": 1.0, "night": 1.0, "week": 7.0,
    "fortnight": 14.0, "month": YEAR / 12, "quarter": YEAR / 4, "year": YEAR, "annum": YEAR,
}  # fmt: skip
_FREQUENT = {
    "hourly": 1 / 24, "daily": 1.0, "weekly": 7.0, "biweekly": 14.0, "fortnightly": 14.0, "monthly": YEAR / 12,
    "quarterly": YEAR / 4, "semiannually": YEAR / 2, "biannually": YEAR / 2, "annually": YEAR, "annual": YEAR,
    "yearly": YEAR, "biennially": 2 * YEAR,
}  # fmt: skip
_CURRENCY = {"$": "USD", "us$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "dollar": "USD", "euro": "EUR"}
_CURRENCY |= {"pound": "GBP", "sterling": "GBP"} | {code.lower(): code for code in _CODES.split()}
_NOT_COUNTED = frozenset(map(stem, _PLACES.split()))
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"

_NUMBER_WORD = "|".join(sorted([*NUMBERS, *SCALES], key=len, reverse=True))
_NUMBER = re.compile(
    rf"(?<![\w.])(?P<digits>\d+(?:[.,]\d+)*)|\b(?P<words>(?:{_NUMBER_WORD})(?:[\s-]+(?:and\s+)?(?:{_NUMBER_WORD}))*)\b",
    re.IGNORECASE,
)
_DOUBLED = re.compile(r"\s*+\(\s*+[^\s()\d]{0,3}(\d++(?:[.,]\d++)*+)\s*+(%)?\s*+\)")
_CURRENCY_BEFORE = re.compile(r"(US\$|[$€£¥₹]|\b[A-Z]{3})\s?$")
_SCALE = re.compile(r"\s?(hundred|thousand|million|billion|bn|mn|[km])\b", re.IGNORECASE)
_UNIT = re.compile(
    r"[\s-]*(?P<percent>%|per\s?cent\b)|\s?(?P<currency>[$€£¥₹]|USD|EUR|GBP|CHF|JPY|INR|AUD|CAD|SEK|dollars?|euros?|pounds?)"
    r"|[\s-]*(?P<business>(?:business|working|banking)\s+)?(?:(?:calendar|consecutive|full|clear)\s+)?"
    r"(?P<time>minutes?|mins?|hours?|hrs?|days?|nights?|weeks?|fortnights?|months?|quarters?|years?)\b",
    re.IGNORECASE,
)
_RATE = re.compile(r"\s*(?:per|a|each|every|/)\s*(month|annum|year)|\s+(monthly|annually|yearly)", re.IGNORECASE)
_EVERY = re.compile(r"(?:\bevery|\beach|\bonce\s+(?:per|an?|every|each|in))\s+(?:other\s+)?$", re.IGNORECASE)
_ORDINAL = re.compile(
    rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)|({'|'.join(ORDINALS)}))\s+(?:(?:business|calendar)\s+)?day\b", re.IGNORECASE
)
_OFTEN = re.compile(
    rf"\b(?:{'|'.join(_FREQUENT)})\b|\b(?:every|each|once\s+(?:per|an?|every|each))\s+(?:calendar\s+)?(hour|day|week|month|quarter|year)\b",
    re.IGNORECASE,
)
_TWICE = re.compile(r"\b(?:twice|double)\b(?!\s+(?:per|a|an|each|every))", re.IGNORECASE)
_GAP = re.compile(r"[\s-](?:or\s+(more|fewer|less)\s+)?", re.IGNORECASE)
_GAP_BOUND = {"more": LEAST, "fewer": MOST, "less": MOST}
_DATE_AFTER = re.compile(rf"(?:st|nd|rd|th)?[\s,]+(?:{_MONTHS})[a-z]*\b|[-/.]\d|:\d\d|(?:st|nd|rd|th)\b", re.IGNORECASE)
_DATE_BEFORE = re.compile(rf"(?:{_MONTHS})[a-z]*\.?\s+(?:\d+,\s*)?$|\d[-/.]$|\b\d\d?:$", re.IGNORECASE)

_FILLER = (
    r"(?:\s+(?:a|an|the|of|to|be|is|by|at|in|period|total|maximum|minimum|amount|sum|aggregate|term|rate|length|any|its"
    r"|than))*\W*$"
)
_BOUNDS = (
    (
        MOST,
        r"(?:not|never|nor)\s+(?:to\s+)?(?:be\s+)?(?:in\s+)?(?:exceed\w*|excess|more|later|longer|greater|higher|above|over)",
    ),
    (LEAST, r"(?:not|never)\s+(?:be\s+)?(?:less|fewer|shorter|lower|below|earlier|sooner|under)"),
    (MOST, r"no\s+(?:more|later|longer|greater|higher)"),
    (LEAST, r"no\s+(?:less|fewer|shorter|lower|earlier|sooner)"),
    (LEAST, r"at\s+least|minimum|\bmin\.?|at\s+a\s+minimum|as\s+a\s+minimum|≥|>="),
    (
        MOST,
        r"within|at\s+most|maximum|\bmax\.?|up\s+to|under|below|(?:less|fewer)\s+than|capped|limited\s+to|net|≤|<=|≦",
    ),
    (LEAST, r"more\s+than|over|above|exceed\w*|greater\s+than|longer\s+than|in\s+excess\s+of|older\s+than"),
)
_BEFORE = tuple((bound, re.compile(rf"\b(?:{words}){_FILLER}", re.IGNORECASE)) for bound, words in _BOUNDS)
_AFTER = (
    (
        MOST,
        re.compile(
            r"[\s)%]*(?:\w+\s){0,2}?(?:or\s+(?:less|fewer|under|below|sooner|earlier|shorter)|maximum\b|at\s+most)",
            re.IGNORECASE,
        ),
    ),
    (
        LEAST,
        re.compile(
            r"[\s)%]*(?:\w+\s){0,2}?(?:or\s+(?:more|greater|longer|higher|later|above|newer|older)|minimum\b|\+|at\s+least|and\s+above)",
            re.IGNORECASE,
        ),
    ),
)


@dataclass(frozen=True)
class Quantity:
    """A number with its dimension. `near` are the words around it, which tell what it measures."""

    value: float
    unit: str
    start: int
    end: int
    shown: str
    bound: str = ""
    inferred: bool = False  # the bound comes from the fallbacks, not from the wording
    near: frozenset[str] = frozenset()


def quantities(text: str) -> list[Quantity]:
    """The quantities of a sentence, in order."""
    plain = filter(None, (_read(text, match) for match in _NUMBER.finditer(text)))
    found: list[Quantity] = []
    for one in sorted([*plain, *_worded(text)], key=lambda one: (one.start, -one.end)):
        if not found or one.start >= found[-1].end:  # "fifteen (15 %)" is one quantity, as is "every 2 years"
            found.append(replace(one, near=_near(text, one)))
    return found


def _read(text: str, match: re.Match[str]) -> Quantity | None:
    before, end = text[max(0, match.start() - 60) : match.start()], match.end()
    if match["digits"] and (_DATE_AFTER.match(text, end) or _DATE_BEFORE.search(before)):
        return None
    value = figure(match["digits"]) if match["digits"] else _in_words(match["words"])
    doubled = _DOUBLED.match(text, end)
    if doubled:  # "thirty (30) days": the figure counts
        value, end = figure(doubled[1]), doubled.start(2) if doubled[2] else doubled.end()
    scale = _SCALE.match(text, end) if match["digits"] else None
    if scale:
        value *= (SCALES | _SHORT_SCALES)[scale[1].lower()]
        end = scale.end()
    currency = _CURRENCY_BEFORE.search(before)
    code = _CURRENCY.get(currency[1].lower()) if currency else None
    if code and currency:
        start = match.start() - len(currency[0])
        return _bounded(text, Quantity(value, f"{MONEY} {code}", start, end, text[start:end].strip()), end)
    return _with_unit(text, match, value, end)


def _with_unit(text: str, match: re.Match[str], value: float, end: int) -> Quantity | None:
    start, unit = match.start(), _UNIT.match(text, end)
    if unit is None:
        return _counted(text, match, value, end)
    end, name = unit.end(), DAY
    if unit["percent"]:
        name, rate = PERCENT, _RATE.match(text, end)
        if rate:
            name, end = PERCENT_A_YEAR, rate.end()
            value *= 12 if "month" in rate[0].lower() else 1
    elif unit["currency"]:
        name = f"{MONEY} {_CURRENCY[unit['currency'].lower().rstrip('s')]}"
    else:
        value *= _IN_DAYS[unit["time"].lower().rstrip("s")] * (7 / 5 if unit["business"] else 1)
        every = _EVERY.search(text[max(0, start - 30) : start])
        name = EVERY if every else DAY
        start -= len(every[0]) if every else 0
    return _bounded(text, Quantity(value, name, start, end, text[start:end]), end)


def _counted(text: str, match: re.Match[str], value: float, end: int) -> Quantity | None:
    """A number of things ("12 characters"), of a payment term ("net 30"), or a release ("TLS 1.2")."""
    before = text[max(0, match.start() - 60) : match.start()]
    if re.search(r"\bnet[\s-]*$", before, re.IGNORECASE):
        return Quantity(value, DAY, match.start(), end, text[match.start() : end], MOST)
    gap = _GAP.match(text, end)
    after = WORD.match(text, gap.end()) if gap else None
    word = normal(after[0]) if after else ""
    bound = _GAP_BOUND.get(gap[1].lower(), "") if gap and gap[1] else ""
    if after and word not in STOP and word not in NUMBERS and not word[0].isdigit() and match["words"] != "one":
        shown = text[match.start() : after.end()]
        found = _bounded(text, Quantity(value, stem(word), match.start(), after.end(), shown), after.end())
        return replace(found, bound=bound or found.bound)
    named = re.search(r"([A-Za-z][\w.]*)[\s:-]*$", before)
    if named is None or not match["digits"] or normal(named[1]) in STOP or stem(normal(named[1])) in _NOT_COUNTED:
        return None
    start = match.start() - len(named[0])
    return _bounded(text, Quantity(value, stem(normal(named[1])), start, end, text[start:end]), end)


def _worded(text: str) -> Iterator[Quantity]:
    """Quantities without a number: how often, the day of a month, twice."""
    for match in _OFTEN.finditer(text):
        days = _IN_DAYS[match[1].lower()] if match[1] else _FREQUENT[match[0].lower()]
        yield replace(
            _bounded(text, Quantity(days, EVERY, match.start(), match.end(), match[0]), match.end()), bound=MOST
        )
    for match in _ORDINAL.finditer(text):
        value = int(match[1]) if match[1] else ORDINALS[match[2].lower()]
        yield Quantity(value, "day of the month", match.start(), match.end(), match[0])
    for match in _TWICE.finditer(text):
        yield Quantity(2, "time", match.start(), match.end(), match[0])


def _bounded(text: str, found: Quantity, end: int) -> Quantity:
    before = text[max(0, found.start - 60) : found.start]
    for bound, words in _BEFORE:
        if words.search(before):
            return replace(found, bound=_turned(bound) if found.unit == EVERY else bound)
    bound = next((bound for bound, words in _AFTER if words.match(text, end)), "")
    # What recurs within a span recurs at least that often: a longer span is the looser one.
    return replace(found, bound=bound or (MOST if found.unit == EVERY else ""))


def _turned(bound: str) -> str:
    return MOST if bound == LEAST else LEAST


def _near(text: str, one: Quantity) -> frozenset[str]:
    sides = text[max(0, one.start - 60) : one.start], text[one.end : one.end + 60]
    return frozenset(key for side in sides for match in WORD.finditer(side) if (key := meaning(normal(match[0]))))


def figure(digits: str) -> float:
    """A figure in English or, where the marks can only mean that, in continental notation."""
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d{1,2}|\d{1,3}(?:\.\d{3}){2,}", digits):
        digits = digits.replace(".", "").replace(",", ".")
    whole, _, rest = digits.replace(",", "").partition(".")
    return float(f"{whole[:18]}.{rest.replace('.', '')[:9] or '0'}")


def _in_words(words: str) -> float:
    total, part = 0, 0
    for word in re.split(r"[\s-]+", words.lower()):
        if word == "hundred":
            part = max(part, 1) * 100
        elif word in SCALES:
            total, part = total + max(part, 1) * SCALES[word], 0
        else:
            part += NUMBERS.get(word, 0)
    return float(total + part)


def compare(found: Quantity, wanted: Quantity) -> int:
    """-1, 0 or 1: whether the first is smaller, as large, or greater."""
    if found.value == wanted.value or (
        abs(found.value - wanted.value) <= SAME_WITHIN * wanted.value and found.unit in {DAY, EVERY}
    ):
        return 0
    return -1 if found.value < wanted.value else 1
