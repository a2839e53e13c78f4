"""Search by words on SQLite. FTS5 says which chunks have a word; which of them fit best is found out here.

FTS5 walks from the newest chunk with a word to older ones and can stop there. To join words or to rank by its bm25 it
goes through all chunks with each of them. So the newest MOST_FOLLOWED chunks of each word are taken, those with the
most words are chosen among them, and these are read and ranked.
"""

import heapq
import json
import math
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final

import snowballstemmer

from agents.knowledge import scope as bounds
from agents.knowledge.scope import COLUMNS, GAP, OWNED, SNIPPET_WORDS, Row, Scope, half_of, most_ranked, read

MOST_READ = 1_000  # chunks of documents in which a common word is looked for
_AT_ONCE: Final = 500
SHORTEST: Final = 3  # shorter words have no endings

_FOLLOWED = "SELECT rowid FROM chunk_fts WHERE chunk_fts MATCH %s ORDER BY rowid DESC LIMIT %s"
_IN_DOCUMENTS = "SELECT id FROM agents_chunk WHERE document_id IN (SELECT value FROM json_each(%s))"
_ROWS = f"""
SELECT {COLUMNS}, chunk.text
FROM agents_chunk AS chunk JOIN agents_document AS document ON document.id = chunk.document_id
WHERE chunk.id IN (SELECT value FROM json_each(%s)) AND {OWNED} {{within}}
ORDER BY chunk.id DESC
LIMIT %s
"""  # noqa: S608 made of constants; what people enter is passed as parameters
_TOKEN = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
# The usual constants of BM25: how soon a word that stands often counts no more, and how much long chunks lose.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75


def find(scope: Scope, words: Sequence[str], limit: int) -> list[Row]:
    """Return the best chunks: with all of the words, then with half of them, then the others, each by BM25."""
    followed = {word: [pk for (pk,) in read(_FOLLOWED, [_quoted(word), bounds.MOST_FOLLOWED])] for word in words}
    rows = _candidates(scope, followed, limit)
    query = _Query(words)
    counts = {pk: query.count(row[-1]) for pk, row in rows.items()}
    for word, ids in followed.items():
        for pk in counts.keys() & ids:
            counts[pk].setdefault(word, 1)
    scores = _bm25(counts, {pk: len(row[-1]) for pk, row in rows.items()})
    order = sorted((-query.part(counts[pk]), -score, pk) for pk, score in scores.items() if counts[pk])
    return [(*rows[pk][:-1], query.snippet(rows[pk][-1])) for *_, pk in order[:limit]]


def _quoted(word: str) -> str:
    return f'"{word.replace(chr(34), chr(34) * 2)}"'


def _candidates(scope: Scope, followed: Mapping[str, Sequence[int]], limit: int) -> dict[int, Row]:
    """Return the newest chunks with all of the words, with half of them and with any."""
    most = most_ranked(limit)
    documents = scope.newest_documents()
    few = len(documents) <= bounds.MOST_DOCUMENTS
    inside = _chunks(documents) if few else None
    rows: dict[int, Row] = {}
    for words, number in _parts([*followed]):
        ids = _having({word: followed[word] for word in words}, number)
        newest = heapq.nlargest(most, ids & inside) if inside is not None else sorted(ids, reverse=True)
        rows |= _read(scope, newest, most)
    # Of a common word it is not known which older chunks have it.
    unknown = max((ids[-1] for ids in followed.values() if _is_cut(ids)), default=0)
    if unknown and (few or len(rows) < limit):
        older = (pk for pk in (inside or _chunks(documents[: bounds.MOST_DOCUMENTS])) if pk < unknown)
        rows |= _read(scope, heapq.nlargest(MOST_READ, older), MOST_READ)
    return rows


def _parts(words: list[str]) -> list[tuple[list[str], int]]:
    """Return words, and how many of them a chunk of the part has."""
    parts = [(words, len(words)), half_of(words), (words, 1)]
    return parts if len(words) > 2 else parts[::2] if len(words) > 1 else parts[:1]  # noqa: PLR2004 half of two is any


def _is_cut(ids: Sequence[int]) -> bool:
    return len(ids) >= bounds.MOST_FOLLOWED


