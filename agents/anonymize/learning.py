"""What a name teaches: its other spellings, the surname alone, and the firm without its legal form.

Short forms that are also plain words are not learnt: hiding every "May" would help nobody.
"""

from agents.anonymize.known import Known, Leaf
from agents.anonymize.names import Name, legal_forms
from agents.anonymize.reading import Reading
from agents.anonymize.spans import Kind
from agents.anonymize.tables import COMMON, FIRM_WORDS

SHORTEST_SURNAME = 3
SHORTEST_FIRM = 4


def listed(party: str) -> tuple[Reading, Name]:
    """A party as the caller lists it: a firm when it ends in a legal form or holds a word of firms, else a person."""
    reading = Reading(party)
    size = len(reading.folded)
    form = min((first for first, last in legal_forms(reading) if last == size and first), default=size)
    firm = form < size or any(word in FIRM_WORDS for word in reading.folded)
    return reading, Name(0, size, Kind.ORG if firm else Kind.PERSON, form)


def learn(known: Known, reading: Reading, name: Name, *, as_listed: bool = False) -> None:
    """Adds a name and its short form. A single word that was not listed is known by its capital only."""
    key = reading.key(name.first, name.last)
    single = name.last - name.first == 1
    plain = single and key in COMMON
    if as_listed or not plain:
        capital = (plain or (single and not as_listed)) and reading.capital(name.first)
        known.add(reading, name.first, name.last, Leaf(name.kind, key, capital=capital))
    first, last = _short_form(reading, name)
    if (first, last) != (name.first, name.last) and _is_telling(reading, first, last, name.kind):
        known.add_short(reading, first, last, Leaf(name.kind, key, capital=True))


def _short_form(reading: Reading, name: Name) -> tuple[int, int]:
    """Acme Ltd without its legal form; the last name of Anna Weber-Lang, hyphens included."""
    if name.kind is Kind.ORG:
        return name.first, name.legal_form
    first = name.last - 1
    while first > name.first and reading.gap(first) in ("-", "'"):
        first -= 1
    return first, name.last


def _is_telling(reading: Reading, first: int, last: int, kind: Kind) -> bool:
    words = reading.folded[first:last]
    shortest = SHORTEST_FIRM if kind is Kind.ORG else SHORTEST_SURNAME
    return sum(map(len, words)) >= shortest and not COMMON.issuperset(words)
