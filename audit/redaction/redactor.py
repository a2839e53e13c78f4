"""Finds every credential in a text and puts markers in their place.

Owns the order of the searches and the rounds: the result is searched again until nothing more is found, so that
redacting twice changes nothing. Existing markers are hidden from the search, so that none is ever marked again.
"""

from audit.redaction.known import known_spans
from audit.redaction.markers import MARKER, MARKER_WORD, marker
from audit.redaction.named import assignment_spans, lowered
from audit.redaction.places import place_spans
from audit.redaction.spans import Span, merged, without
from audit.redaction.tokens import block_spans, token_spans
from audit.redaction.views import readings

# A character that no expression takes for a letter, a digit, a space or a delimiter.
_FILL = "\ue000"
ROUNDS = 4


def _search(text: str) -> list[Span]:
    low = lowered(text)
    return [
        *known_spans(text),
        *token_spans(text),
        *block_spans(text),
        *place_spans(text, low),
        *assignment_spans(text, low),
    ]


def find_spans(text: str) -> list[Span]:
    """The credentials in `text`, sorted and disjoint, outside of existing markers."""
    holes: list[tuple[int, int]] = []
    shadow = text
    if MARKER_WORD in text:
        holes = [found.span() for found in MARKER.finditer(text)]
        shadow = MARKER.sub(lambda found: _FILL * len(found[0]), text)
    spans = _search(shadow)
    # What is masked as a whole needs no other reading.
    chain = readings(shadow) if Span(0, len(text), "text") not in spans else []
    for depth, reading in enumerate(chain):
        found = _search(reading.text)
        for outer in reversed(chain[: depth + 1]):
            found = [outer.original(span) for span in found]
        spans += found
    return without(merged(spans), holes, text)


def replaced(text: str, spans: list[Span]) -> str:
    """`text` with a marker for each span."""
    parts: list[str] = []
    # A value that stands in many places is hashed once.
    markers: dict[tuple[str, str], str] = {}
    last = 0
    for span in spans:
        key = (span.kind, text[span.start : span.end])
        if key not in markers:
            markers[key] = marker(*key)
        parts += (text[last : span.start], markers[key])
        last = span.end
    parts.append(text[last:])
    return "".join(parts)


def redact(text: str) -> str:
    """`text` with every credential masked; redacting the result again changes nothing."""
    for _ in range(ROUNDS):
        spans = find_spans(text)
        if not spans:
            return text
        text = replaced(text, spans)
    # Text made to be searched for ever is not worth keeping.
    return marker("text", text) if find_spans(text) else text
