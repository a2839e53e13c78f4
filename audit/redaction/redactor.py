"""Finds every credential in a text and puts markers in their place.

Owns the order of the searches and the rounds: the result is searched again until nothing more is found, so that
redacting twice changes nothing. Existing markers are hidden from the search, so that none is ever marked again.
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

from audit.redaction.named import Strength, assignment_spans, looks_random, lowered, name_strength
from audit.redaction.patterns import Span, block_spans, grouped, merged, token_spans, without
from audit.redaction.places import place_spans, readings

# --- Values that are known to be secret, such as stored credentials: masked wherever they show ---
#
# Owns the set of known values and the one expression that finds them raw, in base64 at any alignment, and escaped.
# Percent, JSON and HTML escapes are undone by the readings of the text. Must not keep values on disk or log them.


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


# --- Redaction markers: `[redacted:<kind>:<4 hex of a keyed hash>]` ---
#
# Owns the marker's form and the process key. The hash lets two lines be compared without telling the value; the key
# is random per process unless configured. Must not put any character of the value itself into a marker.


MARKER = re.compile(r"(?:\[|%5[Bb])redacted(?::|%3[Aa])[a-z0-9-]{1,40}(?::|%3[Aa])[0-9a-f]{4}(?:\]|%5[Dd])")
# Either form of a marker holds this word, so its absence is a cheap proof that there is none.
MARKER_WORD = "redacted"


class MarkerKey:
    """The key of the marker hash; one per process."""

    value: bytes = secrets.token_bytes(32)


def configure_marker_key(key: bytes) -> None:
    """Use `key` for the hashes from now on, so that several processes mark one value alike."""
    if not key:
        raise ValueError("marker key: got 0 bytes, need at least 1; pass a random key of 32 bytes")
    MarkerKey.value = bytes(key)


def marker(kind: str, value: str) -> str:
    """The text that stands for `value`."""
    digest = hmac.digest(MarkerKey.value, value.encode("utf-8", "surrogatepass"), "sha256")
    return f"[redacted:{kind}:{digest.hex()[-4:]}]"


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


# --- Redaction of JSON-shaped data: by the names of keys, and by the text of every string ---
#
# Owns the walk: new containers, bounded depth, cycles and shared parts visited once. Never raises and changes no
# number, date, decimal or id. Must not decide what a credential looks like.


DEPTH = 64
HANDLE = "$secret"
_TEMPLATE = re.compile(r"\$\{[^{}]*\}|\{\{[^{}]*\}\}|\$[A-Z_][A-Z0-9_]*|<[^<>]*>|[^A-Za-z0-9]*")


def _masked(value: str, strength: Strength) -> str:
    """A string under the name of a credential: masked whole, unless it plainly is none."""
    if MARKER.fullmatch(value) or _TEMPLATE.fullmatch(value):
        return value
    return marker("password" if strength is Strength.PASSWORD else "secret", value)


class _Walk:
    """One walk over one value."""

    def __init__(self) -> None:
        # The original is kept beside its copy, so that its id stays taken while the walk lasts.
        self._copies: dict[tuple[int, Strength], tuple[Any, Any]] = {}
        # Names and short words stand in many places.
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
            self._copies[key] = (value, marker("cycle", ""))
            self._copies[key] = (value, self._container(value, strength, depth + 1))
        return self._copies[key][1]

    def _text(self, value: str, strength: Strength) -> str:
        if strength >= Strength.TOKEN or (strength is Strength.WEAK and looks_random(value)):
            return _masked(value, strength)
        return self._searched(value)

    def _searched(self, text: str) -> str:
        if text not in self._redacted:
            self._redacted[text] = redact(text)
        return self._redacted[text]

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


def redact_data(value: Any) -> Any:
    """A copy of `value` with credentials masked in strings, in keys and under the names of credentials."""
    return _Walk().value(value, Strength.NONE, 0)


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


# --- Redacted texts of exceptions: the message with its causes, and the traceback ---
#
# Owns the bounds: so many exceptions, so many characters. Never raises, even if an exception cannot be printed. Text
# is redacted before it is cut, so that a cut cannot bare half a credential.


EXCEPTIONS = 32
MESSAGE_LENGTH = 4_000
TRACEBACK_LENGTH = 64_000
# Read before redaction; far beyond what is kept, so that its own cut never shows.
_READ_LENGTH = 200_000


def _printed(value: object) -> str:
    try:
        return str(value)[:_READ_LENGTH]
    except Exception:  # noqa: BLE001 - an exception that cannot be printed must not hide the one being reported
        return "<unprintable>"


def _one(error: BaseException) -> str:
    lines = [f"{type(error).__name__}: {_printed(error)}"]
    notes = getattr(error, "__notes__", ())
    if isinstance(notes, list):
        lines += (f"note: {_printed(note)}" for note in notes[:EXCEPTIONS])
    return redact("\n".join(lines))[:MESSAGE_LENGTH]


def _related(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions[:EXCEPTIONS]:
            yield "member", member
    if error.__cause__ is not None:
        yield "caused by", error.__cause__
    elif error.__context__ is not None:
        yield "while handling", error.__context__


def redact_exception(error: BaseException) -> str:
    """`Type: message` of the exception, then of its members, causes and contexts, one under the other."""
    texts: list[str] = []
    seen: set[int] = set()
    pending = [("", error)]
    while pending and len(texts) < EXCEPTIONS:
        relation, current = pending.pop(0)
        if id(current) not in seen:
            seen.add(id(current))
            texts.append(f"{relation} {_one(current)}".lstrip())
            pending += _related(current)
    return "\n".join(texts)


def redact_traceback(error: BaseException) -> str:
    """The traceback with its chain, redacted; if it cannot be printed, the messages alone."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - see _printed
        return redact_exception(error)
    # The last lines name the error: a long traceback is cut at its beginning.
    return redact(text[-_READ_LENGTH:])[-TRACEBACK_LENGTH:]


