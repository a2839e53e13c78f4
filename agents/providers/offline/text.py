"""Words, sentences and headings as the offline analyst reads them, each with its exact place in the text.

Normalisation works word by word, so every normalised word keeps the offsets of the characters that it came from.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

# --- The words of the offline analyst: which carry no meaning, which mean the same, and the light stemmer ---
#
# Tables of general business and legal English only; what a document is about comes from the playbook, never from
# here.


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
    relevant respective state provide provided good order full extent purpose way event respectively reasonable
    reasonably appropriate necessary accept accepted acceptable fallback net least maximum minimum mean means
    following follow include including
"""
STOP = frozenset(_STOP_WORDS.split())

# Numbers and the words of bounds are read as quantities; as words they would only blur what a sentence is about.
_FIGURE_WORDS = """
    zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion exceed exceeding
    exceeds excess later earlier longer shorter fewer less greater higher lower
"""
FIGURE_WORDS = frozenset(_FIGURE_WORDS.split())

# Each line is one meaning; the first word names it. A word stands on one line only.
_SAME = """
agreement contract deed
supplier vendor provider seller contractor
customer client buyer purchaser
landlord lessor
tenant lessee renter occupant
employee worker staff personnel workforce
employer
terminate cancel rescind
notify inform advise alert notice report communicate tell
pay settle remit payable paid payment
begin commence start
receive receipt received
invoice bill billing
fee charge
keep maintain retain preserve store retention hold kept
delete erase destroy purge erasure destruction deletion
breach violation infringement incident compromise
law legislation statute
permit allow authorise authorize
consent approval permission approve authorisation authorization sign-off
written writing
limit cap ceiling limitation
confidential secret nondisclosure confidentiality secrecy
buy purchase acquire procure
help assist support assistance
damage loss losses
holiday vacation
salary wage remuneration compensation
repair fix remedy rectify remediate
renew extend renewal extension
late overdue delayed
prior advance beforehand preceding previous
transfer assign assignment
dispute controversy disagreement
warrant guarantee warranty
defect fault error flaw
review audit inspect examine inspection assess assessment evaluate
return refund reimburse repay reimbursement
disclose reveal divulge disclosure
indemnify indemnity indemnification
liable liability
accident mishap
meeting session assembly
minutes
document record documentation
train training educate
password passphrase
premises
immediate prompt promptly immediately
automatic automatically
annual
obtain get secure
deliver delivery ship shipment
insurance insure coverage
require need demand requirement
begin
unlimited uncapped
third-party
restrict restriction
person individual
subcontract subcontractor
access
quote quotation
proof evidence
price cost
tax vat
penalty fine
remove removal eliminate
request
sublet sublease underlet
govern govern governed
rent rental
jurisdiction court venue
"""

# Words that say little about what a clause is about: whom it binds, what it is part of, and units.
_GENERIC = """
    agreement party document service company customer supplier landlord tenant employee employer person clause
    section term condition right obligation organization organisation business firm entity affiliate team time
    date item part system policy process procedure information matter work basis member user staff undersigned
    herewith hour day week month year minute working calendar consecutive percent usd eur gbp chf dollar euro
    pound period monthly annually annual yearly weekly daily quarterly hourly
"""

OPPOSITE_ROLES = {
    "customer": {"supplier"},
    "supplier": {"customer"},
    "landlord": {"tenant"},
    "tenant": {"landlord"},
    "employee": {"employer"},
    "employer": {"employee"},
    "licensor": {"licensee"},
    "licensee": {"licensor"},
    "discloser": {"recipient"},
    "recipient": {"discloser"},
    "controller": {"processor"},
    "processor": {"controller"},
    "borrower": {"lender"},
    "lender": {"borrower"},
}

_OPPOSITES = """mutual unilateral
mutual one-sided
limited unlimited
increase decrease
increase reduce
accept reject
approve reject
approve decline
enable disable
public private
mandatory optional
mandatory voluntary
required optional
obligatory optional
advance arrears
present absent
pass fail
complete incomplete
encrypt plaintext
encrypt cleartext
permanent temporary
perpetual temporary
paid unpaid
internal external
revocable irrevocable
refundable nonrefundable
exclusive nonexclusive
automatic manual
"""

