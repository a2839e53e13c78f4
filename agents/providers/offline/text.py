"""Reading text: sentences, quantities and the words that carry meaning.

Pure and linear in the length of the text.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import snowballstemmer

# --- The words of the offline analyst: which carry no meaning, which mean the same, and which are opposites ---
#
# The tables hold general business and legal English only. What a document is about comes from the playbook, never
# from here. Each word keeps its offsets, so that every quote is exact.


_STOP_WORDS = """
    a about above accordance according across after again against ago all also although always am among an and
    another any apply applicable are as at available be because become been before being between both but by can
    cannot case could did do does doing done down during each either else etc ever every everything for forth
    from further get give given had has have having he her here hereby herein hereof hereto hereunder him his
    how however i if in into is it its itself just lie made make may me might more most must my namely neither
    no nor not notwithstanding now of off on once one only onto or other otherwise our out over own per please
    regard regarding relating respect said same set shall she should since so some such take than that the their
    them themselves then there thereby therefor therefore therein thereof thereto these they thing this those through
    thus to together too toward towards under until unto up upon us use used using very via was we were what
    whatever when where whereas whereby wherein whether which while who whom whose will with within without
    would yes yet you your yours don't doesn't isn't aren't won't can't shan't didn't ensure happen kind least
    relevant respective state states provide provides provided good order full extent purpose way event respectively
    reasonable reasonably appropriate necessary accept accepted acceptable fallback net maximum minimum mean means
    following follow include including
"""
STOP = frozenset(_STOP_WORDS.split())

# Numbers and bounds are compared as quantities; as words they would only blur what a sentence is about.
_FIGURE_WORDS = """
    zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion exceed exceeding
    exceeds excess later earlier longer shorter fewer less greater higher lower
"""
_WITHOUT_MEANING = STOP.union(_FIGURE_WORDS.split())

# Each line is one meaning; its first word names it.
_SYNONYMS = """
agreement contract deed
supplier vendor provider seller contractor
customer client buyer
landlord lessor
tenant lessee renter occupant
employee worker staff personnel workforce
terminate cancel rescind
notify notification inform advise alert notice report communicate tell
pay settle remit payable paid payment
begin commence start
receive receipt
invoice bill
fee charge
keep maintain retain preserve store retention hold kept
delete erase destroy purge erasure destruction
breach violation infringement incident compromise
law legislation statute
permit allow
consent approval permission authorisation authorization
written writing
limit cap ceiling
confidential secret nondisclosure secrecy
buy purchase acquire procure
help assist support
damage loss
holiday vacation
salary wage remuneration compensation
repair fix remedy rectify
renew extend extension
late overdue delayed
prior advance beforehand preceding previous
transfer assign
dispute controversy disagreement
warrant guarantee warranty
defect fault error flaw
review audit inspect examine assess evaluate
return refund reimburse repay
disclose reveal divulge disclosure
indemnify indemnity indemnification
liable liability
accident mishap
meeting session assembly
document record
train educate
password passphrase
immediate prompt
obtain get secure
deliver delivery ship shipment
insurance coverage
require need demand
unlimited uncapped
person individual
subcontract subcontractor
quote quotation
proof evidence
price cost
tax vat
penalty fine
remove eliminate
sublet sublease underlet
rent rental
jurisdiction court venue
noncompete noncompetition
probation probationary
"""

# Words that say little about the subject of a clause: the parties, the parts of a document, and units.
_GENERIC = """
    agreement party document service company customer supplier landlord tenant employee employer person clause
    section term condition right obligation organization organisation business firm entity affiliate team time
    date item part system policy process procedure information matter work basis member user staff undersigned
    herewith hour day week month year minute working calendar consecutive percent usd eur gbp chf dollar euro
    pound period monthly annually annual yearly weekly daily quarterly hourly
"""

_OPPOSITE_ROLES = """
    customer/supplier landlord/tenant employee/employer licensor/licensee discloser/recipient controller/processor
    borrower/lender
"""

_OPPOSITES = """
    mutual/unilateral mutual/onesided limited/unlimited increase/decrease increase/reduce approve/reject
    approve/decline enable/disable public/private mandatory/optional mandatory/voluntary required/optional
    obligatory/optional advance/arrears present/absent pass/fail complete/incomplete encrypt/plaintext
    encrypt/cleartext permanent/temporary perpetual/temporary paid/unpaid internal/external revocable/irrevocable
    refundable/nonrefundable exclusive/nonexclusive automatic/manual
