"""Names and values that are known already: listed by the caller, or found earlier in the call.

A tree of words, so that a text is read once however many names there are. Case, accents and the width of blanks do not
matter; whole words only.
"""

from collections.abc import Iterator
from typing import NamedTuple

from agents.anonymize.reading import Reading
from agents.anonymize.spans import Kind


class Leaf(NamedTuple):
    """`capital`: only where the text writes it with a capital, since in lower case it may be a plain word."""

    kind: Kind
    key: str
    capital: bool = False

    @property
    def is_full_name(self) -> bool:
        return self.kind is Kind.PERSON and not self.capital


class Found(NamedTuple):
    first: int
    last: int
    leaf: Leaf


class Node:
    __slots__ = ("leaf", "next")

    def __init__(self) -> None:
        self.leaf: Leaf | None = None
        self.next: dict[tuple[str, str], Node] = {}


class Known:
    """Says where its phrases stand in a text. The longest phrase wins; places do not overlap."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[str, Node] = {}

    def add(self, reading: Reading, first: int, last: int, leaf: Leaf) -> None:
        """Words `first` up to `last` are a phrase. A phrase that is always hidden is never made less so."""
        node = self._node(reading, first, last)
        if node.leaf is None or (node.leaf.capital and not leaf.capital):
            node.leaf = leaf

    def add_short(self, reading: Reading, first: int, last: int, leaf: Leaf) -> None:
        """A short form of a longer name. When two names share it, it stands for neither and gets a key of its own."""
        node = self._node(reading, first, last)
        if node.leaf is None:
            node.leaf = leaf
        elif node.leaf.capital and node.leaf.key != leaf.key:
            node.leaf = leaf._replace(key=reading.key(first, last))

    def _node(self, reading: Reading, first: int, last: int) -> Node:
        node = self._first.setdefault(reading.folded[first], Node())
        for at in range(first + 1, last):
            node = node.next.setdefault((reading.gap(at), reading.folded[at]), Node())
        return node

    def find(self, reading: Reading) -> Iterator[Found]:
        end = 0
        for at in reading.standing(self._first):
            found = self._longest(reading, at) if at >= end else None
            if found is not None:
                yield found
                end = found.last

    def _longest(self, reading: Reading, first: int) -> Found | None:
        words = reading.folded
        node: Node | None = self._first[words[first]]
        best = None
        at = first + 1
        while node is not None:
            if node.leaf is not None and not (node.leaf.capital and not reading.capital(first)):
                best = Found(first, at, node.leaf)
            if at == len(words) or not node.next:
                break
            node = node.next.get((reading.gap(at), words[at]))
            at += 1
        return best
