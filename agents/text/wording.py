"""Compares short texts: whether two say the same in other marks, and which words they share.

Pure. Words are compared by their English stems; a text in another language is compared word by word.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import snowballstemmer

# Words that say nothing about a subject.
FILLERS: Final = frozenset({
    "a", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "do", "does", "for", "from", "had",
    "has", "have", "how", "if", "in", "into", "is", "it", "its", "may", "of", "on", "or", "shall", "should", "so",
    "such", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "was", "were",
    "what", "when", "where", "which", "who", "whose", "why", "will", "with", "would", "you", "your",
})  # fmt: skip
_QUOTES: Final = '"`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a\u00ab\u00bb\u2032\u2033'
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_MARKS: Final = str.maketrans({**dict.fromkeys(_QUOTES, "'"), **dict.fromkeys(_DASHES, "-")})
_AROUND_DASH: Final = re.compile(r"\s*-\s*")
_EDGES: Final = " '.,;:!?…"
_WORD: Final = re.compile(r"[^\W_]+")


def normalised(text: str) -> str:
    """Return a text in which case, spaces, the kind of quotes and dashes, and marks at the ends do not count."""
    plain = unicodedata.normalize("NFKC", text.translate(_MARKS)).casefold().translate(_MARKS)
    line = _AROUND_DASH.sub("-", " ".join(plain.split()))
    return line.strip(_EDGES) or line


def text_key(text: str) -> str:
    """Return the digest of the normalised text: equal for texts that say the same."""
    return hashlib.sha256(normalised(text).encode("utf-8", "surrogatepass")).hexdigest()


def label(text: str, *, limit: int) -> str:
    """Return a name for a kind of thing in one form: lower case, words joined by underscores."""
    return "_".join(_WORD.findall(normalised(text)))[:limit].rstrip("_")


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(snowballstemmer.stemmer("english").stemWord(word))  # one of its own: threads would disturb each other


def stems(text: str) -> frozenset[str]:
    """Return the stems of the words that say something about the subject; a figure is a word."""
    words = set(_WORD.findall(unicodedata.normalize("NFKC", text).casefold())) - FILLERS
    return frozenset(_stem(word) for word in words)


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return which part of their words two texts share, from 0 to 1."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def shared_weights(wanted: Iterable[str], texts: Sequence[frozenset[str]]) -> list[float]:
    """Return for each text how much it shares with what is wanted: a rare word weighs more than a common one."""
    sought = frozenset(wanted)
    shared = [sought & text for text in texts]
    holders = Counter(stem for found in shared for stem in found)
    return [sum(1 / holders[stem] for stem in sorted(found)) for found in shared]
