"""Finds numbers that show by themselves what they are: IBANs, payment cards and telephones.

Every pattern is bounded. A number is left alone when it reads as a date, an amount, a clause or a version.
"""

import re
from collections.abc import Iterator

from agents.anonymize.spans import Kind, Span
from agents.anonymize.tables import IBAN_LENGTHS

# --- IBAN ---

# Patterns begin with the digit that they take, and only then look behind: that is searched for several times faster.
IBAN_HEAD = re.compile(r"\d(?<=[A-Za-z]{2}\d)(?<![^\W_][A-Za-z]{2}\d)\d(?=[ \u00a0-]?[A-Za-z0-9]{2})", re.ASCII)
IBAN_BODY = {
    length: re.compile(rf"(?:[ \u00a0-]?[A-Z0-9]){{{length - 4}}}(?![A-Z0-9])", re.IGNORECASE | re.ASCII)
    for length in set(IBAN_LENGTHS.values())
}


def ibans(text: str) -> Iterator[Span]:
    for head in IBAN_HEAD.finditer(text):
        start = head.start() - 2
        length = IBAN_LENGTHS.get(text[start : start + 2].upper())
        body = IBAN_BODY[length].match(text, head.end()) if length else None
        if body and _mod97("".join(filter(str.isalnum, body[0] + text[start : head.end()]))):
            yield Span(start, body.end(), Kind.IBAN)


def _mod97(rotated: str) -> bool:
    return int("".join(str(int(char, 36)) for char in rotated)) % 97 == 1


# --- Payment cards ---

# A look-ahead, so that a number in front of a card does not swallow it.
CARD = re.compile(r"[1-6](?<![\w.,-]\d)(?=((?:\d{12,18}|\d{2,5}(?:[ -]\d{3,6}){2,4})(?![\w-]|[.,]\d)))", re.ASCII)
ISSUED = re.compile(r"4|5[0-8]|6|3[0-9]|2[2-7]|1800|2131")
CARD_LENGTHS = range(13, 20)


def cards(text: str) -> Iterator[Span]:
    for found in CARD.finditer(text):
        number = found[0] + found[1]
        while number:  # shorter by one group each time: a security code may stand behind the card
            digits = "".join(filter(str.isdigit, number))
            if len(digits) in CARD_LENGTHS and ISSUED.match(digits) and _luhn(digits):
                yield Span(found.start(), found.start() + len(number), Kind.CARD)
                break
            number = number[: max(number.rfind(" "), number.rfind("-"), 0)]


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[::-2]))) % 10 == 0


# --- Telephones ---

ALONE = r"(?<![\w.,+/=-].)(?<!\d:.)"
ENDS = r"(?![-.,/]?\d)(?!_|\s?(?:%|€|£|\$|EUR\b|USD\b|GBP\b|CHF\b|percent\b))"
DATED = r"(?!\d([./ -])\d\d\1\d{2,4}(?!\1?\d))"
DASH = r"[ ./\u2013-]"
JOIN = r"[ ()./\u00a0\u2011\u2013-]{0,3}"
PHONES = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        # +1 (212) 555-0100, 1-800-555-0100, (212) 555-0100, 212.555.0100
        rf"\+(?<![\w+]\+)1[ .-]?\(?[2-9]\d\d\)?[ .-]{{0,2}}\d{{3}}[ .-]?\d{{4}}{ENDS}",
        rf"[2-9]{ALONE}\d\d[ .-]\d{{3}}[ .-]\d{{4}}{ENDS}",
        rf"\({ALONE}[2-9]\d\d\)[ .-]{{0,2}}\d{{3}}[ .-]\d{{4}}{ENDS}",
        rf"1{ALONE}[ .-]\(?[2-9]\d\d\)?[ .-]{{1,2}}\d{{3}}[ .-]\d{{4}}{ENDS}",
        # +44 (0)20 7946 0958, +4915112345678
        rf"\+(?<![\w+]\+)(?!1[ .])[1-9](?:{JOIN}\d){{6,14}}{ENDS}",
        # 0049 30 1234567, 004930123456
        rf"0{ALONE}0[1-9]\d?(?:[ ./-]{{1,2}}\d{{2,8}}){{2,5}}{ENDS}",
        rf"0{ALONE}0[1-9]\d{{8,12}}{ENDS}",
        # 020 7946 0958, (02) 9876 5432, 0170/1234567, 01.42.68.53.00
        rf"0{ALONE}{DATED}[1-9]\d{{0,4}}(?:{DASH}| [/\u2013-] )\d{{2,8}}(?:{DASH}\d{{2,8}}){{0,4}}{ENDS}",
        rf"\({ALONE}0[1-9]\d{{0,4}}\)[ -]?\d{{2,8}}(?:{DASH}\d{{2,8}}){{0,4}}{ENDS}",
        # 07700900123
        rf"0{ALONE}[1-9]\d{{8,9}}{ENDS}",
        # 138 0013 8000
        rf"1{ALONE}[3-9]\d[ -]\d{{4}}[ -]\d{{4}}{ENDS}",
    )
)
TRUNK_DIGITS = range(9, 16)
COUNTING = "123456789"


def phones(text: str) -> Iterator[Span]:
    for pattern in PHONES:
        for found in pattern.finditer(text):
            digits = "".join(filter(str.isdigit, found[0]))
            if (len(digits) in TRUNK_DIGITS and COUNTING not in digits) or found[0][0] == "+":
                yield Span(*found.span(), Kind.PHONE)


# --- Web addresses ---

WEB = re.compile(r"://[^\s<>\"]{1,2000}+")
NOT_IN_WEB = frozenset({Kind.PHONE, Kind.CARD})


def outside_web(text: str, spans: list[Span]) -> list[Span]:
    """Digits in a web address are its business; addresses and names in it are still found."""
    webs = [found.span() for found in WEB.finditer(text)]
    kept = []
    at = 0
    for span in sorted(spans):
        while at < len(webs) and webs[at][1] <= span.start:
            at += 1
        inside = at < len(webs) and webs[at][0] <= span.start
        if not (inside and span.kind in NOT_IN_WEB):
            kept.append(span)
    return kept
