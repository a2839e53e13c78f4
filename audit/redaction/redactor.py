"""Mask every credential in a text: start reading here.

`redact` searches a text (`find_spans`) and puts a marker in the place of each credential, until a search finds nothing.
A search (`_search`) asks five finders: registered secrets (below), token formats and key blocks (patterns.py), places
such as headers and commands (places.py), and names such as `password=` (named.py). The decoded readings of the text
are searched as well. Below follow the same for JSON-shaped data, exceptions, log records and streams.
"""

import hmac
import html
import json
import logging
import re
import secrets
import traceback
from base64 import b64encode
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

from audit.redaction.named import STEMS, Strength, assignment_spans, looks_random, lowered, name_strength
from audit.redaction.patterns import BLOCK_SIGNS, RUN_SIGN, Span, block_spans, grouped, token_spans
from audit.redaction.places import PLACE_SIGNS, place_spans, readings

# --- One text ---

ROUNDS = 4
# A character that no expression takes for a letter, a digit, a space or a delimiter.
_FILL = "\ue000"


def redact(text: str) -> str:
    """Mask every credential in `text`; redacting the result again changes nothing."""
    if _WORD.fullmatch(text) and not (_Known.expression and _Known.expression.search(text)):
        return text
    for _ in range(ROUNDS):
        spans = find_spans(text)
        if not spans:
            return text
        text = _masked(text, spans)
    # Text crafted so that every round finds something is masked as a whole.
    return marker("text", text) if find_spans(text) else text


# One short word, such as the name of a field: too short for a token, and beside no name or place of a credential.
_WORD = re.compile(r"[a-z_]{0,24}")
# What at least one of the finders has to see in a lowered text, or an escape. A long text has one of them anyway.
_SIGN = re.compile(rf"{grouped(map(re.escape, (*PLACE_SIGNS, *STEMS, *BLOCK_SIGNS)))}|{RUN_SIGN}|[%\\&]")
_SHORT = 48


def find_spans(text: str) -> list[Span]:
    """Return the credentials in `text`, sorted and disjoint, outside of existing markers."""
    if _WORD.fullmatch(text) or (len(text) <= _SHORT and not _SIGN.search(lowered(text))):
        return _merged([*_known_spans(text)])
    markers: list[tuple[int, int]] = []
    hidden = text
    if MARKER_WORD in text:
        markers = [found.span() for found in MARKER.finditer(text)]
        hidden = MARKER.sub(lambda found: _FILL * len(found[0]), text)
    spans = _search(hidden)
    # A text that is masked as a whole needs no other reading.
    chain = readings(hidden) if Span(0, len(text), "text") not in spans else []
    for depth, reading in enumerate(chain):
        found = _search(reading.text)
        for outer in reversed(chain[: depth + 1]):
            found = [outer.original(span) for span in found]
        spans += found
    return _outside(_merged(spans), markers, text)


def _search(text: str) -> list[Span]:
    low = lowered(text)
    return [
        *_known_spans(text),
        *token_spans(text),
        *block_spans(text),
        *place_spans(text, low),
        *assignment_spans(text, low),
    ]


def _merged(spans: list[Span]) -> list[Span]:
    """Sort spans and join overlaps; the first and widest one names the kind."""
    if not spans:
        return []
    result: list[Span] = []
    for span in sorted(spans, key=lambda item: (item.start, -item.end)):
        if result and span.start < result[-1].end:
            last = result[-1]
            if span.end > last.end:
                result[-1] = Span(last.start, span.end, last.kind)
        else:
            result.append(span)
    return result


def _outside(spans: list[Span], markers: list[tuple[int, int]], text: str) -> list[Span]:
    """Cut `markers` out of `spans` (both sorted); keep the parts that hold a letter or a digit."""
    if not markers:
        return spans
    result: list[Span] = []
    first = 0
    for span in spans:
        start = span.start
        while first < len(markers) and markers[first][1] <= start:
            first += 1
        index = first
        while index < len(markers) and markers[index][0] < span.end:
            result.append(Span(start, markers[index][0], span.kind))
            start = max(start, markers[index][1])
            index += 1
        result.append(Span(start, span.end, span.kind))
    return [span for span in result if any(map(str.isalnum, text[span.start : span.end]))]


def _masked(text: str, spans: list[Span]) -> str:
    """Replace each span by its marker; a value that occurs often is hashed once."""
    parts: list[str] = []
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


