"""A span is a piece of text that must not be stored: its bounds and the kind of credential it holds.

Owns the merging of overlapping spans, their exclusion from existing markers, and the bound on how many are judged.
Must not look for credentials.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    start: int
    end: int
    kind: str


def most_candidates(text: str) -> int:
    """How many places of a text are judged one by one; text beyond it is masked as a whole."""
    return 1_000 + len(text) // 48


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans with overlaps joined; the widest member names the kind."""
    result: list[Span] = []
    for span in sorted(spans, key=lambda item: (item.start, -item.end)):
        if result and span.start < result[-1].end:
            last = result[-1]
            if span.end > last.end:
                result[-1] = Span(last.start, span.end, last.kind)
        else:
            result.append(span)
    return result


def without(spans: list[Span], holes: list[tuple[int, int]], text: str) -> list[Span]:
    """The parts of `spans` that lie outside `holes` (both sorted) and still hold a letter or a digit."""
    if not holes:
        return spans
    result: list[Span] = []
    first = 0
    for span in spans:
        start = span.start
        while first < len(holes) and holes[first][1] <= start:
            first += 1
        index = first
        while index < len(holes) and holes[index][0] < span.end:
            result.append(Span(start, holes[index][0], span.kind))
            start = max(start, holes[index][1])
            index += 1
        result.append(Span(start, span.end, span.kind))
    return [span for span in result if any(map(str.isalnum, text[span.start : span.end]))]
