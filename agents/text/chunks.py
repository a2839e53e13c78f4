"""Chunks of a document for search and retrieval. Pure: text in, offsets out.

Chunks cover the text exactly and in order, so a chunk is always a slice of its document. They end where a reader would
pause: at a paragraph, a line, a sentence, a word.
"""

import re

TARGET_CHARS = 1_600
# A rest of up to this length stays whole, so that the last chunk is not a few words.
LONGEST_CHARS = 2_000
# No chunk is shorter than this for the sake of a better end.
SHORTEST_CHARS = 800

_SENTENCE_END = re.compile(r"[.!?\u3002\uff01\uff1f][\"')\]\u201d\u2019\u00bb]{0,3}\s+")
_SPACE = re.compile(r"\s+")


def chunk_spans(text: str) -> list[tuple[int, int]]:
    spans = []
    start = 0
    while len(text) - start > LONGEST_CHARS:
        end = _end_of_chunk(text, start)
        spans.append((start, end))
        start = end
    if start < len(text):
        spans.append((start, len(text)))
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
