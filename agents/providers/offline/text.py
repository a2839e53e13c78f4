"""Reading text for the offline analyst: sentences, stems of words, and figures with their units.

Pure, and linear in the length of the text. Everything keeps its offsets, so that every quote is exact.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import snowballstemmer

from audit.repetition import possessive

# --- Words ---

# Function words of English, units, and words of every contract: they say nothing about the subject of a clause.
_STOP_WORDS: Final = """
    a about after against agreement all also an and any are as at be been before being between both but by can cannot
    clause contract could customer did do does each either every exceed exceeding for from given had has have he her his
    how however i if in including into is it its least made may might more most must neither net no nor not of on one
    only or other our out over own parties party per provided section shall she should so some state such supplier than
    that the their them then there these they this those to under unless until up upon was we were what when where
    whether which while who will with within without would you your business percent usd eur gbp chf jpy
    minute minutes hour hours day days daily week weeks weekly month months monthly year years yearly annual annually
"""
STOP: Final = frozenset(_STOP_WORDS.split())
# Forms of one word that the stemmer keeps apart.
_FORMS: Final = {
    **dict.fromkeys(("paid", "payment", "payments", "payable"), "pay"),
    **dict.fromkeys(("notice", "notices", "notification", "notifications"), "notify"),
    **dict.fromkeys(("indemnity", "indemnities", "indemnification"), "indemnify"),
}
_ENGLISH_SHARE: Final = 8  # one word in so many is a stop word
# Small words of other languages that English does not have. A log or a table has few small words of any.
_OTHER_WORDS: Final = """
    aan af alla ao att auch auf aux av avec az bij bir bu ce cette che como con da dan dans dari das dass dei
    del della dem den dengan der des det di do dos du een egy ei ein eine einen el em er est está et ett että
    für gli har het hogy ikke il ile im inte ist için ja jako je jest la las le les lo los med mit más na naar
    ne nel nem není nicht nie niet non não och oder og olarak on ook oraz os ovat pada par para pas per por
    pour pro przez på que qui se sich sin się som sono sont su sur tai tidak til till uma una und une untuk
    van ve von voor werden wird wordt yang zijn zu är é és że že
"""
_OTHER_LANGUAGES: Final = frozenset(_OTHER_WORDS.split())
_OTHER_SHARE: Final = 12  # one word in so many is one of those
_ACCENTED_SHARE: Final = 8  # one word in so many has letters that English does not have
_FEW_WORDS: Final = 12
_DIGITS: Final = r"\d++" + possessive(r"[.,]\d++")
_WORD: Final = re.compile(rf"{_DIGITS}|[^\W\d_]++(?:['\u2019][^\W\d_]++)?")


class Word(NamedTuple):
    """A word in lower case with its place in the text."""

    text: str
    start: int


def words_of(text: str) -> list[Word]:
    lowered = ((found[0].lower().replace("\u2019", "'"), found.start()) for found in _WORD.finditer(text))
    return [Word(word.removesuffix("'s"), start) for word, start in lowered]


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a word; empty for a number and for a word that says nothing about the subject."""
    if word in STOP or word in _NUMBER_WORDS or word[:1].isdigit():
        return ""
    stemmer = snowballstemmer.stemmer("english")  # one of its own: threads would disturb each other
    return str(stemmer.stemWord(_FORMS.get(word, word)))


def stems_of(text: str) -> frozenset[str]:
    return frozenset(filter(None, (stem(word.text) for word in words_of(text))))


def looks_english(words: Sequence[Word]) -> bool:
    """Whether a text is English, or has so few words of any language, as a log has, that nothing speaks against it."""
    letters = [word.text for word in words if not word.text[:1].isdigit()]
    if len(letters) < _FEW_WORDS:
        return 2 * sum(not word.isascii() for word in letters) <= len(letters)
    if _ENGLISH_SHARE * sum(word in STOP for word in letters) >= len(letters):
        return True
    if _ACCENTED_SHARE * sum(not word.isascii() for word in letters) >= len(letters):
        return False
    return _OTHER_SHARE * sum(word in _OTHER_LANGUAGES for word in letters) < len(letters)


