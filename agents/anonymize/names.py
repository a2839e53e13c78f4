"""Finds persons by their title and firms by their legal form, and learns their short forms.

Names with neither are found only when they are listed. The search goes forwards from a title and backwards from a legal
form, a bounded number of words each.
"""

from collections.abc import Iterator
from typing import NamedTuple

from agents.anonymize import reading as tables
from agents.anonymize.reading import Kind, Known, Leaf, Reading, read_phrases

MOST_WORDS = 8
SPOKEN_GAPS = frozenset({" ", "-", "'"})
FIRM_GAPS = SPOKEN_GAPS | frozenset({"&", " & ", "+", " + ", "! "})
COMMA = frozenset({", "})
DOTS = frozenset({".", ". "})
INITIAL_GAPS = SPOKEN_GAPS | DOTS
FIRM_INITIAL_GAPS = FIRM_GAPS | DOTS
LONGEST_INITIAL = 2
BEFORE_NAME = tables.TITLES | tables.DEGREES
SMALL_WORDS = tables.LEADING - tables.PARTICLES
AFTER_NAME = tables.TERMS - tables.ALSO_NAMES
NO_FIRM = tables.TERMS | tables.GENERIC
BEFORE_FIRM = tables.LEADING | tables.FIRM_PARTICLES


class Name(NamedTuple):
    """The words from `first` to before `last`. Those before `legal_form` are the short name of a firm."""

    first: int
    last: int
    kind: Kind
    legal_form: int


# --- Legal forms ---


LEGAL_FORMS = read_phrases(tables.LEGAL_FORMS, Kind.ORG, longest_acronym=3)


def legal_forms(reading: Reading) -> Iterator[tuple[int, int]]:
    """Yield where legal forms stand. Those that follow one another are one: Pty Ltd, GmbH & Co. KG."""
    first = last = -1
    for found in LEGAL_FORMS.find(reading):
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
    for at in reading.places_of(tables.TITLES):
        name = _person_after(reading, at) if at >= end and reading.is_capitalised(at) else None
        if name is not None:
            yield name
            end = name.last


def _person_after(reading: Reading, at: int) -> Name | None:
    first = _after_titles(reading, at)
    last = _end_of_person(reading, first)
    if last == first or not _is_person(reading, at, first, last):
        return None
    return Name(first, last, Kind.PERSON, last)


def _after_titles(reading: Reading, at: int) -> int:
    """Skip a row of titles: Frau Prof. Dr. med. Weber."""
    first = at + 1
    end = min(first + MOST_WORDS, len(reading.folded))
    while first < end and reading.folded[first] in BEFORE_NAME and _continues(reading, first, INITIAL_GAPS):
        first += 1
    return first


def _continues(reading: Reading, at: int, gaps: frozenset[str]) -> bool:
    return reading.gap(at) in gaps and not reading.starts_new_line(at)


def _end_of_person(reading: Reading, first: int) -> int:
    """Return the end of the run of capitalised words; small words count only when a capital follows."""
    last = first
    for at in range(first, min(first + MOST_WORDS, len(reading.folded))):
        is_initial = at == first or len(reading.folded[at - 1]) <= LONGEST_INITIAL
        if not _continues(reading, at, INITIAL_GAPS if is_initial else SPOKEN_GAPS):
            break
        folded = reading.folded[at]
        if folded in (tables.NO_NAME if at == first else AFTER_NAME) or _is_upper_small_word(reading, at):
            break
        if reading.is_capitalised(at):
            last = at + 1
        elif folded not in tables.PARTICLES:
            break
    return last


def _is_upper_small_word(reading: Reading, at: int) -> bool:
    """In a text of capitals small words have them too: MR SMITH AND THE SUPPLIER."""
    folded = reading.folded[at]
    return len(folded) > 1 and folded in SMALL_WORDS and reading.is_upper(at)


def _is_person(reading: Reading, at: int, first: int, last: int) -> bool:
    title = reading.folded[at]
    is_ambiguous = title in tables.QUIET_TITLES and len(title) > 1
    if is_ambiguous and reading.is_upper(at) and reading.gap(at + 1) == " " and not reading.is_upper(first):
        return False
    # "M. Payment" numbers a clause, "M. Dupont" heads a letter: only the latter fills its line.
    is_numbering = title == "m" and (reading.gap(at + 1) not in DOTS or reading.begins_line(at))
    return not is_numbering or reading.ends_line(last - 1)


# --- Firms ---


def firms(reading: Reading, taken: frozenset[int]) -> Iterator[Name]:
    """Yield firms. `taken` are words of other names, over which a firm's name does not reach."""
    floor = 0
    for first, last in legal_forms(reading):
        start = _start_of_firm(reading, first, floor, taken)
        if start is not None:
            yield Name(start, last, Kind.ORG, first)
        floor = last