"""

# The stemmer would read these as forms of "inform" and "person".
_OWN_MEANING = frozenset({"information", "personal"})

_LETTERS = r"[^\W\d_]"
_INVISIBLE = "\u00ad\u200b-\u200d\u2060"
_MARKS = _INVISIBLE + "\u0300-\u036f"
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"  # scripts without spaces: each character is a word
    r"|\d+(?:[.,]\d+)*"
    rf"|(?:\b[Nn][Oo][Nn][-\u2010\u2011][ \t]*(?:\r?\n[ \t]*)?)?{_LETTERS}+"
    rf"(?:(?:[{_MARKS}]+|-[ \t]*\r?\n[ \t]*(?=[a-z])){_LETTERS}*)*(?:['\u2019]{_LETTERS}+)?"
)
_DROPPED = re.compile(rf"[{_INVISIBLE}]|[-\u2010\u2011]\s*")

_stemmer = snowballstemmer.stemmer("english")


class Word(NamedTuple):
    """A normalised word with its place in the text."""

    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    return [Word(normalised(found[0]), found.start(), found.end()) for found in WORD.finditer(text)]


@lru_cache(maxsize=65_536)
def normalised(word: str) -> str:
    """Lower case, without possessives, ligatures, invisible characters and hyphens at line ends."""
    word = word.casefold()
    if word.isascii() and word.isalnum():
        return word
    word = unicodedata.normalize("NFKC", _DROPPED.sub("", word)).replace("\u2019", "'")
    return word.removesuffix("'s") or word


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


_NAMED_BY = {stem(word): stem(line.split()[0]) for line in _SYNONYMS.splitlines() for word in line.split()}


@lru_cache(maxsize=65_536)
def meaning(word: str) -> str:
    """Return the stem that stands for a word and its synonyms; empty for a word without meaning."""
    if word in _WITHOUT_MEANING or word[0].isdigit():
        return ""
    if word in _OWN_MEANING:
        return word
    return _NAMED_BY.get(stem(word), stem(word))


def meanings_of(text: str) -> frozenset[str]:
    return frozenset(found for match in WORD.finditer(text) if (found := meaning(normalised(match[0]))))


def _pairs(table: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pair in table.split():
        one, other = map(meaning, pair.split("/"))
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return found


GENERIC = frozenset(map(meaning, _GENERIC.split())) - {""}
OPPOSITE_ROLES = _pairs(_OPPOSITE_ROLES)
OPPOSITES = _pairs(_OPPOSITES)

FEW_WORDS = 12


def looks_english(words: Iterable[str]) -> bool:
    """Return False for a text of some length in which the small words of English are rare."""
    letters = [word for word in words if not word[0].isdigit()]
    small = sum(word in STOP for word in letters)
    foreign = sum(not word.isascii() for word in letters)
    if len(letters) < FEW_WORDS:
        return foreign * 2 <= len(letters)
    return small * 8 >= len(letters) and foreign * 4 <= len(letters)


# --- Sentences and headings of a document, each with its exact place, and an index of the words they hold ---
#
# Every pattern passes over a run of marks once, so that reading takes time in proportion to the text.


LONGEST_SENTENCE = 1_500
HEADING_CHARS = 300
_HEADING_WORDS = 8
_RUN_IN_WORDS = 4
_SHORT_LINE = 45
_CONTEXT_SHARE = 0.8

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_ITEM = re.compile(
    r"\s*(?:[-*+\u2022\u2023\u25e6\u2013\u2014|>]+\s|\(?\d{1,3}(?:\.\d{1,3})*[.)]\s|\d{1,3}(?:\.\d{1,3})+\s"
    r"|\(?[a-zA-Z]{1,4}\)\s|#{1,6}\s|(?:Article|Section|Clause|ARTICLE|SECTION|CLAUSE)\s+[\dIVX]+\b)"
)
_ANSWER = re.compile(
    r"\s*(?:(?:A|Ans|Answer|Response|Reply)\s*[:.]|(?:Yes|No|None|Not|Partially|N/A)\b)", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]]*+(?=\s)|[\u3002\uff01\uff1f]++")
_SHORTENED = """
    e.g i.e eg ie etc inc ltd co corp mr mrs ms dr prof art sec cl para paras vs approx st fig al dept
    incl jr sr plc llc u.s u.k p pp cf ca resp max min ref tel ext v viz bros ave jan feb mar apr jun jul aug
    sep sept oct nov dec
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())
_LAST_WORD = re.compile(r"[\w.]+$")
_GOES_ON = re.compile(r"\s+[a-z]")
_LINE_START = re.compile(r"(?:^|[\r\n])[ \t]*$")
_NOT_IN_HEADINGS = STOP - {"and", "of", "for", "the", "to", "on", "by", "in", "use", "a", "an"}
_CLOSING = ".!?;,:\u3002"


