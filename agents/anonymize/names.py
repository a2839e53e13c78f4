"""Finds persons by their title and firms by their legal form. Names with neither are found only when they are listed.

Works on words, forwards from a title and backwards from a legal form, a bounded number of steps each.
"""

from collections.abc import Iterator
from typing import NamedTuple

from agents.anonymize import reading as tables
from agents.anonymize.reading import COMMON, FIRM_WORDS, Kind, Known, Leaf, Reading

MOST_WORDS = 8
SPOKEN_GAPS = frozenset({" ", "-", "'"})
FIRM_GAPS = SPOKEN_GAPS | frozenset({"&", " & ", "+", " + ", "! "})
COMMA = frozenset({", "})
DOTS = frozenset({".", ". "})
INITIAL_GAPS = SPOKEN_GAPS | DOTS
FIRM_INITIAL_GAPS = FIRM_GAPS | DOTS
LONGEST_INITIAL = 2
LONGEST_ACRONYM = 3
CAPITALS = "capitals only"
BEFORE_NAME = tables.TITLES | tables.DEGREES
SMALL_WORDS = tables.LEADING - tables.PARTICLES
AFTER_NAME = tables.TERMS - tables.ALSO_NAMES
NO_FIRM = tables.TERMS | tables.GENERIC
BEFORE_FIRM = tables.LEADING | tables.FIRM_PARTICLES


class Name(NamedTuple):
    """Words `first` up to `last`. The part before `legal_form` is what a firm is called for short."""

    first: int
    last: int
    kind: Kind
    legal_form: int


def _legal_forms() -> Known:
    known = Known()
    for form in tables.LEGAL_FORMS.split(";"):
        reading = Reading(form.strip())
        shouts = CAPITALS if reading.shout(0) and 1 < len(reading.folded[0]) <= LONGEST_ACRONYM else ""
        known.add(reading, 0, len(reading.folded), Leaf(Kind.ORG, shouts, capital=reading.capital(0)))
    return known


LEGAL_FORMS = _legal_forms()


def legal_forms(reading: Reading) -> Iterator[tuple[int, int]]:
    """Where legal forms stand, first word and end. Those that follow one another are one: Pty Ltd, GmbH & Co. KG."""
    first = last = -1
    for found in LEGAL_FORMS.find(reading):
        if found.leaf.key and not reading.shout(found.first):  # AG and SE, not Se
            continue
        if found.first == last and reading.gap(last) in tables.FORM_GAPS:
            last = found.last
            continue
        if last > 0:
            yield first, last
        first, last = found.first, found.last
    if last > 0:
        yield first, last


# --- Persons ---


def persons(reading: Reading) -> Iterator[Name]:
    end = 0
    for at in reading.standing(tables.TITLES):
        name = _titled(reading, at) if at >= end and reading.capital(at) else None
        if name is not None:
            yield name
            end = name.last


def _titled(reading: Reading, at: int) -> Name | None:
    first = _after_titles(reading, at)
    last = _end_of_person(reading, first)
    if last == first or not _means_a_person(reading, at, first, last):
        return None
    return Name(first, last, Kind.PERSON, last)


def _after_titles(reading: Reading, at: int) -> int:
    """Titles come in rows: Frau Prof. Dr. med. Weber."""
    first = at + 1
    end = min(first + MOST_WORDS, len(reading.folded))
    while first < end and reading.folded[first] in BEFORE_NAME and _goes_on(reading, first, INITIAL_GAPS):
        first += 1
    return first


def _goes_on(reading: Reading, at: int, gaps: frozenset[str]) -> bool:
    return reading.gap(at) in gaps and not reading.breaks(at)


def _end_of_person(reading: Reading, first: int) -> int:
    """The end of the run of capitals that starts at `first`; small words count only when a capital follows."""
    last = first
    for at in range(first, min(first + MOST_WORDS, len(reading.folded))):
        initial = at == first or len(reading.folded[at - 1]) <= LONGEST_INITIAL
        if not _goes_on(reading, at, INITIAL_GAPS if initial else SPOKEN_GAPS):
            break
        folded = reading.folded[at]
        if folded in (tables.NO_NAME if at == first else AFTER_NAME) or _shouted_word(reading, at):
            break
        if reading.capital(at):
            last = at + 1
        elif folded not in tables.PARTICLES:
            break
    return last