# Ending → what takes its place; the first that fits and leaves a stem of at least the given length is applied.
_ENDINGS = (
    ("ationary", "", 4), ("etition", "et", 3), ("ifications", "if", 2), ("ification", "if", 2),
    ("ifying", "if", 2), ("ified", "if", 2), ("ifies", "if", 2), ("ify", "if", 2), ("izations", "iz", 3),
    ("isations", "iz", 3), ("ization", "iz", 3), ("isation", "iz", 3), ("izing", "iz", 3), ("ising", "iz", 4),
    ("ized", "iz", 3), ("ised", "iz", 4), ("izes", "iz", 3), ("ises", "iz", 4), ("ize", "iz", 3),
    ("ise", "iz", 4), ("abilities", "abl", 2), ("ability", "abl", 2), ("ibility", "ibl", 2), ("able", "abl", 2),
    ("ible", "ibl", 2), ("alities", "al", 3), ("ality", "al", 3), ("ations", "", 4), ("ation", "", 4),
    ("ating", "", 4), ("ated", "", 4), ("ates", "", 4), ("ators", "", 4), ("ator", "", 4), ("ate", "", 4),
    ("ments", "", 3), ("ment", "", 3), ("ances", "", 4), ("ance", "", 4), ("ences", "", 4), ("ence", "", 4),
    ("ically", "", 4), ("ally", "", 4), ("ily", "i", 3), ("ly", "", 4), ("ives", "", 4), ("ive", "", 4),
    ("tions", "t", 3), ("tion", "t", 3), ("sions", "s", 3), ("sion", "s", 3), ("ies", "i", 2), ("ied", "i", 2),
    ("als", "", 4), ("al", "", 4), ("sses", "ss", 2), ("xes", "x", 2), ("ches", "ch", 2), ("shes", "sh", 2),
    ("ings", "", 3), ("ing", "", 3), ("eed", "eed", 1), ("ed", "", 3), ("ss", "ss", 1), ("us", "us", 1),
    ("is", "is", 1), ("es", "", 3), ("s", "", 3), ("ay", "ay", 1), ("ey", "ey", 1), ("oy", "oy", 1),
    ("y", "i", 2), ("e", "", 3),
)  # fmt: skip
# What the stemmer would take for a form of another word: information is not notice, and personal data not a person.
OWN_MEANING = frozenset({"information", "personal"})
_DOUBLED_LETTERS = frozenset("bdgmnprt")


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The word without its ending: `terminates`, `terminated` and `termination` give the same."""
    for ending, instead, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: len(word) - len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] in _DOUBLED_LETTERS:  # noqa: PLR2004
        return word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word  # noqa: PLR2004


_MEANING = {stem(word): stem(line.split()[0]) for line in reversed(_SAME.split("\n")) for word in line.split()}


@lru_cache(maxsize=65_536)
def meaning(word: str) -> str:
    """The stem that stands for the word and for its synonyms; empty for a word that carries none."""
    if word in STOP or word in FIGURE_WORDS or word[0].isdigit():
        return ""
    if word in OWN_MEANING:
        return word
    found = stem(word)
    return _MEANING.get(found, found)


GENERIC = frozenset(map(meaning, _GENERIC.split())) - {""}
OPPOSITE_ROLE = {meaning(role): frozenset(map(meaning, others)) for role, others in OPPOSITE_ROLES.items()}
OPPOSITES: dict[str, set[str]] = {}
for _pair in _OPPOSITES.split("\n")[:-1]:
    _one, _other = (stem(word.replace("-", "")) for word in _pair.split())
    for _left, _right in ((_one, _other), (_other, _one)):
        OPPOSITES.setdefault(_MEANING.get(_left, _left), set()).add(_MEANING.get(_right, _right))


LONGEST_SENTENCE = 1_500
HEADING_WORDS = 8
HEADING_CHARS = 300
LEAD_WORDS = 4
SHORT_LINE = 45

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
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_ITEM = re.compile(
    r"\s*(?:[-*+\u2022\u2023\u25e6\u2013\u2014|>]+\s|\(?\d{1,3}(?:\.\d{1,3})*[.)]\s|\d{1,3}(?:\.\d{1,3})+\s|\(?[a-zA-Z]{1,4}\)\s|#{1,6}\s"
    r"|(?:Article|Section|Clause|ARTICLE|SECTION|CLAUSE)\s+[\dIVX]+\b)"
)
_LABELLED = re.compile(r"\s*[^\s.:;!?][^.:;!?\n]{0,40}[:?]\s")
_ANSWER = re.compile(
    r"\s*(?:(?:A|Ans|Answer|Response|Reply)\s*[:.]|(?:Yes|No|None|Not|Partially|N/A)\b)", re.IGNORECASE
)
# A run of marks is looked at from its first one only: from each of them, a line of dots would take time by its square.
_STOP_MARK = re.compile(r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]]*+(?=\s)|[\u3002\uff01\uff1f]++")
_SHORTENED = """
    e.g i.e eg ie etc inc ltd co corp mr mrs ms dr prof art sec cl para paras vs approx st fig al dept
    incl jr sr plc llc u.s u.k p pp cf ca resp max min ref tel ext v viz bros ave jan feb mar apr jun jul aug
    sep sept oct nov dec