class Sentence(NamedTuple):
    """A sentence with its place, and the heading and lead-in (`The Supplier shall:`) that it stands under."""

    start: int
    end: int
    heading: str = ""
    lead: str = ""
    is_heading: bool = False


def split_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text, in order, without the blank space around them."""
    found: list[Sentence] = []
    heading = lead = ""
    for start, end in _blocks(text):
        block = text[start:end]
        item = _ITEM.match(block)
        spans = _spans(text, start, end)
        if _is_heading(block, item):
            heading, lead = block[:HEADING_CHARS], ""
            found += [Sentence(*span, is_heading=True) for span in spans]
            continue
        lead = lead if item else ""
        own = heading
        for number, span in enumerate(spans):
            run_in = number + 1 < len(spans) and _is_run_in_heading(text, span, spans[number + 1])
            own = text[slice(*span)] if run_in else own
            found.append(Sentence(*span, own, lead, is_heading=run_in))
        if block.endswith(":"):
            lead = text[slice(*spans[-1])]
    if all(sentence.is_heading for sentence in found):  # short lines without anything below them are the text itself
        found = [sentence._replace(is_heading=False) for sentence in found]
    return _join_answers(text, found)


def _blocks(text: str) -> list[tuple[int, int]]:
    """Paragraphs, list items, headings and short lines; lines of wrapped text stay together."""
    found: list[tuple[int, int]] = []
    last = ""  # the line before, empty after a blank one
    for line in _LINE.finditer(text):
        content = line[0].strip()
        if content:
            start = line.start() + len(line[0]) - len(line[0].lstrip())
            goes_on = bool(last) and not _starts_block(last, line[0])
            begin = found.pop()[0] if goes_on else start
            found.append((begin, start + len(content)))
        last = content
    return found


def _starts_block(last: str, line: str) -> bool:
    if last[-1] in ",(-" or line.lstrip()[0].islower() or last.rpartition(" ")[2] in STOP:
        return False
    if _ITEM.match(line) or last.endswith((":", "?")) or last.startswith("|"):
        return True
    return len(last) < _SHORT_LINE and last[-1] not in _CLOSING


def _is_heading(block: str, item: re.Match[str] | None) -> bool:
    if block[0] in "#|":
        return block[0] == "#"
    if _word_count(block) > _HEADING_WORDS or block[-1] in _CLOSING or "\n" in block or ":" in block:
        return False
    bare = (block[item.end() :] if item else block).lstrip(" \t.:*_-\u2013\u2014")
    return bare[:1].isupper() and not any(char.isdigit() for char in bare) and not _is_statement(bare)


def _is_run_in_heading(text: str, span: tuple[int, int], after: tuple[int, int]) -> bool:
    """Return True for a heading at the start of a line that goes on: "7. Termination. Either party …"."""
    start = text[slice(*span)]
    if not 0 < _word_count(start) <= _RUN_IN_WORDS or start[-1] != "." or "\n" in text[span[1] : after[0]]:
        return False
    begins_line = _LINE_START.search(text, max(0, span[0] - 9), span[0]) is not None
    return begins_line and not _is_statement(start)


def _is_statement(text: str) -> bool:
    return any(word.text in _NOT_IN_HEADINGS for word in words_of(text))


def _word_count(text: str) -> int:
    return sum(1 for word in text.split(maxsplit=2 * _HEADING_WORDS) if any(map(str.isalpha, word)))


def _spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans between the marks that end a sentence. A row of a table is one sentence."""
    found: list[tuple[int, int]] = []
    begin = start
    marks = () if text[start] == "|" else _SENTENCE_END.finditer(text, start, end)
    for mark in marks:
        if _ends_sentence(text, begin, mark):
            found += _pieces(text, begin, mark.end())
            begin = mark.end()
    return [*found, *_pieces(text, begin, end)]


