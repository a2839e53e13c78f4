"""Finds numbers that a word nearby calls an account, an identity number or a telephone.

The word is looked up, not searched for; the number must come within a few characters and have digits enough.
"""

import re
from collections.abc import Iterator

from agents.anonymize.known import Known, Leaf
from agents.anonymize.numbers import ENDS, JOIN
from agents.anonymize.reading import Reading
from agents.anonymize.spans import Kind, Span
from agents.anonymize.tables import ACCOUNT_WORDS, PHONE_WORDS

LEAST_DIGITS = 6
TELEPHONE = rf"([+(]{{0,2}}\d(?:{JOIN}\d){{5,14}}{ENDS})"
TOLD_TELEPHONE = re.compile(
    rf"(?: ?(?:no|number|nr|nummer|num)\b)?[.:)=\"']{{0,3}}[ \t]{{0,3}}[\"']?{TELEPHONE}", re.IGNORECASE | re.ASCII
)
LABELLED_TELEPHONE = re.compile(TELEPHONE, re.ASCII)

BEFORE_NUMBER = re.compile(r"[^\d;]{0,30}+(?=\d)", re.ASCII)
PREFIX = re.compile(r"[A-Za-z]{1,4}\Z")
SOLID = re.compile(r"[0-9A-Za-z]{1,34}+(?:[-./](?=[A-Za-z]{0,3}\d)[0-9A-Za-z]{1,12}){0,6}", re.ASCII)
GROUPED = re.compile(r"[0-9A-Za-z]{1,6}(?:[ \u00a0](?=[A-Za-z]{0,2}\d)[0-9A-Za-z]{1,12}(?![0-9A-Za-z])){1,8}", re.ASCII)
DATE = re.compile(
    r"(?:19|20)\d\d([-./])\d{1,2}\1\d{1,2}|\d{1,2}([./-])\d{1,2}\2(?:19|20)\d\d|\d{1,2}([./])\d{1,2}\3\d\d", re.ASCII
)
AMOUNT_BEFORE = re.compile(
    r"(?:[€£$¥]|\b(?:EUR|USD|GBP|CHF|JPY|balance|sum|amount|total)\b[^\d]{0,8})\s?\Z", re.IGNORECASE
)
AMOUNT_AFTER = re.compile(r"[.,]?\d|\s?(?:[€£$¥%]|(?:EUR|USD|GBP|CHF|JPY|euros?|dollars?|pounds?)\b)", re.IGNORECASE)
SOCIAL_SECURITY = re.compile(
    r"[0-8](?<![\w.-]\d)(?<!0(?=00-))(?<!6(?=66-))\d\d-(?!00)\d\d-(?!0000)\d{4}(?![\w-])", re.ASCII
)
LABEL_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.-]+")


def _phrases(table: str, kind: Kind) -> Known:
    """A phrase that is written in capitals is an acronym, and counts in capitals only: EIN, not the German "ein"."""
    known = Known()
    for phrase in table.split(";"):
        reading = Reading(phrase.strip())
        known.add(reading, 0, len(reading.folded), Leaf(kind, "", capital=reading.shout(0)))
    return known


WORDS = (_phrases(ACCOUNT_WORDS, Kind.ACCT), _phrases(PHONE_WORDS, Kind.PHONE))


def _calls(reading: Reading) -> Iterator[tuple[int, Kind]]:
    """Where a word ends that calls for a number, and for which kind."""
    for words in WORDS:
        for first, last, leaf in words.find(reading):
            if not leaf.capital or reading.shout(first):
                yield reading.ends[last - 1], leaf.kind


def accounts(reading: Reading) -> Iterator[Span]:
    text = reading.text
    for found in SOCIAL_SECURITY.finditer(text):
        yield Span(*found.span(), Kind.ACCT)
    for end, kind in _calls(reading):
        yield from _account_after(text, end) if kind is Kind.ACCT else _telephone_after(text, end)


def _telephone_after(text: str, end: int) -> Iterator[Span]:
    found = TOLD_TELEPHONE.match(text, end)
    if found:
        yield Span(*found.span(1), Kind.PHONE)


def _account_after(text: str, end: int) -> Iterator[Span]:
    gap = BEFORE_NUMBER.match(text, end)
    if gap and not AMOUNT_BEFORE.search(gap[0]):
        prefix = PREFIX.search(gap[0])
        yield from _account(text, gap.end() - (len(prefix[0]) if prefix else 0))


def _account(text: str, start: int) -> Iterator[Span]:
    for shape in (SOLID, GROUPED):
        found = shape.match(text, start)
        if found and sum(map(str.isdigit, found[0])) >= LEAST_DIGITS:
            if not (DATE.fullmatch(found[0]) or AMOUNT_AFTER.match(text, found.end())):
                yield Span(*found.span(), Kind.ACCT)
            return


def labelled(value: str, label: str) -> Iterator[Span]:
    """The whole value, when the key that it stands under calls for it and it has the shape."""
    if not label or sum(map(str.isdigit, value)) < LEAST_DIGITS:
        return
    kinds = {kind for _, kind in _calls(Reading(LABEL_BREAK.sub(" ", label)))}
    if Kind.ACCT in kinds:
        yield from (span for span in _account(value, 0) if span.end == len(value))
    if Kind.PHONE in kinds and LABELLED_TELEPHONE.fullmatch(value):
        yield Span(0, len(value), Kind.PHONE)