def _having(followed: Mapping[str, Sequence[int]], number: int) -> set[int]:
    """Return the chunks with so many of the words, at least. An older one may have every common word."""
    counts = Counter(chain.from_iterable(followed.values()))
    if number == 1:
        return set(counts)
    ends = sorted(ids[-1] for ids in followed.values() if _is_cut(ids))
    return {pk for pk, times in counts.items() if times + len(ends) - bisect_right(ends, pk) >= number}


def _chunks(documents: Sequence[int]) -> set[int]:
    return {pk for (pk,) in read(_IN_DOCUMENTS, [json.dumps(documents)])}


def _read(scope: Scope, ids: Sequence[int], most: int) -> dict[int, Row]:
    """Return the first of these chunks that are in the scope."""
    sql = _ROWS.format(within=scope.each_within)
    rows: dict[int, Row] = {}
    for at in range(0, len(ids), _AT_ONCE):
        some = json.dumps(ids[at : at + _AT_ONCE])
        rows |= {row[0]: row for row in read(sql, [some, *scope.parameters, most - len(rows)])}
        if len(rows) >= most:
            break
    return rows


class _Query:
    """The words of a query much as FTS5 has them: small letters, no accents, no endings. Of some it makes several."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = {word: [_stem(token) for token in _TOKEN.findall(_plain(word))] for word in words}
        self.stems = {one for stems in self.words.values() for one in stems}
        longest, self.half = half_of(words)
        self.longest = set(longest)
        # Words with other beginnings are passed over: a stem begins like its word. Letters come first, for they are
        # found sooner than the beginning of any word.
        beginnings = sorted({re.escape(one[:2]) for one in self.stems})
        self.token = re.compile("|".join(rf"{one}(?<![^\W_]{one})[^\W_]*" for one in beginnings))

    def count(self, text: str) -> dict[str, int]:
        """Return how often each word stands in the text."""
        plain = _plain(text)
        found = [*map(_stem, self.token.findall(plain))]
        counts = {}
        for word, stems in self.words.items():
            if times := found.count(stems[0]) if len(stems) == 1 else self._in_a_row(stems, plain):
                counts[word] = times
        return counts

    def _in_a_row(self, stems: Sequence[str], plain: str) -> int:
        """Return how often these words follow one another, with no others between them."""
        found, times = [*self.token.finditer(plain)], 0
        for at in range(len(found) - len(stems) + 1):
            some = found[at : at + len(stems)]
            gaps = (plain[one.end() : other.start()] for one, other in pairwise(some))
            times += [_stem(match[0]) for match in some] == stems and not any(map(_TOKEN.search, gaps))
        return times

    def part(self, counts: Mapping[str, int]) -> int:
        """Return 2 if a chunk has all of the words, 1 if it has half of them."""
        if len(counts) == len(self.words):
            return 2
        return int(len(self.longest & counts.keys()) >= self.half)

    def snippet(self, text: str) -> str:
        """Return the words around most of the different words that are found."""
        plain, pieces = _plain(text), text.split()
        found = [
            (len(plain[: match.start() + 1].split()) - 1, one)
            for match in self.token.finditer(plain)
            if (one := _stem(match[0])) in self.stems
        ]
        before = SNIPPET_WORDS // 4
        different = [len({one for at, one in found if 0 <= at - first < SNIPPET_WORDS - before}) for first, _ in found]
        first = max(found[different.index(max(different))][0] - before, 0) if found else 0
        last = first + SNIPPET_WORDS
        shown = " ".join(pieces[first:last])
        return (GAP.lstrip() if first else "") + shown + (GAP.rstrip() if last < len(pieces) else "")


def _bm25(counts: Mapping[int, Mapping[str, int]], lengths: Mapping[int, int]) -> dict[int, float]:
    """Return how well each chunk fits. What few of them have counts more, and more so in a short one."""
    having = Counter(chain.from_iterable(counts.values()))
    weights = {word: math.log(1 + (len(counts) - number + 0.5) / (number + 0.5)) for word, number in having.items()}
    average = sum(lengths.values()) / max(len(lengths), 1)
    scores = {}
    for pk, found in counts.items():
        slow = _SATURATION * (1 - _LENGTH + _LENGTH * lengths[pk] / average)
        scores[pk] = sum(weights[word] * times / (times + slow) for word, times in found.items())
    return scores


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    if len(word) < SHORTEST:
        return word
    return str(snowballstemmer.stemmer("porter").stemWord(word))  # one of its own: threads would disturb each other


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    return _ACCENTS.sub("", unicodedata.normalize("NFD", text.lower()))
