"""The anonymiser of one model call: hides personal data in the request and restores it in the reply.

From the inside out: how a placeholder is written, the vault that maps placeholders to originals, the stream that
restores a reply in pieces, the walk over messages and JSON, and the anonymiser itself. What is personal is decided in
names.py and numbers.py.
"""

import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from string import ascii_lowercase, digits
from typing import Any, NamedTuple, Never

from agents.anonymize.names import Name, firms, learn, persons, read_party
from agents.anonymize.numbers import accounts, addresses, cards, emails, ibans, labelled, outside_web, phones
from agents.anonymize.reading import Kind, Known, Leaf, Reading, Span, merged
from agents.types import ModelRequest
from audit.repetition import possessive

# --- Placeholders ---
#
# `PERSON_1_x7k` is kind, number and the mark of this call. The mark is random, so that a placeholder of another call,
# or one that a model made up, is never taken for ours. Reading is lenient, since models retype: case, `\_`, `-`, blanks
# and lost underscores are accepted.


BETWEEN = r"[ \u00a0_\\\u2011-]{0,3}"
NUMBER = "[0-9]{1,7}"
FORM = "[b-z]?"
MARK = ("[a-z]", "[0-9]", "[a-z]")
# Text before a placeholder must not form another one with it. The second character of a mark is a digit, where no kind
# has one, and its last letter begins no kind: so a kind that follows never completes a mark that was cut short.
LAST_LETTERS = "".join(sorted(set(ascii_lowercase) - {kind[0].lower() for kind in Kind}))
FORMS = ("", *ascii_lowercase[1:])
LONGEST = max(map(len, Kind)) + 3 + 7 + 1 + 3 + 3  # the longest spelling that is still read as a placeholder


class Token(NamedTuple):
    """One placeholder. The `form` tells spellings of one name apart: "" for the first, then b to z."""

    kind: Kind
    number: int
    form: str


def _unfinished(kind: Kind) -> str:
    """Return a pattern for a placeholder that the end of the text cuts off anywhere."""
    pattern = r"\Z"
    for atom in reversed([*kind[1:], BETWEEN, NUMBER, FORM, BETWEEN, *MARK[:-1]]):
        pattern = rf"(?:\Z|{atom}{pattern})"
    return f"{kind[0]}{pattern}"


PATTERN = re.compile(
    f"({'|'.join(Kind)}){BETWEEN}({NUMBER})({FORM}){BETWEEN}({''.join(MARK)})", re.IGNORECASE | re.ASCII
)
UNFINISHED = re.compile("|".join(map(_unfinished, Kind)), re.IGNORECASE | re.ASCII)


# --- The vault ---


class NotCopyable:
    """Holds personal data: can be neither pickled nor copied, so no cache, queue or crash report keeps it."""

    __slots__ = ()

    def __reduce__(self) -> Never:
        raise TypeError(f"{type(self).__name__} holds the personal data of one call: make a new one instead.")


class Vault(NotCopyable):
    """The mapping of one call, both ways: one number for each person, firm or value, one form for each spelling.

    Its placeholders are known by their mark. It is never shown or logged, and ends with its call.
    """

    __slots__ = ("_current", "_forms", "_mark", "_numbers", "_originals", "_placeholders")

    def __init__(self) -> None:
        self._mark = "".join(map(secrets.choice, (ascii_lowercase, digits, LAST_LETTERS)))
        self._numbers: Counter[Kind] = Counter()
        self._current: dict[tuple[Kind, str], int] = {}
        self._forms: Counter[tuple[Kind, int]] = Counter()
        self._placeholders: dict[str, str] = {}
        self._originals: dict[Token, str] = {}

    def placeholder(self, original: str, kind: Kind, key: str) -> str:
        """Return the placeholder of an original; another spelling of the same key gets another form."""
        known = self._placeholders.get(original)
        if known is not None:
            return known
        number = self._current.get((kind, key), 0)
        if not number or self._forms[kind, number] == len(FORMS):
            self._numbers[kind] += 1
            number = self._current[kind, key] = self._numbers[kind]
        token = Token(kind, number, FORMS[self._forms[kind, number]])
        self._forms[kind, number] += 1
        self._originals[token] = original
        self._placeholders[original] = f"{kind}_{number}{token.form}_{self._mark}"
        return self._placeholders[original]

    def found(self, text: str) -> Iterator[tuple[int, int, Token]]:
        """Yield whatever reads as a placeholder of this call, whether it was given out or not."""
        match = PATTERN.search(text) if self._mark in text.lower() else None
        while match:
            kind, number, form, mark = match.groups()
            is_ours = mark.lower() == self._mark
            if is_ours:
                yield *match.span(), Token(Kind(kind.upper()), int(number), form.lower())
            # Another call's mark may reach into a placeholder of ours, so the search goes on inside it.
            match = PATTERN.search(text, match.end() if is_ours else match.start() + 1)

    def cut(self, text: str) -> int:
        """Return where a placeholder begins that the next text may complete; the end of the text if none does."""
        if not self._originals:
            return len(text)
        done = max((end for _, end, _ in self.found(text)), default=0)
        tail = UNFINISHED.search(text, max(done, len(text) - LONGEST))
        return tail.start() if tail else len(text)

    def reduce(self, text: str) -> str:
        """Return the text with only the kind of each placeholder, so that equal texts stay equal from call to call."""
        pieces: list[str] = []
        at = 0
        for start, end, token in self.found(text):
            pieces += text[at:start], token.kind
            at = end
        return "".join([*pieces, text[at:]])

    def restore(self, text: str, escaped: Callable[[str], str] = str) -> str:
        """Return the text with its placeholders replaced; restored text is not searched again."""
        if not self._originals:
            return text
        pieces: list[str] = []
        at = 0
        for start, end, token in self.found(text):
            if token in self._originals:
                pieces += text[at:start], escaped(self._originals[token])
                at = end
        return "".join([*pieces, text[at:]])


