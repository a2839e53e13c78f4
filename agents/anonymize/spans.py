"""A span is a piece of text that must not leave the process: its bounds, its kind, and whom or what it names.

Owns the closed list of kinds and the joining of overlapping spans. Must not look for anything.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What was hidden, as the model reads it. No kind ends with another: a placeholder is read in one way only."""

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
    """`key` names the person, firm or number behind the text; empty when the text itself says it."""

    start: int
    end: int
    kind: Kind
    key: str = ""

    @property
    def weight(self) -> tuple[int, int]:
        """The longest span names the kind; of two equal ones the more specific."""
        return self.end - self.start, -RANK[self.kind]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans, overlapping ones joined, so that nothing they cover is left over. The heaviest names the kind."""
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
