"""A short request as words, and grammars over them. Pure.

A grammar covers a request only if every word of it is one that the grammar knows. So whatever is said beside an order
(a negation, a condition, a question about it, a second order) makes it something that the grammar does not cover, and
it goes to the model.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 300
MOST_WORDS: Final = 40
MOST_NAMED: Final = 200
_LOOKED_AT: Final = 2_000
_TOKEN: Final = re.compile(
    r"\"([^\"]*)\"|“([^”]*)”|„([^“”\"]*)[“”\"]|[«»]([^«»]*)[«»]|`([^`]*)`"
    r"|(?<!\w)['\u2018\u201a]([^'\u2018\u2019]*)['\u2018\u2019](?!\w)|([^\s\"“”„«»`]+)|([\"“”„«»`])"
)
_QUOTES: Final = 6  # the first groups of it
_EDGES: Final = re.compile(r"^([(\[{]*)(.*?)([)\]},.;:!?…]*)$")
_ID: Final = re.compile(r"#?(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{0,63}")
_SPACES: Final = frozenset("\t\n\r ")
_FADING: Final = frozenset(",:")
_ENDING: Final = frozenset(",.!…")

EXPANDED: Final = {
    "what's": ("what", "is"),
    "whats": ("what", "is"),
    "how's": ("how", "is"),
    "where's": ("where", "is"),
    "i'd": ("i", "would"),
    "i've": ("i", "have"),
    "we've": ("we", "have"),
    "let's": ("let", "us"),
}
# Said as one: a word of such a phrase alone means something else, and is not in the grammars.
PHRASES: Final[dict[tuple[str, ...], str]] = {
    ("do", "i", "have"): "i-have",
    ("do", "we", "have"): "i-have",
    ("have", "i", "got"): "i-have",
    ("have", "we", "got"): "i-have",
    ("can", "i", "see"): "show",
    ("could", "i", "see"): "show",
    ("may", "i", "see"): "show",
    ("can", "i", "have"): "show",
    ("let", "me", "see"): "show",
    ("a", "list", "of"): "list",
    ("tell", "me"): "show",
    ("let", "me", "know"): "show",
    ("pull", "up"): "show",
    ("bring", "up"): "show",
    ("at", "the", "moment"): "currently",
    ("in", "progress"): "running",
    ("under", "way"): "running",
    ("up", "to"): "up-to",
    ("call", "off"): "call-off",
    ("signed", "off"): "signed-off",
    ("say", "yes", "to"): "approve",
    ("say", "no", "to"): "reject",
    ("is", "there"): "there-is",
    ("are", "there"): "there-is",
    ("how", "many"): "how-many",
    ("how", "much"): "how-much",
    ("so", "far"): "so-far",
    **{
        (last, span + own): f"last-{span}"
        for last in ("last", "previous")
        for span in ("week", "month")
        for own in ("", "'s")
    },
    ("kick", "off"): "kick-off",
    ("shut", "down"): "shut-down",
    ("set", "up"): "set-up",
    ("sign", "off"): "sign-off",
    ("what", "can", "you", "do"): "what-can-you-do",
    ("what", "can", "i", "ask"): "what-can-you-do",
    ("what", "can", "i", "do"): "what-can-you-do",
    ("what", "can", "i", "say"): "what-can-you-do",
    ("what", "can", "you", "help", "with"): "what-can-you-do",
    ("what", "can", "you", "help", "me", "with"): "what-can-you-do",
    ("how", "does", "this", "work"): "what-can-you-do",
    ("how", "do", "i", "use", "this"): "what-can-you-do",
    ("what", "can", "i", "ask", "you"): "what-can-you-do",
    ("what", "can", "i", "ask", "for"): "what-can-you-do",
    ("what", "do", "you", "understand"): "what-can-you-do",
    ("what", "you", "can", "do"): "what-can-you-do",
    ("what", "are", "you", "able", "to", "do"): "what-can-you-do",
    ("how", "can", "you", "help"): "what-can-you-do",
    ("how", "can", "you", "help", "me"): "what-can-you-do",
    ("what", "are", "my", "options"): "what-can-you-do",
    ("i", "approve"): "i-approve",
    ("i", "accept"): "i-accept",
    ("i", "allow"): "i-allow",
    ("i", "permit"): "i-permit",
    ("i", "reject"): "i-reject",
    ("i", "deny"): "i-deny",
    ("i", "refuse"): "i-refuse",
    ("i", "decline"): "i-decline",
}
_BEFORE: Final = (
    "hi", "hello", "hey", "hi there", "hello there", "hey there", "good morning", "good afternoon", "good evening",
    "lqops", "ok", "okay", "please", "pls", "kindly", "just", "quickly", "can you", "could you", "would you",
    "will you", "i want you to", "i would like you to", "i need you to", "i want to", "i would like to", "i need to",
    "go ahead and", "let us", "be so kind and",
)  # fmt: skip
_AFTER: Final = (
    "please", "pls", "thanks", "thank you", "thx", "cheers", "thanks a lot", "many thanks", "thank you very much",
    "for me", "if you can", "if you would", "if you could", "if possible", "now", "right now", "right away",
    "immediately", "at once", "asap",
)  # fmt: skip
_ASKED_OF_YOU: Final = frozenset({"can you", "could you", "would you", "will you"})


@dataclass(frozen=True)
class Word:
    """A word as it is compared, and where it stands in the text. A quoted one is only ever a name or an id."""

    said: str
    start: int
    end: int
    quoted: bool = False

    @property
    def is_id(self) -> bool:
        return _ID.fullmatch(self.said) is not None


@dataclass(frozen=True)
class Request:
    """One short request without its courtesies. `is_question` is false of an order put as one: can you …?"""

    text: str
    words: tuple[Word, ...]
    is_question: bool = False

    def without(self, taken: frozenset[int]) -> "Request":
        """The request as if these words, by their places, had not been said."""
        left = tuple(word for place, word in enumerate(self.words) if place not in taken)
        return Request(self.text, left, self.is_question)

    @property
    def said(self) -> frozenset[str]:
        return frozenset(word.said for word in self.words)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(word.said.lstrip("#") for word in self.words if word.is_id)


def read(text: str) -> Request | None:
    """The words of a text that can be one short order; None for anything longer, odd or of several sentences."""
    if len(text) > 4 * LONGEST or len(stripped := text.strip()) > LONGEST or "\n" in stripped:
        return None
    if any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn"} and char not in _SPACES for char in stripped):
        return None
    marked = _marked(text)
    if len(marked) > MOST_WORDS:
        return None
    asks, marked = _without_courtesies(marked)
    if any(_is_mark(word) for word in marked):
        return None
    return Request(text, _folded(marked), asks) if marked else None


def opening(text: str) -> Request | None:
    """What a short text says after its greeting, marks aside and whatever it is; to see with which word it begins."""
    if len(text.strip()) > LONGEST:
        return None
    asks, marked = _without_courtesies(_marked(text))
    said = [word for word in marked if not _is_mark(word)][:MOST_WORDS]
    return Request(text, _folded(said), asks) if said else None


def plain_words(text: str) -> tuple[Word, ...]:
    """The first words of a text of any length, as they stand; for looking up names, not for judging what is meant."""
    return tuple(word for word in _marked(text[:_LOOKED_AT]) if word.quoted or word.said[:1].isalnum())[:MOST_NAMED]


def _marked(text: str) -> list[Word]:
    """Words and marks, in order. A mark that stands alone is a word that no grammar knows."""
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
            said = core.casefold().replace("\u2019", "'")
            found += [Word(one, start, start + len(core)) for one in EXPANDED.get(said, (said,))]
        found += [Word(mark, match.end() - 1, match.end()) for mark in after]
    return found


def _is_mark(word: Word) -> bool:
    return not word.quoted and len(word.said) == 1 and not word.said.isalnum() and word.said not in _FADING


def _without_courtesies(marked: list[Word]) -> tuple[bool, list[Word]]:
    """What is left between greeting and thanks, and whether it is a question rather than an order put as one."""
    of_you, asked = False, False
    while True:
        if marked and marked[-1].said == "?" and not marked[-1].quoted:
            asked, marked = True, marked[:-1]
        elif marked and marked[-1].said in _ENDING and not marked[-1].quoted:
            marked = marked[:-1]
        elif marked and marked[0].said in _ENDING and not marked[0].quoted:
            marked = marked[1:]
        elif count := _courtesy(marked, _BEFORE, first=True):
            of_you = of_you or " ".join(word.said for word in marked[:count]) in _ASKED_OF_YOU
            marked = marked[count:]
        elif count := _courtesy(marked, _AFTER, first=False):
            marked = marked[:-count]
        else:
            return asked and not of_you, [word for word in marked if word.quoted or word.said not in _FADING]


def _courtesy(marked: list[Word], known: tuple[str, ...], *, first: bool) -> int:
    """How many words at this end are a courtesy; the longest counts, and something has to be left."""
    for count in range(min(5, len(marked) - 1), 0, -1):
        words = marked[:count] if first else marked[-count:]
        if not any(word.quoted for word in words) and " ".join(word.said for word in words) in known:
            return count
    return 0


def _folded(words: list[Word]) -> tuple[Word, ...]:
    found: list[Word] = []
    at = 0
    while at < len(words):
        for count in range(min(6, len(words) - at), 1, -1):
            run = words[at : at + count]
            phrase = PHRASES.get(tuple(word.said for word in run))
            if phrase and not any(word.quoted for word in run):
                found.append(Word(phrase, run[0].start, run[-1].end))
                at += count
                break
        else:
            found.append(words[at])
            at += 1
    return tuple(found)


@dataclass(frozen=True)
class Grammar:
    """`needs` has one word from each of its sets; `also` may be said beside them. Every other word is one too many.

    `ids` is how many ids, or numbers, there may be, least and most. An order (`orders`) is not given with a question
    mark, and has one verb of the first set: to cancel a halt is no halt.
    """

    needs: tuple[frozenset[str], ...]
    also: frozenset[str] = frozenset()
    ids: tuple[int, int] = (0, 0)
    most: int = 14
    orders: bool = False
    verbs: int = 1

    def covers(self, request: Request) -> bool:
        if (self.orders and request.is_question) or len(request.words) > self.most:
            return False
        known = self.also.union(*self.needs)
        plain = [word for word in request.words if word.quoted or word.said not in known]
        least, most = self.ids
        if not all(word.is_id for word in plain) or not least <= len(plain) <= most:
            return False
        said = [word.said for word in request.words if not word.quoted]
        if self.orders and sum(word in self.needs[0] for word in said) > self.verbs:
            return False
        return all(wanted.intersection(said) for wanted in self.needs)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())
