"""A short request as words, and patterns that it must match as a whole. Pure.

A word too many (a negation, a condition, a question about it, a second request) means that no pattern matches, and the
request goes to the model. The patterns themselves are in phrases.py.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

MAX_CHARS: Final = 300
MAX_WORDS: Final = 40
_MAX_NAME_WORDS: Final = 200
_MAX_NAME_CHARS: Final = 2_000
_TOKEN: Final = re.compile(
    r"\"([^\"]*)\"|“([^”]*)”|„([^“”\"]*)[“”\"]|[«»]([^«»]*)[«»]|`([^`]*)`"
    r"|(?<!\w)['\u2018\u201a]([^'\u2018\u2019]*)['\u2018\u2019](?!\w)|([^\s\"“”„«»`]+)|([\"“”„«»`])"
)
_QUOTES: Final = 6  # the first groups of _TOKEN
_EDGES: Final = re.compile(r"^([(\[{]*)(.*?)([)\]},.;:!?…]*)$")
_ID: Final = re.compile(r"#?(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{0,63}")
_COUNT: Final = re.compile(r"[1-9]\d{0,2}")
_SEPARATORS: Final = frozenset(",:")
_CONTRACTIONS: Final = {
    "what's": ("what", "is"),
    "whats": ("what", "is"),
    "how's": ("how", "is"),
    "i'd": ("i", "would"),
    "i've": ("i", "have"),
    "we've": ("we", "have"),
}
# Courtesies before and after a request.
_GREETING: Final = re.compile(
    r"(?:[\s,.!…]*(?:(?:hi|hello|hey)(?:\s+there)?|good\s+(?:morning|afternoon|evening)|lqops|ok|okay|please|pls|kindly|just|"
    r"quickly|(?:can|could|would|will)\s+you|i\s+(?:want|need)\s+(?:you\s+)?to|i(?:'d|\s+would)\s+like\s+(?:you\s+)?to|"
    r"go\s+ahead\s+and|let(?:'s|\s+us)|be\s+so\s+kind\s+and)(?=[\s,.!…]|$))*[\s,.!…]*",
    re.IGNORECASE,
)
_CLOSING: Final = re.compile(
    r"(?:[\s,.!?…]+(?:please|pls|thanks(?:\s+a\s+lot)?|many\s+thanks|thank\s+you(?:\s+very\s+much)?|thx|cheers|for\s+me|"
    r"if\s+you\s+(?:can|would|could)|if\s+possible|(?:right\s+)?now|right\s+away|immediately|at\s+once|asap)"
    r"(?=[\s,.!?…]|$))*[\s,.!?…]*$",
    re.IGNORECASE,
)
_POLITE_QUESTION: Final = re.compile(r"\b(?:can|could|would|will)\s+you\b", re.IGNORECASE)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- Requests ---


@dataclass(frozen=True)
class Word:
    """A word in lower case, and its position in the text. A quoted word can only be a name or an id."""

    text: str
    start: int
    end: int
    quoted: bool = False

    @property
    def is_id(self) -> bool:
        return _ID.fullmatch(self.text) is not None

    @property
    def slot(self) -> str:
        """What a pattern sees. Slots are in upper case, which no word is."""
        if self.is_id:
            return "COUNT" if _COUNT.fullmatch(self.text) else "ID"
        return "QUOTED" if self.quoted else self.text


@dataclass(frozen=True)
class Request:
    """One short request without its courtesies. "Can you …?" is not a question."""

    text: str
    words: tuple[Word, ...]
    is_question: bool = False

    @property
    def slots(self) -> str:
        return "".join(f"{word.slot} " for word in self.words)

    @property
    def vocabulary(self) -> frozenset[str]:
        return frozenset(word.text for word in self.words)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(word.text.lstrip("#") for word in self.words if word.is_id)

    def without(self, places: frozenset[int]) -> "Request":
        """Leave out the words at these places."""
        return replace(self, words=tuple(word for place, word in enumerate(self.words) if place not in places))


def read(text: str) -> Request | None:
    """Read a text as one short request; None if it is longer, has several sentences or odd characters."""
    if len(text) > 4 * MAX_CHARS or len(stripped := text.strip()) > MAX_CHARS or "\n" in stripped:
        return None
    if any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn"} and char not in "\t\r" for char in stripped):
        return None
    request = _request(text)
    if not 0 < len(request.words) <= MAX_WORDS or any(_is_mark(word) for word in request.words):
        return None
    return request


def read_loosely(text: str) -> Request | None:
    """Read a short text of any form, without its punctuation, to see how it begins."""
    if len(text.strip()) > MAX_CHARS:
        return None
    request = _request(text)
    plain = [word for word in request.words if not _is_mark(word)][:MAX_WORDS]
    return replace(request, words=tuple(plain)) if plain else None


def read_names(text: str) -> Request:
    """Read the first words of a text of any length, to look for names in them."""
    found = [word for word in _tokens(text[:_MAX_NAME_CHARS]) if word.quoted or word.text[:1].isalnum()]
    return Request(text, tuple(found[:_MAX_NAME_WORDS]))


def _request(text: str) -> Request:
    """The words and punctuation between greeting and thanks."""
    plain = text.replace("\u2019", "'")
    greeting = _GREETING.match(plain)
    start = greeting.end() if greeting else 0
    closing = _CLOSING.search(plain, start)
    end = closing.start() if closing else len(plain)
    is_question = "?" in plain[end:] and not _POLITE_QUESTION.search(plain[:start])
    found = [word for word in _tokens(plain, start, end) if word.quoted or word.text not in _SEPARATORS]
    return Request(text, tuple(found), is_question)


def _tokens(text: str, start: int = 0, end: int | None = None) -> list[Word]:
    """Words and punctuation marks, in order."""
    found: list[Word] = []
    for match in _TOKEN.finditer(text, start, len(text) if end is None else end):
        quoted = next((group for group in match.groups()[:_QUOTES] if group is not None), None)
        if quoted is not None:
            found.append(Word(" ".join(quoted.casefold().split()), match.start() + 1, match.end() - 1, quoted=True))
            continue
        edges = _EDGES.match(match[0])
        before, core, after = edges.groups() if edges else ("", match[0], "")
        begin = match.start() + len(before)
        found += [Word(mark, match.start(), match.start() + 1) for mark in before]
        parts = _CONTRACTIONS.get(core.casefold(), (core.casefold(),)) if core else ()
        found += [Word(part, begin, begin + len(core)) for part in parts]
        found += [Word(mark, match.end() - 1, match.end()) for mark in after]
    return found


def _is_mark(word: Word) -> bool:
    return not word.quoted and len(word.text) == 1 and not word.text.isalnum() and word.text not in _SEPARATORS


# --- Patterns ---


@dataclass(frozen=True)
class Pattern:
    """Phrases in one expression. `loose` takes any words for a name, to see whether names are worth looking up."""

    exact: re.Pattern[str]
    loose: re.Pattern[str]
    is_action: bool

    def matches(self, request: Request) -> bool:
        return not (self.is_action and request.is_question) and self.exact.fullmatch(request.slots) is not None

    def may_match(self, request: Request) -> bool:
        return not (self.is_action and request.is_question) and self.loose.fullmatch(request.slots) is not None


def compile_phrases(phrases: Iterable[str], groups: Mapping[str, str], *, is_action: bool) -> Pattern:
    """Compile phrases: `[x]` is optional, `(x|y)` a choice, `*` and `+` repeat it, `{x}` is a group of words.

    Slots: ID is an id or a number, COUNT a number up to 999, NAME the name of something that the person has.
    """
    expression = "|".join(f"(?:{_expression(phrase, groups)})" for phrase in phrases)
    exact = expression.replace("ID ", "(?:ID |COUNT )")
    return Pattern(re.compile(exact), re.compile(exact.replace("NAME ", r"(?:\S+ ){1,12}")), is_action)


def _expression(phrase: str, groups: Mapping[str, str]) -> str:
    while "{" in phrase:
        phrase = re.sub(r"\{(\w+)\}", lambda group: f"({groups[group[1]]})", phrase)
    phrase = re.sub(r"[^\s\[\]()|*+]+", lambda word: f"{re.escape(word[0])}\0", phrase)
    opened = re.sub(r"\s", "", phrase).replace("]*", ")*").replace("[", "(?:").replace("]", ")?")
    return re.sub(r"\((?!\?)", "(?:", opened).replace("\0", " ")


# --- Typing errors in requests that only read ---


MIN_TYPO_CHARS: Final = 4
MAX_TYPOS: Final = 2
_SIMILAR: Final = 0.87
_CORRECTABLE: Final = words(
    "help triggers trigger schedules schedule automations sessions session receipt receipts approvals approval "
    "precedents precedent patterns pattern costs spending expenses budget status health commands agents agent summary "
    "overview pending running failed active waiting queued scheduled paused completed yesterday available"
)
# Words of their own that resemble one of those.
_NOT_TYPOS: Final = words("coasts sending filed heath healthy competed scheduler command pause pauses")


def corrected(request: Request) -> Request | None:
    """The request without its typing errors; None if there are none, or too many."""
    new = tuple(_corrected(word) for word in request.words)
    typos = sum(one is not other for one, other in zip(new, request.words, strict=True))
    return replace(request, words=new) if 0 < typos <= MAX_TYPOS else None


def _corrected(word: Word) -> Word:
    typed = word.text
    if word.quoted or len(typed) < MIN_TYPO_CHARS or typed in _NOT_TYPOS or typed in _CORRECTABLE:
        return word
    alike = [known for known in sorted(_CORRECTABLE) if known[0] == typed[0] and abs(len(known) - len(typed)) <= 1]
    swapped = [known for known in alike if sorted(known) == sorted(typed)]
    meant = swapped or (len(typed) > MIN_TYPO_CHARS and get_close_matches(typed, alike, n=1, cutoff=_SIMILAR))
    return replace(word, text=meant[0]) if meant else word
