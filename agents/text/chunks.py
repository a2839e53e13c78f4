"""Cuts a text into spans that search and retrieval work with. Pure: it sees a text and gives offsets.

The spans cover the text exactly and in order, so a chunk is always the slice of its document, and neighbours join
without a seam. They end where a reader would pause: a paragraph, a line, a sentence, a word.
"""

import re
from typing import NamedTuple

from audit.redaction import contains_marker

TARGET_CHARS = 1_600
# A rest of up to this length stays whole: a last chunk of three words says nothing to anybody.
LONGEST_CHARS = 2_000
# No chunk is cut shorter than this for the sake of a nicer end.
SHORTEST_CHARS = 800

_SENTENCE_END = re.compile(r"[.!?\u3002\uff01\uff1f][\"')\]\u201d\u2019\u00bb]{0,3}\s+")
_SPACE = re.compile(r"\s+")


class Span(NamedTuple):
    start: int
    end: int


def chunk_spans(text: str) -> list[Span]:
    spans, start = [], 0
    while len(text) - start > LONGEST_CHARS:
        end = _end_of_chunk(text, start)
        spans.append(Span(start, end))
        start = end
    if start < len(text):
        spans.append(Span(start, len(text)))
    return spans


def _end_of_chunk(text: str, start: int) -> int:
    least, most = start + SHORTEST_CHARS, start + TARGET_CHARS
    for mark in ("\n\n", "\n"):
        found = text.rfind(mark, least, most)
        if found >= 0:
            return found + len(mark)
    for pause in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in pause.finditer(text, least, most)]
        if ends:
            return ends[-1]
    return most


# --- Whether a quote stands in its source: compared character by character, never by likeness. Pure ---
#
# A model's offsets are a hint only. Its quote is verified when the very characters stand in the source, at the place
# that is nearest to the hint. A quote that is too short to prove anything, or that holds a masked secret, is not
# looked up.


SHORTEST = 4


def is_checkable(quote: str) -> bool:
    """False for what proves nothing wherever it stands, and for what the source cannot hold."""
    return len(quote.strip()) >= SHORTEST and not contains_marker(quote)


def verify(quote: str, source: str, hint_start: int = 0) -> tuple[int, int] | None:
    """Where the quote stands in the source, nearest to the hint: `source[start:end] == quote`. None: it does not."""
    if not is_checkable(quote):
        return None
    hint = min(max(hint_start, 0), len(source))
    after = source.find(quote, hint)
    before = source.rfind(quote, 0, hint + len(quote))
    found = [place for place in (before, after) if place >= 0]
    if not found:
        return None
    start = min(found, key=lambda place: abs(place - hint))
    return start, start + len(quote)
