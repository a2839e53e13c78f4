"""Sections of a long text, each short enough for one question to a model. Pure: text in, offsets out.

Sections cover the text exactly and in order. They end where its structure ends something: a page, a heading, a clause;
else where a reader would pause.
"""

import re
from typing import Final

SMALLEST_SHARE: Final = 2  # no section is shorter than this part of its room for the sake of a better end

# What may begin the next section, the best first.
_BEGINNINGS: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"(?<=\f)",
        r"^(?:#{1,6} |(?i:article|section|clause|schedule|annex|appendix|exhibit|part|chapter|§)\s*[\divxlc]+\b)",
        r"^\d{1,3}(?:\.\d{1,3}){0,3}[.)]?[ \t]+\S",
        r"^[^\w\n]{0,3}[A-Z][A-Z0-9 ,&/()'-]{3,80}$",
        r"(?<=\n\n)",
        r"(?<=\n)",
        r"(?<=[.!?\u3002\uff01\uff1f])\s",
        r"(?<=\s)",
    )
)


def section_spans(text: str, start: int, end: int, *, room: int) -> list[tuple[int, int]]:
    """Return the sections of text[start:end], none longer than `room` characters."""
    spans = []
    while end - start > room:
        cut = _best_cut(text, start + room // SMALLEST_SHARE, start + room)
        spans.append((start, cut))
        start = cut
    return [*spans, (start, end)] if start < end else spans


def halves(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return two sections of about the same length."""
    third = (end - start) // 3
    cut = _best_cut(text, start + third, end - third)
    return [(start, cut), (cut, end)]


def _best_cut(text: str, least: int, most: int) -> int:
    """Return the last place of the best kind between two offsets; the second of them if there is none."""
    for beginning in _BEGINNINGS:
        places = [found.start() for found in beginning.finditer(text, least, most)]
        if places:
            return places[-1]
    return most