def _start_of_firm(reading: Reading, form: int, floor: int, taken: frozenset[int]) -> int | None:
    first = form
    in_list = False
    for at in range(form, max(floor, form - MOST_WORDS), -1):
        gap = reading.gap(at)
        folded = reading.folded[at - 1]
        if at - 1 in taken or not _firm_continues(reading, at, form, in_list=in_list):
            break
        if reading.has_capitals(at - 1) or folded[0].isdigit() or _is_inside_word(reading, at - 1, gap):
            first = at - 1
        elif folded not in tables.FIRM_PARTICLES:
            break
        in_list = in_list or "&" in gap or folded in tables.JOINING
    return _without_leading(reading, first, form)


def _firm_continues(reading: Reading, at: int, form: int, *, in_list: bool) -> bool:
    """A comma joins only before the legal form (Acme, Inc.) and in a list with "&" (Baker, Smith & Jones LLP)."""
    is_initial = len(reading.folded[at - 1]) <= LONGEST_INITIAL
    is_comma = (at == form or in_list) and reading.gap(at) == ", "
    return _continues(reading, at, COMMA if is_comma else FIRM_INITIAL_GAPS if is_initial else FIRM_GAPS)


def _is_inside_word(reading: Reading, at: int, gap: str) -> bool:
    """Return True for the small letters of Sotheby's and after a hyphen: they belong to their word."""
    return gap == "-" or (at > 0 and reading.gap(at) == "'")


def _without_leading(reading: Reading, first: int, form: int) -> int | None:
    """Drop words that merely precede the name in the sentence; None when no name is left."""
    while first < form and _is_leading(reading, first):
        first += 1
    capitals = [at for at in range(first, form) if reading.is_capitalised(at)]
    named = [at for at in capitals if reading.folded[at] not in NO_FIRM]
    if not named:  # "Payment Services Ltd" is a firm, "Customer Limited" and "a Private Company Limited" are not
        is_description = all(reading.folded[at] in tables.GENERIC for at in capitals)
        return None if is_description or len(capitals) == 1 else first
    while reading.folded[first] in tables.TERMS or _is_leading(reading, first):
        first += 1
    return first


def _is_leading(reading: Reading, at: int) -> bool:
    gap = reading.gap(at + 1)
    return (gap == " " and reading.folded[at] in BEFORE_FIRM) or (gap != "-" and reading.is_number(at))


# --- Learning ---


SHORTEST_SURNAME = 3
SHORTEST_FIRM = 4


def read_party(party: str) -> tuple[Reading, Name]:
    """Read a listed party: a firm when it ends in a legal form or holds a word of firms, else a person."""
    reading = Reading(party)
    size = len(reading.folded)
    form = min((first for first, last in legal_forms(reading) if last == size and first), default=size)
    is_firm = form < size or any(word in tables.FIRM_WORDS for word in reading.folded)
    return reading, Name(0, size, Kind.ORG if is_firm else Kind.PERSON, form)


def learn(known: Known, reading: Reading, name: Name, *, as_listed: bool = False) -> None:
    """Add a name and its short form: the surname alone, or the firm without its legal form.

    A single word that was not listed is hidden only where it is capitalised. Short forms that are also plain words are
    left out: hiding every "May" would help nobody.
    """
    key = reading.key(name.first, name.last)
    is_single = name.last - name.first == 1
    is_plain = is_single and key in tables.COMMON
    if as_listed or not is_plain:
        capital = (is_plain or (is_single and not as_listed)) and reading.is_capitalised(name.first)
        known.add(reading, name.first, name.last, Leaf(name.kind, key, capital=capital))
    first, last = _short_form(reading, name)
    if (first, last) != (name.first, name.last) and _is_distinctive(reading, first, last, name.kind):
        known.add(reading, first, last, Leaf(name.kind, key, capital=True), is_short=True)


def _short_form(reading: Reading, name: Name) -> tuple[int, int]:
    """Acme Ltd without its legal form; the last name of Anna Weber-Lang, hyphens included."""
    if name.kind is Kind.ORG:
        return name.first, name.legal_form
    first = name.last - 1
    while first > name.first and reading.gap(first) in ("-", "'"):
        first -= 1
    return first, name.last


def _is_distinctive(reading: Reading, first: int, last: int, kind: Kind) -> bool:
    words = reading.folded[first:last]
    shortest = SHORTEST_FIRM if kind is Kind.ORG else SHORTEST_SURNAME
    return sum(map(len, words)) >= shortest and not tables.COMMON.issuperset(words)
