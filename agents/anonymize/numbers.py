"""Finds numbers that belong to somebody: IBANs, payment cards, telephones, and what a word nearby calls an account.

Every pattern is bounded. A number is left alone when it reads as a date, an amount, a clause or a version.
"""

import re
from collections.abc import Iterator

from agents.anonymize.spans import Kind, Span
from agents.anonymize.tables import IBAN_LENGTHS

# --- IBAN ---

IBAN_HEAD = re.compile(r"(?<![^\W_])[A-Z]{2}\d\d(?=[ \u00a0-]?[A-Z0-9]{2})", re.IGNORECASE | re.ASCII)
IBAN_BODY = {
    length: re.compile(rf"(?:[ \u00a0-]?[A-Z0-9]){{{length - 4}}}(?![A-Z0-9])", re.IGNORECASE | re.ASCII)
    for length in set(IBAN_LENGTHS.values())
}


def ibans(text: str) -> Iterator[Span]:
    for head in IBAN_HEAD.finditer(text):
        length = IBAN_LENGTHS.get(head[0][:2].upper())
        body = IBAN_BODY[length].match(text, head.end()) if length else None
        if body and _mod97("".join(filter(str.isalnum, body[0] + head[0]))):
            yield Span(head.start(), body.end(), Kind.IBAN)


def _mod97(rotated: str) -> bool:
    return int("".join(str(int(char, 36)) for char in rotated)) % 97 == 1


# --- Payment cards ---

# A look-ahead, so that a number in front of a card does not swallow it.
CARD = re.compile(r"(?<![\w.-])(?<![.,]\d)(?=((?:\d{13,19}|\d{3,6}(?:[ -]\d{3,6}){2,4})(?![\w-]|[.,]\d)))", re.ASCII)
ISSUED = re.compile(r"4|5[0-8]|6|3[0-9]|2[2-7]|1800|2131")
CARD_LENGTHS = range(13, 20)


def cards(text: str) -> Iterator[Span]:
    for found in CARD.finditer(text):
        number = found[1]
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

ALONE = r"(?<![\w.,+/=-])(?<!\d:)"
ENDS = r"(?![-.,/]?\d)(?!_|\s?(?:%|€|£|\$|EUR\b|USD\b|GBP\b|CHF\b|percent\b))"
DATED = r"(?!\d\d([./ -])\d\d\1\d{2,4}(?!\1?\d))"
DASH = r"[ ./\u2013-]"
JOIN = r"[ ()./\u00a0\u2011\u2013-]{0,3}"
PHONES = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        # +1 (212) 555-0100, 1-800-555-0100, (212) 555-0100, 212.555.0100
        rf"(?:(?<![\w+])\+1[ .-]?|{ALONE}(?:1[ .-])?)\(?[2-9]\d\d\)?[ .-]{{1,2}}\d{{3}}[ .-]\d{{4}}{ENDS}",
        # +44 (0)20 7946 0958, +4915112345678
        rf"(?<![\w+])\+(?!1[ .])[1-9](?:{JOIN}\d){{6,14}}{ENDS}",
        # 0049 30 1234567, 004930123456
        rf"{ALONE}00[1-9]\d?(?:[ ./-]{{1,2}}\d{{2,8}}){{2,5}}{ENDS}",
        rf"{ALONE}00[1-9]\d{{8,12}}{ENDS}",
        # 020 7946 0958, (02) 9876 5432, 0170/1234567, 01.42.68.53.00
        rf"{ALONE}{DATED}\(?0[1-9]\d{{0,4}}(?:\) ?|{DASH}| [/\u2013-] )\d{{2,8}}(?:{DASH}\d{{2,8}}){{0,4}}{ENDS}",
        # 07700900123
        rf"{ALONE}0[1-9]\d{{8,9}}{ENDS}",
        # 138 0013 8000
        rf"{ALONE}1[3-9]\d[ -]\d{{4}}[ -]\d{{4}}{ENDS}",
    )
)
TRUNK_DIGITS = range(9, 16)
COUNTING = "123456789"
PHONE_WORD = re.compile(
    r"(?<!\w)(?:tel(?:ephone|efon|éfono|éphone|efono|efoon|\.)?|tél|telf|phone|mobile|mob|cell|fax|telefax|handy|mobil"
    r"|whatsapp|portable|móvil)(?!\w)(?: ?(?:no|number|nr|nummer|num)\b)?[.:)]{0,2}[ \t]{0,3}"
    rf"(?=([+(]{{0,2}}\d(?:{JOIN}\d){{5,14}}{ENDS}))",
    re.IGNORECASE,
)


