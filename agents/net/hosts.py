"""Host names in one canonical form: lower-case ASCII, as DNS sees them.

A name that some other program could read as a different host is refused, never interpreted. Nothing is looked up here.
"""

import re
import unicodedata

import idna

from agents.net.addresses import Address, Allowed, read_address
from agents.net.errors import UrlRefused

NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*", re.ASCII)
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
TOP_LEVEL = re.compile(r"[a-z]{2,63}|xn--[a-z0-9-]+", re.ASCII)
DOTTED_QUAD = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}", re.ASCII)
OTHER_DOTS = re.compile("[\u3002\uff0e\uff61\u2024\ufe52]")
JOINERS = "\u200c\u200d"  # letters of some scripts, and pictures, need them between them
MAX_NAME = 253

# Names that lead inside: reserved for it, never delegated, or known as a machine's own description of itself.
LOCAL_SUFFIXES = (
    "alt", "arpa", "cluster", "consul", "corp", "docker", "domain", "home", "i2p", "internal", "intra", "intranet",
    "invalid", "kube", "lan", "local", "localdomain", "localdomain6", "localhost", "mail", "onion", "private", "svc",
    "test", "workgroup",
    "metadata.goog", "metadata.packet.net", "metadata.platformequinix.com", "metadata.tencentyun.com",
)  # fmt: skip


def canonical_host(host: str, port: int, allow: Allowed) -> tuple[str, Address | None]:
    """The host in the form that is looked up and sent, and its address if it is one."""
    if host.startswith("["):
        return _literal_v6(host)
    name = _ascii(host)
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise UrlRefused("host_form")
    last = name.rpartition(".")[2]
    if NUMBER.fullmatch(last):
        return _literal_v4(name)
    if not allow.host(name, port):
        _refuse_local(name, last)
    return name, None


def _ascii(host: str) -> str:
    if host.isascii():
        name = host.lower()
        for label in name.split("."):
            if label.startswith("xn--"):
                _refuse_odd_punycode(label)
        return name
    # Compatibility forms (full-width, circled, ligatures) become other characters in some programs and not in others.
    lowered = host.lower()
    plain = all(unicodedata.normalize("NFKC", text) == text for text in (host, lowered))
    if not plain or OTHER_DOTS.search(host):
        raise UrlRefused("host_idna")
    try:
        return idna.encode(lowered, strict=True).decode("ascii")
    except UnicodeError:
        raise UrlRefused("host_idna") from None


def _refuse_odd_punycode(label: str) -> None:
    """A name already in DNS form is sent as it is, but must be the one form of something that can be seen."""
    try:
        meant = label[4:].encode("ascii").decode("punycode")
        same = meant.encode("punycode").decode("ascii") == label[4:]
    except (UnicodeError, ValueError, OverflowError):
        raise UrlRefused("host_idna") from None
    unseen = any(unicodedata.category(character)[0] in "CZ" for character in meant if character not in JOINERS)
    plain = unicodedata.normalize("NFKC", meant) == meant and not OTHER_DOTS.search(meant)
    if not same or meant.isascii() or unseen or not plain:
        raise UrlRefused("host_idna")


def _literal_v6(host: str) -> tuple[str, Address]:
    address = read_address(host[1:-1]) if host.endswith("]") else None
    if address is None or address.version != 6:  # noqa: PLR2004 - the version is its name
        raise UrlRefused("host_form")
    return address.compressed, address


def _literal_v4(name: str) -> tuple[str, Address]:
    """Decimal, octal, hexadecimal, short and padded forms mean different addresses to different programs."""
    address = read_address(name) if DOTTED_QUAD.fullmatch(name) else None
    if address is None:
        raise UrlRefused("host_form")
    return name, address


def _refuse_local(name: str, last: str) -> None:
    if "." not in name:
        raise UrlRefused("host_local")
    if any(name == suffix or name.endswith(f".{suffix}") for suffix in LOCAL_SUFFIXES):
        raise UrlRefused("host_local")
    if not TOP_LEVEL.fullmatch(last):
        raise UrlRefused("host_form")