def _ends_sentence(text: str, begin: int, mark: re.Match[str]) -> bool:
    if mark[0][0] != ".":
        return True
    before = _LAST_WORD.search(text, max(begin, mark.start() - 24), mark.start())
    word = before[0].lower() if before else ""
    if (len(word) == 1 and word.isalpha()) or word in _ABBREVIATIONS or _GOES_ON.match(text, mark.end()):
        return False
    return not (before and before.start() <= begin + 1 and word.replace(".", "").isdigit())


def _pieces(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The span without the blank space around it; a very long one is cut at blank space."""
    found = []
    while start < end:
        cut = end
        if end - start > LONGEST_SENTENCE:
            cut = max(text.rfind(char, start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE) for char in " \n\t")
            cut = cut if cut > 0 else start + LONGEST_SENTENCE
        piece = text[start:cut]
        if piece.strip():
            found.append((start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())))
        start = cut
    return found


def _join_answers(text: str, sentences: list[Sentence]) -> list[Sentence]:
    """Read a question and the answer right after it as one statement."""
    joined: list[Sentence] = []
    for sentence in sentences:
        last = joined[-1] if joined else None
        if (
            last
            and text[last.end - 1] == "?"
            and text.count("\n", last.end, sentence.start) <= 2  # noqa: PLR2004
            and _ANSWER.match(text, sentence.start)
        ):
            joined[-1] = Sentence(last.start, sentence.end, last.heading, last.lead)
        else:
            joined.append(sentence)
    return joined


class Document:
    """A text, split once and indexed: which sentence holds which word."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sentences = split_sentences(text)
        self._starts = [sentence.start for sentence in self.sentences]

    @cached_property
    def words(self) -> list[Word]:
        return words_of(self.text)

    @cached_property
    def is_english(self) -> bool:
        return looks_english(word.text for word in self.words[:5_000])

    @cached_property
    def index(self) -> dict[str, dict[int, float]]:
        """Meaning of a word → the sentences that hold it, with the share that it counts for there.

        Words of a sentence's heading and lead-in count for less than its own.
        """
        found: dict[str, dict[int, float]] = {}
        for word in self.words:
            if key := meaning(word.text):
                found.setdefault(key, {})[bisect_right(self._starts, word.start) - 1] = 1.0
        contexts: dict[tuple[str, str], frozenset[str]] = {}
        for number, sentence in enumerate(self.sentences):
            context = (sentence.heading, sentence.lead)
            if context not in contexts:
                contexts[context] = meanings_of(" ".join(context))
            for key in contexts[context]:
                found.setdefault(key, {}).setdefault(number, _CONTEXT_SHARE)
        return found

    @cached_property
    def _joined(self) -> tuple[str, list[int]]:
        """All words with one space around each, and where each begins in that text."""
        places, place = [], 1
        for word in self.words:
            places.append(place)
            place += len(word.text) + 1
        return f" {' '.join(word.text for word in self.words)} ", places

    def phrase(self, phrase: str) -> tuple[int, int] | None:
        """Return the first place of a phrase, whatever its case, quotes, hyphens and line breaks."""
        wanted = " ".join(word.text for word in words_of(phrase))
        if not wanted:
            place = self.text.find(phrase.strip())
            return (place, place + len(phrase.strip())) if phrase.strip() and place >= 0 else None
        joined, places = self._joined
        place = joined.find(f" {wanted} ")
        if place < 0:
            return None
        first = bisect_left(places, place + 1)
        return self.words[first].start, self.words[first + wanted.count(" ")].end

    def sentence_at(self, place: int) -> Sentence:
        return self.sentences[bisect_right(self._starts, place) - 1]

    def sentence_text(self, number: int) -> str:
        """The sentence with its lead-in, which belongs to what it says."""
        sentence = self.sentences[number]
        text = self.text[sentence.start : sentence.end]
        return f"{sentence.lead} {text}" if sentence.lead else text


# Quantities in a sentence: amounts, percentages, spans of time, frequencies and counted things, with their bounds.
#
# "net 30", "thirty (30) days" and "within one month" become numbers that can be compared. A year has 365.25 days, a
# month a twelfth of it, and five business days make a week; spans of time count as equal within 2 %.


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