# --- Markers: `[redacted:<kind>:<4 hex of a keyed hash>]` ---
#
# The hash allows two lines to be compared without revealing the value. No character of the value enters a marker.

MARKER = re.compile(r"(?:\[|%5[Bb])redacted(?::|%3[Aa])[a-z0-9-]{1,40}(?::|%3[Aa])[0-9a-f]{4}(?:\]|%5[Dd])")
# Every marker holds this word, so its absence is a cheap proof that there is none.
MARKER_WORD = "redacted"


class MarkerKey:
    """Key of the marker hash: random per process unless configured."""

    value: bytes = secrets.token_bytes(32)


def configure_marker_key(key: bytes) -> None:
    """Use `key` for marker hashes from now on, so that several processes mark one value alike."""
    if not key:
        raise ValueError("marker key: got 0 bytes, need at least 1; pass a random key of 32 bytes")
    MarkerKey.value = bytes(key)


def marker(kind: str, value: str) -> str:
    """Return the marker for `value`."""
    digest = hmac.digest(MarkerKey.value, value.encode("utf-8", "surrogatepass"), "sha256")
    return f"[redacted:{kind}:{digest.hex()[-4:]}]"


# --- Registered secrets, such as stored credentials ---
#
# One expression finds them raw, escaped, and in base64 at any alignment. They are never written to disk or logged.

LEAST_LENGTH = 6
_BASE64_TAIL = "(?:[A-Za-z0-9+/_-]={1,2}|=)?"


class _Known:
    """The registered values and their expression; both are replaced, never changed in place."""

    lock = Lock()
    values: frozenset[str] = frozenset()
    expression: re.Pattern[str] | None = None


def register_known_secrets(values: Iterable[str]) -> None:
    """Mask these values from now on, in addition to earlier ones; values under 6 characters are ignored."""
    with _Known.lock:
        grown = _Known.values | {value for value in values if len(value) >= LEAST_LENGTH}
        if grown != _Known.values:
            _Known.expression, _Known.values = _compiled(grown), grown


def forget_known_secrets() -> None:
    """Drop every registered value."""
    with _Known.lock:
        _Known.expression, _Known.values = None, frozenset()


def redaction_state() -> object:
    """Return what redaction depends on beside its text: while it is equal, equal texts are masked alike."""
    return MarkerKey.value, _Known.values


def _known_spans(text: str) -> Iterator[Span]:
    expression = _Known.expression
    if expression is not None:
        for found in expression.finditer(text):
            yield Span(found.start(), found.end(), "known")


def _compiled(values: frozenset[str]) -> re.Pattern[str]:
    forms: set[str] = set()
    for value in values:
        forms |= {re.escape(form) for form in _escaped_forms(value)}
        forms |= {re.escape(form) + _BASE64_TAIL for form in _base64_forms(value)}
    return re.compile(grouped(forms))


def _escaped_forms(value: str) -> set[str]:
    ascii_form = json.dumps(value)[1:-1]
    forms = {value, ascii_form, json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1], html.escape(value)}
    forms.add(re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), ascii_form))
    # Readings decode percent escapes byte by byte, and JSON escapes by UTF-16 unit.
    forms.add(value.encode("utf-8", "surrogatepass").decode("latin-1"))
    units = value.encode("utf-16-le", "surrogatepass")
    forms.add("".join(chr(low | high << 8) for low, high in zip(units[::2], units[1::2], strict=True)))
    return forms | {form.replace("/", "\\/") for form in forms} | {form.replace(" ", "+") for form in forms}