class RestoringStream(NotCopyable):
    """Restores a reply that comes in pieces, cut anywhere: `feed` returns what is certain, `close` the rest.

    It holds back at most one placeholder (`LONGEST` characters).
    """

    __slots__ = ("_held", "_vault")

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._held = ""

    def feed(self, chunk: str) -> str:
        self._held += chunk
        cut = self._vault.cut(self._held)
        certain, self._held = self._held[:cut], self._held[cut:]
        return self._vault.restore(certain)

    def close(self) -> str:
        rest, self._held = self._held, ""
        return self._vault.restore(rest)


# --- Texts in messages and JSON ---


# Takes a text, or the digits of a number, and the key above it; returns its replacement.
Change = Callable[[str, str], str]

# Fields that servers read, which stay as they are.
PROTOCOL_FIELDS = frozenset({"role", "type", "id", "tool_call_id"})
_INSIDE = possessive(r'[^"\\]++|\\.')
LITERAL = re.compile(rf'("{_INSIDE}")(\s*:)?|(?<![\w.+-])(\d{{6,19}})(?![\w.])')


def changed_message(value: Any, change: Change) -> Any:
    """Change the texts of a message or of a part of one."""
    if isinstance(value, str):
        return changed_json(value, change) if is_json(value) else change(value, "")
    if isinstance(value, Mapping):
        # The name beside arguments is the name of a tool.
        kept = PROTOCOL_FIELDS | {"name"} if "arguments" in value else PROTOCOL_FIELDS
        return {key: item if key in kept else changed_message(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [changed_message(item, change) for item in value]
    return value


def is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def changed_json(text: str, change: Change) -> str:
    """Change JSON inside its strings, so that it stays JSON and its escapes hide nothing.

    Literals that do not change are kept as they were written.
    """
    label = ""

    def changed(match: re.Match[str]) -> str:
        nonlocal label
        literal, colon, number = match.groups()
        value = number or json.loads(literal)
        new = change(value, "" if colon else label)
        if colon:
            label = value
        return match[0] if new == value else json.dumps(new, ensure_ascii=False) + (colon or "")

    return LITERAL.sub(changed, text)


def in_json(original: str) -> str:
    """Escape a restored value for the inside of a JSON string."""
    return json.dumps(original, ensure_ascii=False)[1:-1]


# --- The anonymiser ---


PATTERNS = (emails, addresses, ibans, cards, phones)
NAMES = frozenset({Kind.PERSON, Kind.ORG})
# Kinds that a word nearby announces: elsewhere the same value is hidden without that word.
ANNOUNCED = frozenset({Kind.ACCT, Kind.PHONE})
EXACT = frozenset({Kind.TEXT, Kind.EMAIL, Kind.IP})
FENCED = re.compile(r"\s*```(?:json)?\s*([\[{].*[\]}])\s*```\s*", re.DOTALL)

Item = tuple[str, str]


class Anonymizer(NotCopyable):
    """Make one for each model call, and do not share it. `parties` are names to hide wherever they stand."""

    __slots__ = ("_known", "_vault")

    def __init__(self, parties: Iterable[str] = ()) -> None:
        self._vault = Vault()
        self._known = Known()
        for reading, name in sorted(map(read_party, parties), key=lambda item: -len(item[0].folded)):
            if reading.folded:
                learn(self._known, reading, name, as_listed=True)

    def hide(self, text: str) -> str:
        return self._hidden([(text, "")])[text, ""]

    def hide_request(self, request: ModelRequest) -> ModelRequest:
        """Return the request as it may be sent: messages and past tool calls hidden, tools and schema unchanged.

        All texts are read before any is hidden, so that a name learnt in the last is hidden in the first.
        """
        items: list[Item] = []

        def collect(text: str, label: str) -> str:
            items.append((text, label))
            return text

        changed_message(request.messages, collect)
        hidden = self._hidden(items)
        return replace(request, messages=tuple(changed_message(request.messages, lambda *item: hidden[item])))

    def hide_for_good(self, request: ModelRequest) -> ModelRequest:
        """Return the request with only the kind of what is hidden: nothing comes back that could be restored."""
        hidden = self.hide_request(request)
        messages = changed_message(hidden.messages, lambda text, _: self._vault.reduce(text))
        return replace(hidden, messages=tuple(messages))

    def _hidden(self, items: Iterable[Item]) -> dict[Item, str]:
        found = {item: self._read(*item) for item in items}
        self._learn(found.values())
        return {item: self._replaced(item[0], *read[:2]) for item, read in found.items()}

    def _read(self, value: str, label: str) -> tuple[Reading, list[Span], list[Name]]:
        """Find what a text shows without knowledge of the others."""
        reading = Reading(value)
        text = reading.text
        matches = chain.from_iterable(pattern(text) for pattern in PATTERNS)
        spans = outside_web(text, [*matches, *accounts(reading), *labelled(text, label)])
        people = list(persons(reading))
        taken = [range(name.first, name.last) for name in people]
        for first, last, leaf in self._known.find(reading):
            if leaf.kind is Kind.PERSON and not leaf.capital:
                taken.append(range(first, last))
        return reading, spans, [*people, *firms(reading, frozenset(chain.from_iterable(taken)))]

    def _learn(self, found: Iterable[tuple[Reading, list[Span], list[Name]]]) -> None:
        names: dict[tuple[str, Kind], tuple[Reading, Name]] = {}
        for reading, spans, seen in found:
            for name in seen:
                names.setdefault((reading.key(name.first, name.last), name.kind), (reading, name))
            announced = {(reading.text[span.start : span.end], span.kind) for span in spans if span.kind in ANNOUNCED}
            for text, kind in announced:
                value = Reading(text)
                self._known.add(value, 0, len(value.folded), Leaf(kind, ""))
            spans.extend(reading.span(name.first, name.last, name.kind) for name in seen)
        for reading, name in sorted(names.values(), key=lambda item: item[1].first - item[1].last):
            learn(self._known, reading, name)

    def _replaced(self, text: str, reading: Reading, spans: list[Span]) -> str:
        known = [reading.span(at, end, leaf.kind, leaf.key) for at, end, leaf in self._known.find(reading)]
        own = [Span(start, end, Kind.TEXT) for start, end, _ in self._vault.found(text)]
        pieces: list[str] = []
        at = 0
        for span in merged([*spans, *known, *own]):
            original = text[span.start : span.end]
            key = span.key or _key(reading.text[span.start : span.end], span.kind)
            pieces += text[at : span.start], self._vault.placeholder(original, span.kind, key)
            at = span.end
        return "".join([*pieces, text[at:]])

    def restore(self, text: str) -> str:
        return self._vault.restore(text)

    def restore_json(self, text: str) -> str:
        """Restore the values of a JSON text; it stays JSON whatever they hold."""
        return self._vault.restore(text, in_json)

    def restore_reply(self, text: str) -> str:
        """Restore a reply. One that is JSON, fenced or not, stays JSON."""
        fenced = FENCED.fullmatch(text)
        return self.restore_json(text) if is_json(fenced[1] if fenced else text) else self.restore(text)

    def stream(self) -> RestoringStream:
        """Return a stream for a reply in pieces."""
        return RestoringStream(self._vault)


def _key(text: str, kind: Kind) -> str:
    """Return what tells two values apart: a number without separators, a name without case, an address as it is."""
    if kind in EXACT:
        return text.casefold()
    reading = Reading(text)
    key = reading.key(0, len(reading.folded))
    return key if kind in NAMES else key.replace(" ", "")


def names_in(texts: Iterable[str]) -> Iterator[str]:
    """Yield the people and firms that texts name, each once, as it stands where it is first."""
    known: set[str] = set()
    for text in texts:
        reading = Reading(text)
        people = list(persons(reading))
        taken = frozenset(chain.from_iterable(range(name.first, name.last) for name in people))
        for name in (*people, *firms(reading, taken)):
            key = reading.key(name.first, name.last)
            if key not in known:
                known.add(key)
                span = reading.span(name.first, name.last, name.kind)
                yield text[span.start : span.end]
