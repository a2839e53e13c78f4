"""The anonymiser of one model call: hides personal data in what is sent and puts it back into what comes.

Texts of one request are read together before any is hidden, so that a name learnt in the last is hidden in the first.
"""

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import chain
from typing import Any

from agents.anonymize.accounts import accounts, labelled
from agents.anonymize.addresses import addresses, emails
from agents.anonymize.known import Known, Leaf
from agents.anonymize.learning import learn, listed
from agents.anonymize.names import Name, firms, persons
from agents.anonymize.numbers import cards, ibans, outside_web, phones
from agents.anonymize.reading import Reading, has_words
from agents.anonymize.shapes import changed_data, changed_message, is_json
from agents.anonymize.spans import Kind, Span, merged
from agents.anonymize.stream import RestoringStream
from agents.anonymize.vault import Original, Secretive, Vault
from agents.types import ModelReply, ModelRequest

PATTERNS = (emails, addresses, ibans, cards, phones)
NAMES = frozenset({Kind.PERSON, Kind.ORG})
# Kinds that a word nearby gave away: the same value elsewhere is hidden without it.
TOLD = frozenset({Kind.ACCT, Kind.PHONE})
EXACT = frozenset({Kind.TEXT, Kind.EMAIL, Kind.IP})
FENCED = re.compile(r"\s*```(?:json)?\s*([\[{].*[\]}])\s*```\s*", re.DOTALL)

Item = tuple[Original, str]


class Anonymizer(Secretive):
    """One for each model call; not to be shared. `parties` are names to hide wherever they stand."""

    __slots__ = ("_known", "_vault")

    def __init__(self, parties: Iterable[str] = ()) -> None:
        self._vault = Vault()
        self._known = Known()
        names = [listed(party) for party in parties if has_words(party)]
        for reading, name in sorted(names, key=lambda item: -len(item[0].folded)):
            learn(self._known, reading, name, as_listed=True)

    def __repr__(self) -> str:
        return f"<Anonymizer: {self._vault!r}>"

    # --- Hiding ---

    def hide(self, text: str) -> str:
        return str(self._hidden([(text, "")])[text, ""])

    def hide_data(self, value: Any) -> Any:
        """JSON-shaped data with its values hidden, and its keys where they hold personal data."""
        items: list[Item] = []
        changed_data(value, _collector(items))
        hidden = self._hidden(items)
        return changed_data(value, lambda *item: hidden[item])

    def hide_request(self, request: ModelRequest) -> ModelRequest:
        """The request as it may be sent: messages and past tool calls are hidden, tools and schema stay as they are."""
        items: list[Item] = []
        for message in request.messages:
            changed_message(message, _collector(items))
        hidden = self._hidden(items)
        messages = tuple(changed_message(message, lambda *item: hidden[item]) for message in request.messages)
        return replace(request, messages=messages)

    def _hidden(self, items: Iterable[Item]) -> dict[Item, Original]:
        found = {item: self._read(*item) for item in items}
        self._learn(found.values())
        return {item: self._replaced(item[0], *read[:2]) for item, read in found.items()}

    def _read(self, value: Original, label: str) -> tuple[Reading, list[Span], list[Name]]:
        """What can be seen in a text by itself."""
        reading = Reading(str(value))
        text = reading.text
        shown = chain.from_iterable(pattern(text) for pattern in PATTERNS)
        spans = outside_web(text, [*shown, *accounts(reading), *labelled(text, label)])
        people = list(persons(reading))
        full_names = (found for found in self._known.find(reading) if found.leaf.is_full_name)
        taken = [range(name.first, name.last) for name in people] + [range(*found[:2]) for found in full_names]
        return reading, spans, [*people, *firms(reading, frozenset(chain.from_iterable(taken)))]

    def _learn(self, found: Iterable[tuple[Reading, list[Span], list[Name]]]) -> None:
        names: dict[tuple[str, Kind], tuple[Reading, Name]] = {}
        for reading, spans, seen in found:
            for name in seen:
                names.setdefault((reading.key(name.first, name.last), name.kind), (reading, name))
            told = {(reading.text[span.start : span.end], span.kind) for span in spans if span.kind in TOLD}
            for text, kind in told:
                value = Reading(text)
                self._known.add(value, 0, len(value.folded), Leaf(kind, ""))
            spans.extend(reading.span(name.first, name.last, name.kind) for name in seen)
        for reading, name in sorted(names.values(), key=lambda item: item[1].first - item[1].last):
            learn(self._known, reading, name)

    def _replaced(self, value: Original, reading: Reading, spans: list[Span]) -> Original:
        known = [reading.span(at, end, leaf.kind, leaf.key) for at, end, leaf in self._known.find(reading)]
        own = [Span(start, end, Kind.TEXT) for start, end, _ in self._vault.grammar.found(str(value))]
        places = merged([*spans, *known, *own])
        if not places:
            return value
        text = str(value)
        if isinstance(value, int):
            return self._vault.placeholder(value, places[0].kind, text)
        pieces: list[str] = []
        at = 0
        for span in places:
            original = text[span.start : span.end]
            key = span.key or _key(reading.text[span.start : span.end], span.kind)
            pieces += text[at : span.start], self._vault.placeholder(original, span.kind, key)
            at = span.end
        return "".join([*pieces, text[at:]])

    # --- Restoring ---

    def restore(self, text: str) -> str:
        return self._vault.restored(text)

    def restore_json(self, text: str) -> str:
        """JSON text with its values restored; it stays JSON whatever they hold."""
        stream = self.stream(as_json=True)
        return stream.feed(text) + stream.close()

    def restore_data(self, value: Any) -> Any:
        return changed_data(value, lambda item, _: self._vault.restored_value(item) if isinstance(item, str) else item)

    def restore_reply(self, reply: ModelReply) -> ModelReply:
        """The reply with every text in it restored. A text that is JSON, fenced or not, stays JSON."""
        return replace(
            reply,
            **{
                field.name: changed_data(getattr(reply, field.name), lambda item, _: self._restored_text(item))
                for field in fields(reply)
            },
        )

    def _restored_text(self, item: Original) -> Original:
        if isinstance(item, int):
            return item
        fenced = FENCED.fullmatch(item)
        return self.restore_json(item) if is_json(fenced[1] if fenced else item) else self.restore(item)

    def stream(self, *, as_json: bool = False) -> RestoringStream:
        """For a reply that comes in pieces; `as_json` for the fragments of a tool call's arguments."""
        return RestoringStream(self._vault, as_json=as_json)


def _collector(items: list[Item]) -> Any:
    def collect(value: Original, label: str) -> Original:
        items.append((value, label))
        return value

    return collect


def _key(text: str, kind: Kind) -> str:
    """What tells two values apart: a number without its separators, a name without case, an address as it is."""
    if kind in EXACT:
        return text.casefold()
    reading = Reading(text)
    key = reading.key(0, len(reading.folded))
    return key if kind in NAMES else key.replace(" ", "")