"""
_ABBREVIATIONS = frozenset(_SHORTENED.split())
_LAST_WORD = re.compile(r"[\w.]+$")
_FIGURE_NEXT = re.compile(r"\s*\d")
_GOES_ON = re.compile(r"\s+[a-z]")
_LINE_START = re.compile(r"(?:^|[\r\n])[ \t]*$")
_VERBAL = STOP - {"and", "of", "for", "the", "to", "on", "by", "in", "use", "a", "an"}  # what no heading holds
_CLOSING = ".!?;,:\u3002"


class Sentence(NamedTuple):
    """A sentence with its place, the words of its heading and lead-in, and the block (paragraph) it stands in."""

    start: int
    end: int
    block: int
    heading: str = ""
    lead: str = ""
    is_heading: bool = False


class Word(NamedTuple):
    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    return [Word(normal(found[0]), found.start(), found.end()) for found in WORD.finditer(text)]


@lru_cache(maxsize=65_536)
def normal(word: str) -> str:
    """Small letters, without possessives, ligatures, soft hyphens, invisible characters and line-break hyphens."""
    word = word.casefold()
    if word.isascii() and word.isalnum():
        return word
    word = unicodedata.normalize("NFKC", _DROPPED.sub("", word)).replace("\u2019", "'")
    return word.removesuffix("'s") or word


def stems_of(text: str) -> frozenset[str]:
    return frozenset(found for match in WORD.finditer(text) if (found := meaning(normal(match[0]))))


def split(text: str) -> list[Sentence]:
    """The sentences of a text, in order, without the blank space around them."""
    found: list[Sentence] = []
    heading = lead = ""
    for number, (start, end) in enumerate(_blocks(text)):
        block = text[start:end]
        item = _ITEM.match(block)
        spans = list(_sentences(text, start, end))
        if _is_heading(block, item):
            heading, lead = block[:HEADING_CHARS], ""
            found += [Sentence(*span, number, is_heading=True) for span in spans]
            continue
        lead = lead if item else ""
        own = heading
        for span, after in zip(spans, [*spans[1:], None], strict=True):
            run_in = after is not None and _is_run_in(text, span, after)
            own = text[slice(*span)] if run_in else own
            found.append(Sentence(*span, number, own, lead, is_heading=run_in))
        if block.endswith(":"):
            lead = text[slice(*spans[-1])]
    if all(sentence.is_heading for sentence in found):  # short lines that head nothing are what the text has to say
        found = [sentence._replace(is_heading=False) for sentence in found]
    return _with_answers(text, found)


def _is_run_in(text: str, span: tuple[int, int], after: tuple[int, int]) -> bool:
    """True for a heading at the start of a line that goes on: "7. Termination. Either party …"."""
    start = text[slice(*span)]
    if not 0 < _word_count(start) <= LEAD_WORDS or start[-1] != "." or "\n" in text[span[1] : after[0]]:
        return False
    begins_line = span[0] == 0 or (
        text[span[0] - 1] in " \t\r\n" and _LINE_START.search(text, max(0, span[0] - 9), span[0])
    )
    return bool(begins_line) and not any(word.text in _VERBAL for word in words_of(start))


def _with_answers(text: str, sentences: list[Sentence]) -> list[Sentence]:
    """A question and the answer right after it are one statement."""
    merged: list[Sentence] = []
    for sentence in sentences:
        last = merged[-1] if merged else None
        asked = last is not None and text[last.end - 1] == "?" and text.count("\n", last.end, sentence.start) <= 2  # noqa: PLR2004
        if last and asked and _ANSWER.match(text, sentence.start):
            merged[-1] = Sentence(last.start, sentence.end, last.block, last.heading, last.lead)
        else:
            merged.append(sentence)
    return merged


def _blocks(text: str) -> list[tuple[int, int]]:
    """Paragraphs, list items, numbered clauses, headings and labelled lines; lines of wrapped text stay together."""
    found: list[tuple[int, int]] = []
    open_at, last = -1, ""
    end = 0
    for line in _LINE.finditer(text):
        shown = line[0].strip()
        if not shown:
            if open_at >= 0:
                found.append((open_at, end))
            open_at = -1
            continue
        begin = line.start() + len(line[0]) - len(line[0].lstrip())
        if open_at >= 0 and _starts_anew(last, line[0]):
            found.append((open_at, end))
            open_at = -1
        open_at = begin if open_at < 0 else open_at
        end, last = begin + len(shown), shown
    return found  # the last line is always the empty one at the very end, so nothing is left open


def _starts_anew(last: str, line: str) -> bool:
    if last[-1] in ",(-" or line.lstrip()[0].islower() or last.rpartition(" ")[2] in STOP:
        return False
    short = len(last) < SHORT_LINE and not last.endswith(tuple(_CLOSING))
    return bool(_ITEM.match(line) or _LABELLED.match(line) or last.endswith((":", "?")) or last.startswith("|")) or (
        short or (bool(_LABELLED.match(last + " ")) and len(last) < 2 * SHORT_LINE)
    )


def _is_heading(block: str, item: re.Match[str] | None) -> bool:
    if block[0] in "#|":
        return block[0] == "#"
    if _word_count(block) > HEADING_WORDS or block[-1] in _CLOSING or "\n" in block or ":" in block:
        return False
    bare = (block[item.end() :] if item else block).lstrip(" \t.:*_-\u2013\u2014")
    verbal = any(char.isdigit() for char in bare) or any(word.text in _VERBAL for word in words_of(bare))
    return bool(bare) and not verbal and bare[0].isupper()


def _word_count(text: str) -> int:
    return sum(1 for word in text.split(maxsplit=2 * HEADING_WORDS) if any(map(str.isalpha, word)))


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans between full stops that end a sentence; a very long one is cut at blank space."""
    found: list[tuple[int, int]] = []
    begin = start
    stops = () if text[start] == "|" else _STOP_MARK.finditer(text, start, end)  # a row of a table is one statement
    for mark in stops:
        if _ends_sentence(text, begin, mark):
            found.append((begin, mark.end()))
            begin = mark.end()
    found.append((begin, end))
    pieces = (piece for span in found for piece in _cut(text, *span))
    return [(first, last) for first, last in (_stripped(text, *piece) for piece in pieces) if first < last]


