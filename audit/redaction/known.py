"""Values that are known to be secret, such as stored credentials: masked wherever they show.

Owns the set of known values and the one expression that finds them raw, in base64 at any alignment, and escaped.
Percent, JSON and HTML escapes are undone by the readings of the text. Must not keep values on disk or log them.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from threading import Lock

from audit.redaction.alternation import grouped
from audit.redaction.spans import Span

LEAST_LENGTH = 6
_TAIL = "(?:[A-Za-z0-9+/_-]={1,2}|=)?"


class _Known:
    """The values and their expression; replaced as a whole, so that a reader sees one state."""

    lock = Lock()
    values: frozenset[str] = frozenset()
    expression: re.Pattern[str] | None = None


def _escaped_forms(value: str) -> set[str]:
    ascii_form = json.dumps(value)[1:-1]
    forms = {value, ascii_form, json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1], html.escape(value)}
    forms.add(re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), ascii_form))
    # The readings undo percent escapes byte by byte, and JSON escapes by UTF-16 unit.
    forms.add(value.encode("utf-8", "surrogatepass").decode("latin-1"))
    units = value.encode("utf-16-le", "surrogatepass")
    forms.add("".join(chr(low | high << 8) for low, high in zip(units[::2], units[1::2], strict=True)))
    return forms | {form.replace("/", "\\/") for form in forms} | {form.replace(" ", "+") for form in forms}


def _base64_forms(value: str) -> set[str]:
    """The characters of the encoding that depend on the value alone, for each of the three alignments."""
    data = value.encode("utf-8", "surrogatepass")
    forms: set[str] = set()
    for shift in range(3):
        encoded = b64encode(b"\0" * shift + data).decode()
        core = encoded[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        forms |= {core, core.replace("+", "-").replace("/", "_")}
    return forms


def _compiled(values: frozenset[str]) -> re.Pattern[str]:
    forms: set[str] = set()
    for value in values:
        forms |= {re.escape(form) for form in _escaped_forms(value)}
        forms |= {re.escape(form) + _TAIL for form in _base64_forms(value)}
    return re.compile(grouped(forms))


def register_known_secrets(values: Iterable[str]) -> None:
    """Mask these values from now on, along with those registered before; values under 6 characters are ignored."""
    with _Known.lock:
        grown = _Known.values | {value for value in values if len(value) >= LEAST_LENGTH}
        if grown != _Known.values:
            _Known.expression, _Known.values = _compiled(grown), grown


def forget_known_secrets() -> None:
    """Drop every registered value."""
    with _Known.lock:
        _Known.expression, _Known.values = None, frozenset()


def known_spans(text: str) -> Iterator[Span]:
    """Where a known value shows."""
    expression = _Known.expression
    if expression is not None:
        for found in expression.finditer(text):
            yield Span(found.start(), found.end(), "known")
