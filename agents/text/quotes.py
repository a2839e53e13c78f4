"""Whether a quote stands in its source: compared character by character, never by likeness. Pure.

A model's offsets are a hint only. Its quote is verified when the very characters stand in the source, at the place that
is nearest to the hint. A quote that is too short to prove anything, or that holds a masked secret, is not looked up.
"""

from audit.redaction import contains_marker

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
