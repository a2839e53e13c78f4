"""The text of a document in pieces, for its page: where chunks begin, and which findings quote which words. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from agents.admin.display import visible

SHOWN_CHARS: Final = 200_000


@dataclass(frozen=True)
class Piece:
    """Words that belong together. `begins` are findings whose quote starts here; `chunk` is set where one begins."""

    text: str
    quoted_by: tuple[Any, ...] = ()
    begins: tuple[Any, ...] = ()
    chunk: Any = None


def pieces(text: str, chunks: Sequence[Any], findings: Sequence[Any], *, limit: int = SHOWN_CHARS) -> list[Piece]:
    """The text from its beginning to the limit, without a character lost or doubled."""
    end = min(len(text), limit)
    quotes = [finding for finding in findings if _is_within(finding, len(text))]
    begins = {chunk.start: chunk for chunk in chunks if chunk.start < end}
    edges = {0, end, *begins}
    for finding in quotes:
        edges |= {min(finding.quote_start, end), min(finding.quote_end, end)}
    ordered = sorted(edges)
    return [
        Piece(
            visible(text[start:stop]),
            quoted_by=tuple(one for one in quotes if one.quote_start <= start and stop <= one.quote_end),
            begins=tuple(one for one in quotes if one.quote_start == start),
            chunk=begins.get(start),
        )
        for start, stop in pairwise(ordered)
    ]


def _is_within(finding: Any, length: int) -> bool:
    start, end = finding.quote_start, finding.quote_end
    return start is not None and end is not None and start < end <= length
