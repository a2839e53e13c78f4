"""The mapping of one call, both ways. It is never shown, copied, pickled or logged, and ends with its call."""

from collections import Counter
from collections.abc import Callable
from typing import Never

from agents.anonymize.placeholders import FORMS, Grammar, Token
from agents.anonymize.spans import Kind

Original = str | int


class Secretive:
    """What holds personal data can be neither pickled nor copied, so no cache, queue or crash report takes it along."""

    __slots__ = ()

    def __reduce__(self) -> Never:
        raise TypeError(f"{type(self).__name__} holds the personal data of one call: make a new one instead.")


class Vault(Secretive):
    """Gives out placeholders: one number for each person, firm or value, one form for each spelling of it."""

    __slots__ = ("_current", "_forms", "_numbers", "_originals", "_placeholders", "grammar")

    def __init__(self) -> None:
        self.grammar = Grammar()
        self._numbers: Counter[Kind] = Counter()
        self._current: dict[tuple[Kind, str], int] = {}
        self._forms: Counter[tuple[Kind, int]] = Counter()
        self._placeholders: dict[Original, str] = {}
        self._originals: dict[Token, Original] = {}

    def __repr__(self) -> str:
        counts = ", ".join(f"{kind} {count}" for kind, count in sorted(self._numbers.items()))
        return f"<Vault: {counts or 'empty'}>"

    def placeholder(self, original: Original, kind: Kind, key: str) -> str:
        """The same original gets the same placeholder; another spelling of the same key gets another form of it."""
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
        self._placeholders[original] = self.grammar.spell(token)
        return self._placeholders[original]

    def restored(self, text: str, escaped: Callable[[str], str] = str) -> str:
        """The text with its placeholders replaced, once: what comes back is not searched again."""
        pieces: list[str] = []
        at = 0
        for start, end, token in self.grammar.found(text):
            if token in self._originals:
                pieces += text[at:start], escaped(str(self._originals[token]))
                at = end
        return "".join([*pieces, text[at:]])

    def restored_value(self, text: str) -> Original:
        """As `restored`, but a text that is one placeholder comes back with the type that was hidden."""
        for start, end, token in self.grammar.found(text):
            if (start, end) == (0, len(text)):
                return self._originals.get(token, text)
        return self.restored(text)