def _ends_sentence(text: str, begin: int, mark: re.Match[str]) -> bool:
    if mark[0][0] != ".":
        return True
    before = _LAST_WORD.search(text, max(begin, mark.start() - 24), mark.start())
    word = before[0].lower() if before else ""
    if (len(word) == 1 and word.isalpha()) or word in _ABBREVIATIONS or _GOES_ON.match(text, mark.end()):
        return False
    if word in {"no", "nos"} and _FIGURE_NEXT.match(text, mark.end()):
        return False
    return not (before and before.start() <= begin + 1 and word.replace(".", "").isdigit())


def _cut(text: str, start: int, end: int) -> list[tuple[int, int]]:
    pieces = []
    while end - start > LONGEST_SENTENCE:
        space = max(text.rfind(char, start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE) for char in " \n\t")
        middle = space if space > 0 else start + LONGEST_SENTENCE
        pieces.append((start, middle))
        start = middle
    return [*pieces, (start, end)]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - (len(piece) - len(piece.rstrip()))


# One document of the offline analyst, split once and indexed, so that looking up a word does not read it again.


NEIGHBOURS = 3
FEW_WORDS = 12


class Document:
    """A text, split once and indexed: which sentence holds which word."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sentences = split(text)

    @cached_property
    def words(self) -> list[Word]:
        return words_of(self.text)

    @cached_property
    def index(self) -> dict[str, list[int]]:
        """Meaning of a word → the sentences that hold it, in order; headings are found through what they head."""
        found: dict[str, list[int]] = {}
        starts = [sentence.start for sentence in self.sentences]
        for word in self.words:
            key = meaning(word.text)
            if not key:
                continue
            place = bisect_right(starts, word.start) - 1
            held = found.setdefault(key, [])
            if not held or held[-1] != place:
                held.append(place)
        return found

    @cached_property
    def context_index(self) -> dict[str, list[int]]:
        """The same for the words of a sentence's heading and lead-in."""
        found: dict[str, list[int]] = {}
        for place, sentence in enumerate(self.sentences):
            for key in self.context(sentence):
                found.setdefault(key, []).append(place)
        return found

    def context(self, sentence: Sentence) -> frozenset[str]:
        key = (sentence.heading, sentence.lead)
        if key not in self._contexts:
            self._contexts[key] = stems_of(" ".join(key))
        return self._contexts[key]

    @cached_property
    def _contexts(self) -> dict[tuple[str, str], frozenset[str]]:
        return {}

    @cached_property
    def _joined(self) -> tuple[str, list[int]]:
        """All words with one space around each, and where each begins in that text."""
        places, place = [], 1
        for word in self.words:
            places.append(place)
            place += len(word.text) + 1
        return f" {' '.join(word.text for word in self.words)} ", places

    def phrase(self, phrase: str) -> tuple[int, int] | None:
        """Where the phrase first stands, whatever its case, quotes, hyphens and line breaks."""
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
        return self.sentences[bisect_right([sentence.start for sentence in self.sentences], place) - 1]

    def shown(self, sentence: Sentence) -> str:
        return self.text[sentence.start : sentence.end]

    def around(self, place: int) -> list[int]:
        """The sentences near the given one, in its block, without itself."""
        block = self.sentences[place].block
        near = range(max(0, place - NEIGHBOURS), min(len(self.sentences), place + NEIGHBOURS + 1))
        return [other for other in near if other != place and self.sentences[other].block == block]

    @cached_property
    def is_english(self) -> bool:
        """False for a text of some length in which the small words of English are rare."""
        return looks_english([word.text for word in self.words[:5_000]])


def looks_english(words: list[str]) -> bool:
    letters = [word for word in words if not word[0].isdigit()]
    held = sum(word in STOP for word in letters)
    foreign = sum(not word.isascii() for word in letters)
    if len(letters) < FEW_WORDS:
        return foreign * 2 <= len(letters)
    return held * 8 >= len(letters) and foreign * 4 <= len(letters)


# Quantities in a sentence: amounts, percentages, spans of time, frequencies and counted things, with their bounds.
#
# "net 30", "thirty (30) days" and "within one month" become numbers that can be compared. A year has 365.25 days, a
# month a twelfth of it, and five business days make a week; figures in different units count as equal within 2 %.


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
_IN_BRACKETS = re.compile(r"\s*+\(\s*+[^\s()\d]{0,3}(\d++(?:[.,]\d++)*+)\s*+(%)?\s*+\)")
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
    doubled = _IN_BRACKETS.match(text, end)
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
