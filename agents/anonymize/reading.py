"""Spans to hide, a text as words, and the phrases to look for in it.

A reading knows where each word stands, how it reads without case and accents, and what stands between two words. JSON
escapes are read through (`\n`, `\u00fc`), since a document quoted in a prompt is often a JSON string. This module must
not decide what is personal.
"""

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

# --- Spans ---


class Kind(StrEnum):
    """The kind of a hidden value, as the model reads it. No kind ends with another, so placeholders are unambiguous."""

    EMAIL = "EMAIL"
    IBAN = "IBAN"
    CARD = "CARD"
    ACCT = "ACCT"
    PHONE = "PHONE"
    IP = "IP"
    ORG = "ORG"
    PERSON = "PERSON"
    TEXT = "TEXT"  # a text that already looked like one of our placeholders


RANK = {kind: rank for rank, kind in enumerate(Kind)}


class Span(NamedTuple):
    """A piece of text that must not leave the process.

    `key` names the person, firm or number behind it; empty when the text itself does.
    """

    start: int
    end: int
    kind: Kind
    key: str = ""

    @property
    def weight(self) -> tuple[int, int]:
        """The longest span names the kind; of two equal ones the more specific."""
        return self.end - self.start, -RANK[self.kind]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted and overlapping ones joined, so that all they cover is hidden.

    The heaviest span names the kind.
    """
    result: list[Span] = []
    heaviest = (0, 0)
    for span in sorted(spans, key=lambda item: (item.start, -item.end, not item.key, item.kind)):
        if not result or span.start >= result[-1].end:
            result.append(span)
            heaviest = span.weight
            continue
        last = result[-1]
        named = span if span.weight > heaviest else last
        heaviest = max(heaviest, span.weight)
        end = max(last.end, span.end)
        whole = (named.start, named.end) == (last.start, end)
        result[-1] = Span(last.start, end, named.kind, named.key if whole else "")
    return result


# --- A text as words ---


MARK = "\u034f"  # a combining mark without shape: it fills the place of what was read through
MARKS = "\u0300-\u036f"
# Scripts written without blanks: every character is a word of its own, so that a name is found inside a sentence.
UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
WORD = re.compile(rf"[{UNSPACED}]|(?:[^\W_{UNSPACED}]++[{MARKS}]*+)++")
ESCAPE = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|[bfnrt])")
SAME = str.maketrans(
    {**dict.fromkeys("\u2018\u2019\u02bc", "'"), **dict.fromkeys("\u2010\u2011\u2013", "-"), MARK: None}
)
SHORTER = {"limited": "ltd", "corporation": "corp", "incorporated": "inc"}
PLAIN_GAPS = frozenset({"", " ", ", ", ". ", ".", "-", "'", "&", " & ", ",", ":", "_"})
LONGEST_GAP = 12
WRAPPED_LINE = 40


def readable(text: str) -> str:
    """Return the text with its escapes decoded, every character at its old offset."""
    return ESCAPE.sub(_read_through, text) if "\\" in text else text


def _read_through(match: re.Match[str]) -> str:
    size = match.end() - match.start()
    if match[1] is None:
        return ("\n" if match[0].endswith("n") else " ").ljust(size)
    return chr(int(match[1], 16)) + MARK * (size - 1)


def fold(word: str) -> str:
    """Return one form for all cases and accents of a word."""
    if word.isascii():
        return word.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", word.casefold()) if unicodedata.category(c) != "Mn")


def has_words(text: str) -> bool:
    return WORD.search(text) is not None


class _Folded(dict[str, str]):
    """Folds each word once. It lives as long as one reading, since words may be names."""

    def __missing__(self, word: str) -> str:
        self[word] = folded = fold(word)
        return folded


class Reading:
    """One text, read once. `text` has the same length as the original, so offsets are the same in both.

    Three lists and not a list of words: a long text has hundreds of thousands.
    """

    __slots__ = ("ends", "folded", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text = readable(text)
        places = [found.span() for found in WORD.finditer(self.text)]
        fold_once = _Folded()
        self.starts = [start for start, _ in places]
        self.ends = [end for _, end in places]
        self.folded = [fold_once[self.text[start:end]] for start, end in places]

    def places_of(self, words: Container[str]) -> list[int]:
        """Return where one of the words stands."""
        return [at for at, folded in enumerate(self.folded) if folded in words]

    def gap(self, at: int) -> str:
        """Return what stands before word `at`: blanks as one, quotes and dashes as the plain ones."""
        between = self.text[self.ends[at - 1] : self.starts[at]]
        if between in PLAIN_GAPS:
            return between
        if len(between) > LONGEST_GAP:
            return "\n"
        return " " if between.isspace() else " ".join(re.split(r"\s+", between.translate(SAME)))

    def starts_new_line(self, at: int) -> bool:
        """Return True when word `at` begins a line that is not merely wrapped: no name continues there."""
        end, start = self.ends[at - 1], self.starts[at]
        if self.text.find("\n", end, start) < 0:
            return False
        is_short = end < WRAPPED_LINE or self.text.find("\n", end - WRAPPED_LINE, end) >= 0
        return is_short or self.text.count("\n", end, start) > 1

    def begins_line(self, at: int) -> bool:
        start = self.starts[at]
        before = self.text[max(0, start - LONGEST_GAP) : start].rstrip(" \t")
        return before[-1:] in ("", "\n")

    def ends_line(self, at: int) -> bool:
        """Return True when a comma, the end of the line or the end of the text follows word `at`."""
        rest = self.text[self.ends[at] : self.ends[at] + LONGEST_GAP].lstrip(" \t")
        return not rest or rest[0] in ",\n\r"

    def is_capitalised(self, at: int) -> bool:
        """Scripts without case count as capitals."""
        first = self.text[self.starts[at]]
        return first.isalpha() and not first.islower()

    def has_capitals(self, at: int) -> bool:
        """Return True for a word that is not all lower case: eBay, KPMG, Müller."""
        return not self._word(at).islower() and not self.is_number(at)

    def is_upper(self, at: int) -> bool:
        return self._word(at).isupper()

    def _word(self, at: int) -> str:
        return self.text[self.starts[at] : self.ends[at]]

    def is_number(self, at: int) -> bool:
        return self.folded[at].isdigit()

    def span(self, first: int, last: int, kind: Kind, key: str = "") -> Span:
        return Span(self.starts[first], self.ends[last - 1], kind, key)

    def key(self, first: int, last: int) -> str:
        """Return the words from `first` to before `last` as one key: Acme Ltd is Acme Limited."""
        return " ".join(SHORTER.get(word, word) for word in self.folded[first:last])


# --- Known phrases ---


class Leaf(NamedTuple):
    """What a phrase stands for. `capital`: only where it is capitalised, since in lower case it may be a plain word."""

    kind: Kind
    key: str
    capital: bool = False

    @property
    def is_full_name(self) -> bool:
        return self.kind is Kind.PERSON and not self.capital


class Found(NamedTuple):
    first: int
    last: int
    leaf: Leaf


class Node:
    __slots__ = ("leaf", "next")

    def __init__(self) -> None:
        self.leaf: Leaf | None = None
        self.next: dict[tuple[str, str], Node] = {}


class Known:
    """Phrases to find in a text: listed by the caller, or found earlier in the call.

    A tree of words, so that a text is read once however many phrases there are. Whole words only; case, accents and
    the width of blanks do not matter. The longest phrase wins; places do not overlap.
    """

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[str, Node] = {}

    def add(self, reading: Reading, first: int, last: int, leaf: Leaf) -> None:
        """Add words `first` up to `last` as a phrase. One that is always hidden stays so."""
        node = self._node(reading, first, last)
        if node.leaf is None or (node.leaf.capital and not leaf.capital):
            node.leaf = leaf

    def add_short(self, reading: Reading, first: int, last: int, leaf: Leaf) -> None:
        """Add the short form of a longer name. When two names share it, it gets a key of its own."""
        node = self._node(reading, first, last)
        if node.leaf is None:
            node.leaf = leaf
        elif node.leaf.capital and node.leaf.key != leaf.key:
            node.leaf = leaf._replace(key=reading.key(first, last))

    def _node(self, reading: Reading, first: int, last: int) -> Node:
        node = self._first.setdefault(reading.folded[first], Node())
        for at in range(first + 1, last):
            node = node.next.setdefault((reading.gap(at), reading.folded[at]), Node())
        return node

    def find(self, reading: Reading) -> Iterator[Found]:
        end = 0
        for at in reading.places_of(self._first):
            found = self._longest(reading, at) if at >= end else None
            if found is not None:
                yield found
                end = found.last

    def _longest(self, reading: Reading, first: int) -> Found | None:
        words = reading.folded
        node: Node | None = self._first[words[first]]
        best = None
        at = first + 1
        while node is not None:
            if node.leaf is not None and not (node.leaf.capital and not reading.is_capitalised(first)):
                best = Found(first, at, node.leaf)
            if at == len(words) or not node.next:
                break
            node = node.next.get((reading.gap(at), words[at]))
            at += 1
        return best
