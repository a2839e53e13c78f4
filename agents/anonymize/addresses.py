"""Finds e-mail and IP addresses. Plain web addresses are not personal and stay as they are."""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from agents.anonymize.spans import Kind, Span

# Looked for at the "@" and extended to the left, so that a long text without one costs nothing.
DOMAIN = re.compile(r"@(?<=[\w'+%.-]@)(?:[\w-]{1,63}\.){1,8}(?:xn--[a-z0-9-]{1,58}|[^\W\d_]{2,63})(?![\w-]|:[\w~/])")
LOCAL = re.compile(r"[\w.%+'-]{1,64}")
LOCAL_EDGE = ".%+'-"

# A pattern that begins with what it takes, and only then looks behind, is searched for several times faster.
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
    """Loopback, netmasks and the like name no machine of anybody's."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or address.packed[0] == NETMASK)


def _is_numbering(text: str, found: re.Match[str]) -> bool:
    before = text[max(0, found.start() - LOOK_BEHIND) : found.start()].rpartition("\n")[2]
    if NO_ADDRESS.search(before):
        return True
    small = all(0 < int(part) <= LARGEST_CLAUSE for part in found[0].split("."))
    return not before.strip() and small and HEADING.match(text, found.end()) is not None
