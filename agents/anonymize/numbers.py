"""Finds e-mail and IP addresses, IBANs, payment cards, telephones, and numbers that a word nearby calls an account.

Every pattern is bounded and begins with the character that it takes, which is searched for several times faster than
one that looks behind first. A number that reads as a date, an amount, a clause or a version is left alone.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from agents.anonymize.reading import ACCOUNT_WORDS, IBAN_LENGTHS, PHONE_WORDS, Kind, Reading, Span, read_phrases

# --- E-mail and IP addresses ---


# Found at the "@" and extended to the left, so that a long text without one costs nothing.
DOMAIN = re.compile(r"@(?<=[\w'+%.-]@)(?:[\w-]{1,63}\.){1,8}(?:xn--[a-z0-9-]{1,58}|[^\W\d_]{2,63})(?![\w-]|:[\w~/])")
LOCAL = re.compile(r"[\w.%+'-]{1,64}")
LOCAL_EDGE = ".%+'-"

IPV4 = re.compile(r"\d(?<![\w.]\d)\d{0,2}(?:\.\d{1,3}){3}(?!\w|\.\w)", re.ASCII)
IPV6 = re.compile(
    r"[0-9A-Fa-f:](?<![\w:.].)(?=[0-9A-Fa-f]{0,3}:)[0-9A-Fa-f:]{1,38}(?:\.\d{1,3}){0,3}(?!\w|:|\.\w)", re.ASCII
)
# Four numbers with dots are also a version and a clause: known by the word before, or by heading a line.
NO_ADDRESS = re.compile(
    r"(?:(?<!\w)(?:version|release|build|rev|clauses?|sections?|sec|articles?|art|paragraphs?|para|item|annex|schedule"
    r"|ziffer|nr|no|v|ver)\b\.?|§+) *(?:[\d.]+(?: *(?:,|and|or|to|und|-|\u2013) *))*\Z",
    re.IGNORECASE,
)
LOOK_BEHIND = 60
HEADING = re.compile(r"\.? +\w")
LARGEST_CLAUSE = 99
DIGIT = re.compile("[0-9]")
NETMASK = 255


def emails(text: str) -> Iterator[Span]:
    for found in DOMAIN.finditer(text):
        local = LOCAL.match(text[max(0, found.start() - 64) : found.start()][::-1])
        start = found.start() - (len(local[0].rstrip(LOCAL_EDGE)) if local else 0)
        if start < found.start():
            yield Span(start, found.end(), Kind.EMAIL)


def addresses(text: str) -> Iterator[Span]:
    for found in IPV4.finditer(text):
        if _is_host(found[0]) and not _is_numbering(text, found):
            yield Span(*found.span(), Kind.IP)
    for found in IPV6.finditer(text):
        if _is_host(found[0]) and DIGIT.search(found[0]):  # "dead::beef" is code
            yield Span(*found.span(), Kind.IP)


def _is_host(text: str) -> bool:
    """Return False for loopback, netmasks and the like: they name nobody's machine."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or address.packed[0] == NETMASK)


def _is_numbering(text: str, found: re.Match[str]) -> bool:
    before = text[max(0, found.start() - LOOK_BEHIND) : found.start()].rpartition("\n")[2]
    if NO_ADDRESS.search(before):
        return True
    is_small = all(0 < int(part) <= LARGEST_CLAUSE for part in found[0].split("."))
    return not before.strip() and is_small and HEADING.match(text, found.end()) is not None


# --- IBAN ---

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
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
        if body is None or _ends_a_uuid(text, start, body.end()):
            continue
        if _mod97("".join(filter(str.isalnum, body[0] + text[start : head.end()]))):
            yield Span(start, body.end(), Kind.IBAN)


def _ends_a_uuid(text: str, start: int, end: int) -> bool:
    """Return whether these are the last groups of a UUID: one in some ten thousand reads like an IBAN."""
    return any(
        (found := UUID.match(text, start - before)) and found.end() == end for before in (9, 14, 19) if before <= start
    )


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
    """Drop telephones and cards inside web addresses; e-mail addresses and names in them are kept."""
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


# --- Accounts, identity numbers and telephones behind a word ---


LEAST_DIGITS = 6
TELEPHONE = rf"([+(]{{0,2}}\d(?:{JOIN}\d){{5,14}}{ENDS})"
ANNOUNCED_TELEPHONE = re.compile(
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


WORDS = (
    read_phrases(ACCOUNT_WORDS, Kind.ACCT, longest_acronym=9),
    read_phrases(PHONE_WORDS, Kind.PHONE, longest_acronym=9),
)


def _number_words(reading: Reading) -> Iterator[tuple[int, Kind]]:
    """Yield where a word ends that announces a number, and the kind of number."""
    for words in WORDS:
        for _, last, leaf in words.find(reading):
            yield reading.ends[last - 1], leaf.kind


def accounts(reading: Reading) -> Iterator[Span]:
    """Yield the numbers that follow such a word within a few characters and have enough digits."""
    text = reading.text
    for found in SOCIAL_SECURITY.finditer(text):
        yield Span(*found.span(), Kind.ACCT)
    for end, kind in _number_words(reading):
        yield from _account_after(text, end) if kind is Kind.ACCT else _telephone_after(text, end)


def _telephone_after(text: str, end: int) -> Iterator[Span]:
    found = ANNOUNCED_TELEPHONE.match(text, end)
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
    """Yield the whole value when the key above it announces such a number and the value has its form."""
    if not label or sum(map(str.isdigit, value)) < LEAST_DIGITS:
        return
    kinds = {kind for _, kind in _number_words(Reading(LABEL_BREAK.sub(" ", label)))}
    if Kind.ACCT in kinds:
        yield from (span for span in _account(value, 0) if span.end == len(value))
    if Kind.PHONE in kinds and LABELLED_TELEPHONE.fullmatch(value):
        yield Span(0, len(value), Kind.PHONE)