def _shouted_word(reading: Reading, at: int) -> bool:
    """In a text of capitals the small words have them too: MR SMITH AND THE SUPPLIER."""
    folded = reading.folded[at]
    return len(folded) > 1 and folded in SMALL_WORDS and reading.shout(at)


def _means_a_person(reading: Reading, at: int, first: int, last: int) -> bool:
    title = reading.folded[at]
    quiet = title in tables.QUIET_TITLES and len(title) > 1
    if quiet and reading.shout(at) and reading.gap(at + 1) == " " and not reading.shout(first):
        return False
    # "M. Payment" numbers a clause, "M. Dupont" heads a letter: only the latter fills its line.
    numbered = title == "m" and (reading.gap(at + 1) not in DOTS or reading.begins_line(at))
    return not numbered or reading.ends_line(last - 1)


# --- Firms ---


def firms(reading: Reading, taken: frozenset[int]) -> Iterator[Name]:
    """`taken` holds the words that belong to somebody already: a firm's name does not reach over them."""
    floor = 0
    for first, last in legal_forms(reading):
        start = _start_of_firm(reading, first, floor, taken)
        if start is not None:
            yield Name(start, last, Kind.ORG, first)
        floor = last


def _start_of_firm(reading: Reading, form: int, floor: int, taken: frozenset[int]) -> int | None:
    first = form
    listed = False
    for at in range(form, max(floor, form - MOST_WORDS), -1):
        gap = reading.gap(at)
        folded = reading.folded[at - 1]
        if at - 1 in taken or not _firm_goes_on(reading, at, form, listed=listed):
            break
        if reading.cased(at - 1) or folded[0].isdigit() or _inside_word(reading, at - 1, gap):
            first = at - 1
        elif folded not in tables.FIRM_PARTICLES:
            break
        listed = listed or "&" in gap or folded in tables.JOINING
    return _without_leading(reading, first, form)


def _firm_goes_on(reading: Reading, at: int, form: int, *, listed: bool) -> bool:
    """A comma joins only before the legal form (Acme, Inc.) and in a list with "&" (Baker, Smith & Jones LLP)."""
    initial = len(reading.folded[at - 1]) <= LONGEST_INITIAL
    comma = (at == form or listed) and reading.gap(at) == ", "
    return _goes_on(reading, at, COMMA if comma else FIRM_INITIAL_GAPS if initial else FIRM_GAPS)


def _inside_word(reading: Reading, at: int, gap: str) -> bool:
    """The small letters of Sotheby's and of mid-word hyphens belong to the word they stand in."""
    return gap == "-" or (at > 0 and reading.gap(at) == "'")


def _without_leading(reading: Reading, first: int, form: int) -> int | None:
    """The name without what merely comes before it in the sentence; None when no name is left."""
    while first < form and _is_leading(reading, first):
        first += 1
    capitals = [at for at in range(first, form) if reading.capital(at)]
    named = [at for at in capitals if reading.folded[at] not in NO_FIRM]
    if not named:  # "Payment Services Ltd" is a firm, "Customer Limited" and "a Private Company Limited" are not
        described = all(reading.folded[at] in tables.GENERIC for at in capitals)
        return None if described or len(capitals) == 1 else first
    while reading.folded[first] in tables.TERMS or _is_leading(reading, first):
        first += 1
    return first


def _is_leading(reading: Reading, at: int) -> bool:
    gap = reading.gap(at + 1)
    return (gap == " " and reading.folded[at] in BEFORE_FIRM) or (gap != "-" and reading.number(at))


# --- What a name teaches: its other spellings, the surname alone, and the firm without its legal form ---
#
# Short forms that are also plain words are not learnt: hiding every "May" would help nobody.


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