def phones(text: str) -> Iterator[Span]:
    for pattern in PHONES:
        for found in pattern.finditer(text):
            digits = "".join(filter(str.isdigit, found[0]))
            if (len(digits) in TRUNK_DIGITS and COUNTING not in digits) or found[0][0] == "+":
                yield Span(*found.span(), Kind.PHONE)
    for found in PHONE_WORD.finditer(text):
        yield Span(*found.span(1), Kind.PHONE)


# --- What a word nearby calls an account ---

ACCOUNT_WORD = re.compile(
    r"(?<![^\W_])(?:accounts?|acct|a/c|bank details|konto|kontonummer|kontonr|ktonr|kto|compte|cuenta|conto|rekening"
    r"|rekeningnummer|iban|sort code|bankleitzahl|blz|routing|ssn|social security|sozialversicherungsnummer"
    r"|national insurance|nino|tax(?:payer)?(?: id| identification| no\b| number| reference| file)|vat|ust-?id(?:nr)?"
    r"|steuernummer|steuer-?id(?:nr)?|steueridentifikationsnummer|passport|reisepass|passeport|pasaporte|passaporto"
    r"|ausweis|personalausweis|id card|identity card|driving licen[cs]e|driver'?s licen[cs]e|führerschein|medicare"
    r"|customer (?:no|number|id)|client (?:no|number|id)|kundennummer|policy (?:no|number)|personnummer|codice fiscale"
    r"|partita iva|company (?:no|number)|registration (?:no|number)|registered number|handelsregister"
    r"|(?-i:TIN|EIN|ITIN|NHS|DNI|NIF|NIE|CPF|CNPJ|SIREN|SIRET|BSN|PESEL|NIP|REGON|AHV|HRB))(?![^\W_])",
    re.IGNORECASE,
)
BEFORE_ACCOUNT = re.compile(r"[^\d;]{0,30}+(?=\d)")
PREFIX = re.compile(r"[A-Za-z]{1,4}\Z")
SOLID = re.compile(r"[0-9A-Za-z]{1,34}+(?:[-./](?=[A-Za-z]{0,3}\d)[0-9A-Za-z]{1,12}){0,6}")
GROUPED = re.compile(r"[0-9A-Za-z]{1,6}(?:[ \u00a0](?=[A-Za-z]{0,2}\d)[0-9A-Za-z]{1,6}(?![0-9A-Za-z])){1,8}")
DATE = re.compile(
    r"(?:19|20)\d\d([-./])\d{1,2}\1\d{1,2}|\d{1,2}([./-])\d{1,2}\2(?:19|20)\d\d|\d{1,2}([./])\d{1,2}\3\d\d"
)
AMOUNT_BEFORE = re.compile(
    r"(?:[€£$¥]|\b(?:EUR|USD|GBP|CHF|JPY|balance|sum|amount|total)\b[^\d]{0,8})\s?\Z", re.IGNORECASE
)
AMOUNT_AFTER = re.compile(r"[.,]?\d|\s?(?:[€£$¥%]|(?:EUR|USD|GBP|CHF|JPY|euros?|dollars?|pounds?)\b)", re.IGNORECASE)
LEAST_DIGITS = 6
SOCIAL_SECURITY = re.compile(r"(?<![\w.-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])", re.ASCII)


def accounts(text: str) -> Iterator[Span]:
    for found in SOCIAL_SECURITY.finditer(text):
        yield Span(*found.span(), Kind.ACCT)
    for word in ACCOUNT_WORD.finditer(text):
        gap = BEFORE_ACCOUNT.match(text, word.end())
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


LABEL_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.-]+")


def labelled(value: str, label: str) -> Iterator[Span]:
    """The whole value, when the key it stands under calls it an account or a telephone and it has the digits for it."""
    if not label or sum(map(str.isdigit, value)) < LEAST_DIGITS:
        return
    words = LABEL_WORDS.sub(" ", label)
    if ACCOUNT_WORD.search(words):
        yield from (span for span in _account(value, 0) if span.end == len(value))
    yield from (
        Span(0, len(value), Kind.PHONE) for found in PHONE_WORD.finditer(f"{words}: {value}") if found[1] == value
    )


# --- Web addresses ---

WEB = re.compile(r"(?:https?|ftp|wss?)://[^\s<>\"]{1,2000}+", re.IGNORECASE)
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