# --- A logging filter after which no record carries a credential or a forged line ---
#
# Owns the rewriting of records: message, arguments, exception, stack and extra fields. Must not drop a record or
# raise.


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Control characters, and the separators that some readers take for a line end.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _one_line(text: str) -> str:
    return _CONTROL.sub(_escape, text)


def _indented(text: str) -> str:
    """Several lines, none of which can pass for the start of a record."""
    return "\n".join(f"  {line}" for line in _CONTROL_IN_LINES.sub(_escape, text).split("\n"))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a record with the wrong arguments is still written, with both parts
        return f"{record.msg} {record.args}"


class RedactingFilter(logging.Filter):
    """Attach to a handler: every record it writes is redacted and holds one line per message."""

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


# --- Redaction of text that arrives in pieces: a credential cut at any offset is still masked ---
#
# Owns what is held back: the unfinished line, a line whose value may follow on the next, an open key block. At most
# LIMIT characters are held. Must not emit a character that a later piece could make part of a credential.


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
    """Feed pieces, write what comes back, and close at the end."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str) -> str:
        """The text that is settled by now, redacted."""
        self._held += chunk
        if len(self._held) > LIMIT:
            return self._forced()
        return self._released(self._settled()) if "\n" in chunk else ""

    def close(self) -> str:
        """The rest, redacted."""
        return self._released(len(self._held))

    def _released(self, end: int) -> str:
        settled, self._held = self._held[:end], self._held[end:]
        return redact(settled)

    def _settled(self) -> int:
        """The end of the last line that stands on its own."""
        end = self._held.rfind("\n") + 1
        blocks = [found.start() for found in _BLOCK.finditer(self._held, 0, end)]
        if blocks and self._held.find("-----END", blocks[-1], end) < 0:
            end = self._held.rfind("\n", 0, blocks[-1]) + 1
        return 0 if _OPEN_LINE.search(self._held, max(0, end - 256), end) else end

    def _forced(self) -> str:
        """Too much is held: give out all but the tail, cutting between credentials."""
        target = len(self._held) - TAIL
        end = max(self._held.rfind("\n", 0, target), self._held.rfind(" ", 0, target)) + 1 or target
        before = 0
        for span in find_spans(self._held):
            # A value is known by what stands before it: the cut leaves it its name.
            begin = max(before, span.start - CONTEXT)
            if begin < end < span.end:
                still_open = span.end == len(self._held)
                end = begin if begin or still_open else span.end
                if still_open:
                    # The value goes on: its beginning stands for it, what was read of the rest is dropped.
                    self._held = self._held[: span.start + TAIL]
            before = span.end
        return self._released(end)