# --- Sentences ---

MAX_SENTENCE: Final = 1_500
_HEADING_CHARS: Final = 300
_HEADING_WORDS: Final = 6
_WRAPPED_LINE: Final = 45  # a shorter line is not wrapped: the next one begins anew
_CONTEXT_SHARE: Final = 0.8
_ITEM: Final = re.compile(
    r"(?:[-*+|>#\u2022\u2013]+|\(?(?:\d{1,3}(?:\.\d{1,3})*|[a-zA-Z]{1,3})[.)]|\d{1,3}(?:\.\d{1,3})+)\s"
)
_SENTENCE_END: Final = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]]*+(?=\s)(?!\s+[a-z])|[\u3002\uff01\uff1f]++"
)
_NO_END: Final = re.compile(r"(?:^\W*\d[\d.]*|\b(?:[A-Za-z]|Art|Sec|Co|Inc|Ltd|Mr|Mrs|Dr|No|vs))$")
_STATEMENT: Final = re.compile(
    r"[\d:|]|[.!?;,\u3002]$|\b(?:shall|must|may|will|is|are|was|were|has|have|be|not|no|it|we|this)\b",
    re.IGNORECASE,
)


class Sentence(NamedTuple):
    """A sentence with its place. `context` is the heading, question or lead-in (`The Supplier shall:`) above it."""

    start: int
    end: int
    context: str = ""
    is_heading: bool = False


def split_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text, in order, without the blank space around them."""
    found: list[Sentence] = []
    heading = lead = ""
    for start, end in _blocks(text):
        block = text[start:end]
        item = _ITEM.match(block)
        marks = item.end() if item else 0
        if block.startswith("#") or _is_heading(block[marks:]):
            heading, lead = block[:_HEADING_CHARS], ""
            found.append(Sentence(start, min(end, start + MAX_SENTENCE), is_heading=True))
            continue
        lead = lead if item or lead.endswith("?") else ""
        spans = _spans(text, start, end)
        for number, span in enumerate(spans):
            sentence = text[slice(*span)]
            is_run_in = number == 0 and len(spans) > 1 and _is_heading(sentence[marks:].removesuffix("."), 3)
            is_heading = is_run_in or sentence.endswith("?")
            found.append(Sentence(*span, lead or heading, is_heading=is_heading))
            if is_heading or sentence.endswith(":"):
                lead = sentence[:_HEADING_CHARS]
    if all(sentence.is_heading for sentence in found):  # short lines with nothing below them are the text itself
        found = [sentence._replace(is_heading=False) for sentence in found]
    return found


def _blocks(text: str) -> list[tuple[int, int]]:
    """Paragraphs, list items, headings and short lines; lines of wrapped text stay together."""
    found: list[tuple[int, int]] = []
    place = 0
    last = ""  # the line before, empty after a blank one
    for line in text.splitlines(keepends=True):
        content = line.strip()
        start = place + len(line) - len(line.lstrip())
        if content:
            begin = found.pop()[0] if last and _goes_on(last, content) else start
            found.append((begin, start + len(content)))
        last = content
        place += len(line)
    return found


def _goes_on(last: str, line: str) -> bool:
    if _ITEM.match(line) or last[0] in "|#":
        return False
    return line[0].islower() or (len(last) >= _WRAPPED_LINE and last[-1] not in ".!?:;")


def _is_heading(block: str, most_words: int = _HEADING_WORDS) -> bool:
    """Return True for a few words, like "Term and termination", that say nothing by themselves."""
    is_short = len(block.split(maxsplit=most_words)) <= most_words
    return is_short and block[:1].isupper() and not _STATEMENT.search(block)


def _spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans between the marks that end a sentence, without blank space. A row of a table is one sentence."""
    found: list[tuple[int, int]] = []
    begin = start
    for mark in () if text[start] == "|" else _SENTENCE_END.finditer(text, start, end):
        if mark[0] != "." or not _NO_END.search(text[max(begin, mark.start() - 9) : mark.start()]):
            found.append((begin, mark.end()))
            begin = mark.end()
    pieces = [
        (place, min(place + MAX_SENTENCE, stop))
        for begin, stop in [*found, (begin, end)]
        for place in range(begin, stop, MAX_SENTENCE)
    ]
    return [_stripped(text, *piece) for piece in pieces if text[slice(*piece)].strip()]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


