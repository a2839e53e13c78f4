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
_END_MARKS: Final = frozenset(",.!…")
_CONTRACTIONS: Final = {
    "what's": ("what", "is"),
    "whats": ("what", "is"),
    "how's": ("how", "is"),
    "where's": ("where", "is"),
    "i'd": ("i", "would"),
    "i've": ("i", "have"),
    "we've": ("we", "have"),
    "let's": ("let", "us"),
}
_GREETINGS: Final = (
    "hi", "hello", "hey", "hi there", "hello there", "hey there", "good morning", "good afternoon", "good evening",
    "lqops", "ok", "okay", "please", "pls", "kindly", "just", "quickly", "can you", "could you", "would you",
    "will you", "i want you to", "i would like you to", "i need you to", "i want to", "i would like to", "i need to",
    "go ahead and", "let us", "be so kind and",
)  # fmt: skip
_CLOSINGS: Final = (
    "please", "pls", "thanks", "thank you", "thx", "cheers", "thanks a lot", "many thanks", "thank you very much",
    "for me", "if you can", "if you would", "if you could", "if possible", "now", "right now", "right away",
    "immediately", "at once", "asap",
)  # fmt: skip
_POLITE_QUESTIONS: Final = frozenset({"can you", "could you", "would you", "will you"})


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
    tokens = _tokens(text)
    if len(tokens) > MAX_WORDS:
        return None
    is_question, tokens = _without_courtesies(tokens)
    if not tokens or any(_is_mark(token) for token in tokens):
        return None
    return Request(text, tuple(tokens), is_question)


def read_loosely(text: str) -> Request | None:
    """Read a short text of any form, without its punctuation, to see how it begins."""
    if len(text.strip()) > MAX_CHARS:
        return None
    is_question, tokens = _without_courtesies(_tokens(text))
    plain = [token for token in tokens if not _is_mark(token)][:MAX_WORDS]
    return Request(text, tuple(plain), is_question) if plain else None


def read_names(text: str) -> Request:
    """Read the first words of a text of any length, to look for names in them."""
    tokens = [token for token in _tokens(text[:_MAX_NAME_CHARS]) if token.quoted or token.text[:1].isalnum()]
    return Request(text, tuple(tokens[:_MAX_NAME_WORDS]))


def _tokens(text: str) -> list[Word]:
    """Words and punctuation marks, in order."""
    found: list[Word] = []
    for match in _TOKEN.finditer(text):
        quoted = next((group for group in match.groups()[:_QUOTES] if group is not None), None)
        if quoted is not None:
            found.append(Word(" ".join(quoted.casefold().split()), match.start() + 1, match.end() - 1, quoted=True))
            continue
        edges = _EDGES.match(match[0])
        before, core, after = edges.groups() if edges else ("", match[0], "")
        start = match.start() + len(before)
        found += [Word(mark, match.start(), match.start() + 1) for mark in before]
        if core:
            plain = core.casefold().replace("\u2019", "'")
            found += [Word(part, start, start + len(core)) for part in _CONTRACTIONS.get(plain, (plain,))]
        found += [Word(mark, match.end() - 1, match.end()) for mark in after]
    return found


def _is_mark(word: Word) -> bool:
    return not word.quoted and len(word.text) == 1 and not word.text.isalnum() and word.text not in _SEPARATORS


def _without_courtesies(tokens: list[Word]) -> tuple[bool, list[Word]]:
    """What is left between greeting and thanks, and whether it is a question."""
    polite, asked = False, False
    while True:
        if tokens and tokens[-1].text == "?" and not tokens[-1].quoted:
            asked, tokens = True, tokens[:-1]
        elif tokens and tokens[-1].text in _END_MARKS and not tokens[-1].quoted:
            tokens = tokens[:-1]
        elif tokens and tokens[0].text in _END_MARKS and not tokens[0].quoted:
            tokens = tokens[1:]
        elif count := _courtesy(tokens, _GREETINGS, first=True):
            polite = polite or " ".join(word.text for word in tokens[:count]) in _POLITE_QUESTIONS
            tokens = tokens[count:]
        elif count := _courtesy(tokens, _CLOSINGS, first=False):
            tokens = tokens[:-count]
        else:
            return asked and not polite, [word for word in tokens if word.quoted or word.text not in _SEPARATORS]


def _courtesy(tokens: list[Word], known: tuple[str, ...], *, first: bool) -> int:
    """How many words at this end are a courtesy: the longest one that leaves something."""
    for count in range(min(5, len(tokens) - 1), 0, -1):
        end = tokens[:count] if first else tokens[-count:]
        if not any(word.quoted for word in end) and " ".join(word.text for word in end) in known:
            return count
    return 0


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
