r"""A text as words: where each stands, how it reads without case and accents, and what stands between two of them.

JSON escapes are read through (`\n`, `\u00fc`), since a document quoted in a prompt is often a JSON string. Must not
decide what is personal.
"""

import re
import unicodedata
from collections.abc import Container

from agents.anonymize.spans import Kind, Span

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
    """The text with its escapes read through, every character at the place where it was."""
    return ESCAPE.sub(_read_through, text) if "\\" in text else text


def _read_through(match: re.Match[str]) -> str:
    size = match.end() - match.start()
    if match[1] is None:
        return ("\n" if match[0].endswith("n") else " ").ljust(size)
    return chr(int(match[1], 16)) + MARK * (size - 1)


def fold(word: str) -> str:
    """One form for all cases and accents of a word."""
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
    """One text, read once. `text` has the same length as the original, so places hold in both.

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

    def standing(self, words: Container[str]) -> list[int]:
        """Where one of the words stands."""
        return [at for at, folded in enumerate(self.folded) if folded in words]

    def gap(self, at: int) -> str:
        """What stands before word `at`: blanks as one, quotes and dashes as the plain ones."""
        between = self.text[self.ends[at - 1] : self.starts[at]]
        if between in PLAIN_GAPS:
            return between
        if len(between) > LONGEST_GAP:
            return "\n"
        blank = between.isspace()
        return " " if blank else " ".join(re.split(r"\s+", between.translate(SAME)))

    def breaks(self, at: int) -> bool:
        """True when word `at` begins a new line that is not merely wrapped: a name does not go on over it."""
        end, start = self.ends[at - 1], self.starts[at]
        if self.text.find("\n", end, start) < 0:
            return False
        short = end < WRAPPED_LINE or self.text.find("\n", end - WRAPPED_LINE, end) >= 0
        return short or self.text.count("\n", end, start) > 1

    def begins_line(self, at: int) -> bool:
        start = self.starts[at]
        before = self.text[max(0, start - LONGEST_GAP) : start].rstrip(" \t")
        return before[-1:] in ("", "\n")

    def ends_line(self, at: int) -> bool:
        """True when word `at` is followed by a comma, the end of its line or the end of the text."""
        rest = self.text[self.ends[at] : self.ends[at] + LONGEST_GAP].lstrip(" \t")
        return not rest or rest[0] in ",\n\r"

    def capital(self, at: int) -> bool:
        """A letter that is not lower case: scripts without case count as capital."""
        first = self.text[self.starts[at]]
        return first.isalpha() and not first.islower()

    def cased(self, at: int) -> bool:
        """A word that is not written in lower case throughout: eBay, KPMG, Müller."""
        return not self._written(at).islower() and not self.number(at)

    def shout(self, at: int) -> bool:
        return self._written(at).isupper()

    def _written(self, at: int) -> str:
        return self.text[self.starts[at] : self.ends[at]]

    def number(self, at: int) -> bool:
        return self.folded[at].isdigit()

    def span(self, first: int, last: int, kind: Kind, key: str = "") -> Span:
        return Span(self.starts[first], self.ends[last - 1], kind, key)

    def key(self, first: int, last: int) -> str:
        """Words `first` up to `last`, without it, as one key: Acme Ltd is Acme Limited."""
        return " ".join(SHORTER.get(word, word) for word in self.folded[first:last])