@lru_cache(maxsize=1_024)
def _context_stems(context: str) -> frozenset[str]:
    return stems_of(context)


class Document:
    """A text with its sentences, and an index of the words that they hold."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sentences = split_sentences(text)
        self._starts = [sentence.start for sentence in self.sentences]

    @cached_property
    def words(self) -> list[Word]:
        return words_of(self.text)

    @cached_property
    def is_english(self) -> bool:
        return looks_english(self.words[:5_000])

    @cached_property
    def index(self) -> dict[str, dict[int, float]]:
        """Stem of a word → the sentences that hold it; in the context of a sentence it counts for less."""
        found: dict[str, dict[int, float]] = {}
        for word in self.words:
            if key := stem(word.text):
                found.setdefault(key, {})[self.sentence_at(word.start)] = 1.0
        for number, sentence in enumerate(self.sentences):
            for key in _context_stems(sentence.context):
                found.setdefault(key, {}).setdefault(number, _CONTEXT_SHARE)
        return found

    def phrase(self, phrase: str) -> tuple[int, int] | None:
        """Return the first place of a phrase, whatever its case and the marks and line breaks between its words."""
        wanted = r"[\W_]++".join(re.findall(r"[^\W_]+", phrase))
        if not wanted:
            return None
        found = re.search(rf"(?<![A-Za-z0-9]){wanted}(?![A-Za-z0-9])", self.text, re.IGNORECASE)
        return found.span() if found else None

    def sentence_at(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1

    def sentence_text(self, number: int) -> str:
        """The sentence with its lead-in, which belongs to what it says."""
        sentence = self.sentences[number]
        text = self.text[sentence.start : sentence.end]
        return f"{sentence.context} {text}" if sentence.context.endswith(":") else text


# --- Figures ---

MOST, LEAST = "at most", "at least"
DAYS: Final = "days"
_SAME_WITHIN: Final = 0.02  # one month and 30 days are the same span of time
_BOUND_CHARS: Final = 60
_DAYS_IN: Final = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 365.25 / 12, "year": 365.25}
_CURRENCIES: Final = {"$": "USD", "€": "EUR", "£": "GBP", "dollar": "USD", "euro": "EUR", "pound": "GBP"}
_CURRENCIES.update((code.lower(), code) for code in ("USD", "EUR", "GBP", "CHF", "JPY"))
_SCALES: Final = {"thousand": 1e3, "million": 1e6, "billion": 1e9}
_SMALL_NUMBERS: Final = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
"""
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS: Final = {word: float(value) for value, word in enumerate(_SMALL_NUMBERS.split())}
_NUMBER_WORDS.update((word, 10.0 * value) for value, word in enumerate(_TENS.split(), 2))
_ANY_NUMBER: Final = "|".join(sorted(_NUMBER_WORDS, key=len, reverse=True))
_QUANTITY: Final = re.compile(
    rf"""
    (?: \b(?P<net>net)[\s-]++ | (?P<currency>\b(?:USD|EUR|GBP|CHF|JPY)|[$€£])\s? )?
    (?P<number>
        (?: (?<![\w.,])(?P<digits>{_DIGITS}) | \b(?P<words>(?:{_ANY_NUMBER})(?:-(?:{_ANY_NUMBER}))?)\b )
        (?: \s(?P<scale>thousand|million|billion)\b )?
    )
    (?:
        [ \t\r\n)-]*+(?:(?:business|working|calendar|full)\s+)?
        (?: (?P<percent>%|per\s?cent\b) | (?P<unit>€|[^\W\d_]++) )
    )?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BOUND: Final = re.compile(
    r"(?P<negated>\b(?:no|not|never)\s+(?:to\s+)?(?:be\s+)?)?\b"
    r"(?:(?:at\s+least|minimum|exceed\w*|over|above|more|later|longer|greater|higher)"
    r"|(?P<most>within|at\s+most|maximum|up\s+to|limited|capped|under|below|less|fewer|earlier|shorter|lower))\b"
    r"(?:\s+(?:a|an|the|of|to|at|by|than|period))*(?:\s+[\w-]+\s*\()?\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, and whether it is a limit."""

    value: float
    unit: str
    text: str
    bound: str = ""


def quantities(text: str) -> list[Quantity]:
    """Return the quantities of a sentence, in order: spans of time, money, percentages and counted things."""
    return [one for match in _QUANTITY.finditer(text) if (one := _quantity(text, match))]


def _quantity(text: str, match: re.Match[str]) -> Quantity | None:
    value = figure(match["digits"]) if match["digits"] else _in_words(match["words"])
    value *= _SCALES.get((match["scale"] or "").lower(), 1)
    word = (match["unit"] or "").lower().removesuffix("s")
    bound = _bound(text[max(0, match.start() - _BOUND_CHARS) : match.start()])
    if match["net"]:
        unit = DAYS
        bound = MOST
    elif match["currency"]:
        unit = _CURRENCIES[match["currency"].lower()]
    elif word in _DAYS_IN:
        unit = DAYS
        value *= _DAYS_IN[word]
    else:
        unit = "%" if match["percent"] else _CURRENCIES.get(word) or stem(word)
    if not unit:
        return None
    end = match.end("number") if match["net"] or match["currency"] else match.end()
    return Quantity(value, unit, text[match.start() : end].replace(")", ""), bound)


def _in_words(words: str) -> float:
    return sum(_NUMBER_WORDS[word] for word in words.lower().split("-"))


def _bound(before: str) -> str:
    found = _BOUND.search(before)
    if found is None:
        return ""
    return MOST if bool(found["most"]) != bool(found["negated"]) else LEAST


def figure(digits: str) -> float:
    """Read a figure in English notation."""
    whole, _, rest = digits.replace(",", "").partition(".")
    return float(f"{whole[:18]}.{rest.replace('.', '')[:9] or '0'}")


def compare(found: Quantity, wanted: Quantity) -> int:
    """Return -1, 0 or 1: the first is smaller, equal or greater."""
    tolerance = _SAME_WITHIN * wanted.value if wanted.unit == DAYS else 0.0
    if abs(found.value - wanted.value) <= tolerance:
        return 0
    return -1 if found.value < wanted.value else 1


def pairs(found: Sequence[Quantity], wanted: Sequence[Quantity]) -> list[tuple[Quantity | None, Quantity]]:
    """Return each wanted quantity with the first of its unit that no other has taken."""
    left = list(found)
    paired: list[tuple[Quantity | None, Quantity]] = []
    for one in wanted:
        match = next((other for other in left if other.unit == one.unit), None)
        if match:
            left.remove(match)
        paired.append((match, one))
    return paired


def difference(found: Quantity, wanted: Quantity) -> str:
    """Say why the found quantity does not satisfy the wanted one; empty when it does."""
    order = compare(found, wanted)
    if order > 0 and wanted.bound != LEAST:
        return f"{found.text!r} is more than {wanted.text!r}"
    if order < 0 and wanted.bound != MOST:
        return f"{found.text!r} is less than {wanted.text!r}"
    return ""