def _base64_forms(value: str) -> set[str]:
    """Return, for each of the three alignments, the encoded characters that depend on the value alone."""
    data = value.encode("utf-8", "surrogatepass")
    forms: set[str] = set()
    for shift in range(3):
        encoded = b64encode(b"\0" * shift + data).decode()
        core = encoded[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        forms |= {core, core.replace("+", "-").replace("/", "_")}
    return forms


# --- JSON-shaped data: by the names of keys, and by the text of every string ---
#
# Never raises, and changes no number, date, decimal or id. Depth is bounded; cycles and shared parts are visited once.

DEPTH = 64
HANDLE = "$secret"
_NOT_YET = object()  # in the place of the copy of a container that holds itself
_TEMPLATE = re.compile(r"\$\{[^{}]*\}|\{\{[^{}]*\}\}|\$[A-Z_][A-Z0-9_]*|<[^<>]*>|[^A-Za-z0-9]*")


def redact_data(value: Any) -> Any:
    """Copy `value` with credentials masked in strings, in keys and under the names of credentials."""
    return _DataRedactor().value(value, Strength.NONE, 0)


def contains_marker(value: Any) -> bool:
    """Whether any string inside `value`, keys included, holds a redaction marker."""
    pending = [value]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if MARKER.search(item):
                return True
        elif isinstance(item, dict | list | tuple) and id(item) not in seen:
            seen.add(id(item))
            pending.extend(item)
            if isinstance(item, dict):
                pending.extend(item.values())
    return False


class _DataRedactor:
    """Copies one value."""

    def __init__(self) -> None:
        # The original is kept beside its copy, so that its id is not reused.
        self._copies: dict[tuple[int, Strength], tuple[Any, Any]] = {}
        # Names and short words occur often.
        self._redacted: dict[str, str] = {}

    def value(self, value: Any, strength: Strength, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(str(value), strength)
        if not isinstance(value, dict | list | tuple):
            return value
        if depth >= DEPTH:
            return marker("depth", "")
        key = (id(value), strength)
        if key not in self._copies:
            self._copies[key] = (value, _NOT_YET)
            self._copies[key] = (value, self._container(value, strength, depth + 1))
        copied = self._copies[key][1]
        return marker("cycle", "") if copied is _NOT_YET else copied

    def _text(self, value: str, strength: Strength) -> str:
        if strength < Strength.TOKEN and not (strength is Strength.WEAK and looks_random(value)):
            return self._searched(value)
        # Under the name of a credential: masked whole, unless it is a marker or a template.
        if MARKER.fullmatch(value) or _TEMPLATE.fullmatch(value):
            return value
        return marker("password" if strength is Strength.PASSWORD else "secret", value)

    def _searched(self, text: str) -> str:
        found = self._redacted.get(text)
        if found is None:
            found = self._redacted[text] = redact(text)
        return found

    def _container(self, value: Any, strength: Strength, depth: int) -> Any:
        if isinstance(value, dict):
            return self._mapping(value, strength, depth)
        items = [self.value(item, strength, depth) for item in value]
        if isinstance(value, list):
            return items
        return value._make(items) if hasattr(value, "_make") else tuple(items)

    def _mapping(self, value: dict[Any, Any], strength: Strength, depth: int) -> dict[Any, Any]:
        if len(value) == 1 and isinstance(value.get(HANDLE), str):
            return {HANDLE: self._searched(value[HANDLE])}
        result: dict[Any, Any] = {}
        for key, item in value.items():
            if isinstance(key, str):
                # Inside a credential every string counts, whatever its own name.
                inner = strength if strength >= Strength.TOKEN else name_strength(key)
                result[self._searched(str(key))] = self.value(item, inner, depth)
            else:
                result[key] = self.value(item, strength, depth)
        return result


# --- Exceptions ---
#
# Never raises, even if an exception cannot be printed. Text is redacted before it is cut: a cut cannot expose half a
# credential.

EXCEPTIONS = 32
MESSAGE_LENGTH = 4_000
TRACEBACK_LENGTH = 64_000
# Read before redaction; far more than is kept.
_READ_LENGTH = 200_000


def redact_exception(error: BaseException) -> str:
    """Return `Type: message` of the exception, then of its members, causes and contexts, one per line."""
    texts: list[str] = []
    seen: set[int] = set()
    pending = [("", error)]
    while pending and len(texts) < EXCEPTIONS:
        relation, current = pending.pop(0)
        if id(current) not in seen:
            seen.add(id(current))
            texts.append(f"{relation} {_exception_text(current)}".lstrip())
            pending += _related(current)
    return "\n".join(texts)


def redact_traceback(error: BaseException) -> str:
    """Return the traceback with its chain, redacted; the messages alone if it cannot be printed."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - see _printed
        return redact_exception(error)
    # The last lines name the error: a long traceback is cut at its beginning.
    return redact(text[-_READ_LENGTH:])[-TRACEBACK_LENGTH:]


def _exception_text(error: BaseException) -> str:
    lines = [f"{type(error).__name__}: {_printed(error)}"]
    notes = getattr(error, "__notes__", ())
    if isinstance(notes, list):
        lines += (f"note: {_printed(note)}" for note in notes[:EXCEPTIONS])
    return redact("\n".join(lines))[:MESSAGE_LENGTH]


def _printed(value: object) -> str:
    try:
        return str(value)[:_READ_LENGTH]
    except Exception:  # noqa: BLE001 - an exception that cannot be printed must not hide the one being reported
        return "<unprintable>"


def _related(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions[:EXCEPTIONS]:
            yield "member", member
    if error.__cause__ is not None:
        yield "caused by", error.__cause__
    elif error.__context__ is not None:
        yield "while handling", error.__context__


# --- Log records ---

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Control characters, and the separators that some readers take for a line end.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class RedactingFilter(logging.Filter):
    """Redact every record of a handler: message, exception, stack and extra fields.

    Each message stays on one line, so that no text can forge a record. Never drops a record, never raises.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = _one_line(redact(_message(record)))
        record.args = None
        if record.exc_info:
            error = record.exc_info[1]
            record.exc_text = _indented(redact_traceback(error)) if error is not None else None
            record.exc_info = None
        elif record.exc_text:
            record.exc_text = redact(record.exc_text)
        if record.stack_info:
            record.stack_info = _CONTROL_IN_LINES.sub(_escape, redact(record.stack_info))
        for name, value in list(vars(record).items()):
            if name not in _STANDARD:
                clean = redact_data({name: value})
                field = next(iter(clean.values()))
                setattr(record, name, _one_line(field) if isinstance(field, str) else field)
        return True


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a record with the wrong arguments is still written, with both parts
        return f"{record.msg} {record.args}"


def _one_line(text: str) -> str:
    return _CONTROL.sub(_escape, text)


def _indented(text: str) -> str:
    """Indent every line, so that none can pass for the start of a record."""
    return "\n".join(f"  {line}" for line in _CONTROL_IN_LINES.sub(_escape, text).split("\n"))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


# --- Streams: text that arrives in chunks, cut at any offset ---

LIMIT = 65_536
# Held at the end of an endless line: longer than any format.
TAIL = 8_192
CONTEXT = 256
_OPEN_LINE = re.compile(
    r"(?:pass|pwd|secret|token|key|auth|cred|cookie|login|machine)[^\n]{0,64}\n\s*\Z"
    r"|[=:|>\\,][ \t\"'\[({]{0,8}\r?\n\s*\Z",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"-----BEGIN|Private-Lines:")


class StreamRedactor:
    """Redact a text chunk by chunk: feed chunks, write what comes back, close at the end.

    Holds back the unfinished line, a line whose value may follow on the next, and an open key block: at most LIMIT
    characters. Never returns a character that a later chunk could make part of a credential.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Take a chunk and return the text that is settled by now, redacted."""
        self._held += chunk
        if len(self._held) > LIMIT:
            return self._forced()
        return self._released(self._settled()) if "\n" in chunk else ""

    def close(self) -> str:
        """Return the rest, redacted."""
        return self._released(len(self._held))

    def _released(self, end: int) -> str:
        settled, self._held = self._held[:end], self._held[end:]
        return redact(settled)

    def _settled(self) -> int:
        """Return the end of the last line that no later line can complete."""
        end = self._held.rfind("\n") + 1
        blocks = [found.start() for found in _BLOCK.finditer(self._held, 0, end)]
        if blocks and self._held.find("-----END", blocks[-1], end) < 0:
            end = self._held.rfind("\n", 0, blocks[-1]) + 1
        return 0 if _OPEN_LINE.search(self._held, max(0, end - 256), end) else end

    def _forced(self) -> str:
        """Release all but the tail when too much is held, cutting between credentials."""
        target = len(self._held) - TAIL
        end = max(self._held.rfind("\n", 0, target), self._held.rfind(" ", 0, target)) + 1 or target
        before = 0
        for span in find_spans(self._held):
            # A value is recognised by what comes before it: keep its name on the same side of the cut.
            begin = max(before, span.start - CONTEXT)
            if begin < end < span.end:
                still_open = span.end == len(self._held)
                end = begin if begin or still_open else span.end
                if still_open:
                    # The value continues: keep its beginning, drop what was read of the rest.
                    self._held = self._held[: span.start + TAIL]
            before = span.end
        return self._released(end)
