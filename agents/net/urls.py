"""Decides whether lqops may go to an address, and says exactly where that is.

A URL is refused rather than repaired, because two programs that repair differently see two hosts. A caller dials
`CheckedUrl.addresses` and nothing else, and checks again for each redirect and each reconnect.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from agents.net.addresses import Address, Allowed, allowed, is_public, read_address
from agents.net.errors import UrlRefused
from agents.net.hosts import canonical_host
from agents.net.resolving import LOOKUP_SECONDS, Resolve, answers, system_resolve

MAX_URL_BYTES = 8 * 1024
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?")
AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([1-9][0-9]{0,4}))?")
BAD_CHARACTER = re.compile("[\\s\\\\\x00-\x20\x7f-\xa0\ud800-\udfff]")
STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
MAX_PORT = 65535
MAX_ANSWERS = 64

# What browsers refuse (mail, file, remote login, names, printing …), then databases, queues and control planes.
REFUSED_PORTS = frozenset(
    {
        1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
        110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530,
        531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045,
        4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
        445, 873, 1433, 1521, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5433, 5672, 5900, 5984, 6379, 6380, 6432,
        8500, 9042, 9092, 9200, 9300, 10250, 10255, 11211, 15672, 26379, 27017, 27018, 27019,
    }
)  # fmt: skip


@dataclass(frozen=True)
class CheckedUrl:
    """A URL that was let through, in normal form, with every address that its host had when it was checked."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    query: str
    addresses: tuple[str, ...]
    allow_listed: bool

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


def check_url(
    url: str,
    *,
    schemes: tuple[str, ...] = ("http", "https"),
    resolve: Resolve | None = None,
    allow_hosts: Sequence[str] | None = None,
    allow_networks: Sequence[str] | None = None,
    lookup_seconds: float = LOOKUP_SECONDS,
) -> CheckedUrl:
    """Raises UrlRefused, or returns where the URL leads. The allow-lists are the settings' unless they are given."""
    refuse_characters(url)
    form = FORM.fullmatch(url)
    if form is None:
        raise UrlRefused("malformed")
    scheme = form[1].lower()
    if scheme not in schemes or scheme not in DEFAULT_PORTS:
        raise UrlRefused("scheme")
    allow = allowed(allow_hosts, allow_networks)
    literal, port = _split(form[2], DEFAULT_PORTS[scheme])
    host, address = canonical_host(literal, port, allow)
    if address is None:
        found = _looked_up(host, resolve or system_resolve, lookup_seconds)
    else:
        found = (address,)
    allow_listed = _judged(host, port, found, allow)
    path, query = _encoded(form[3] or "/", "/:@"), _encoded((form[4] or "?")[1:], "/:@?[]")
    return CheckedUrl(
        url=_assembled(scheme, host, port, path, query),
        scheme=scheme,
        host=host,
        port=port,
        path=path,
        query=query,
        addresses=tuple(item.compressed for item in found),
        allow_listed=allow_listed,
    )


def refuse_characters(url: str) -> None:
    """What some programs strip or turn into a slash, and so read another host than others do."""
    if len(url) > MAX_URL_BYTES:
        raise UrlRefused("too_long")
    if BAD_CHARACTER.search(url):
        raise UrlRefused("characters")
    if len(url.encode()) > MAX_URL_BYTES:
        raise UrlRefused("too_long")


def _split(authority: str, default_port: int) -> tuple[str, int]:
    if "@" in authority:
        raise UrlRefused("credentials")
    if not authority:
        raise UrlRefused("malformed")
    parts = AUTHORITY.fullmatch(authority)
    if parts is None:
        raise UrlRefused("port" if ":" in authority and "[" not in authority else "host_form")
    port = int(parts[2] or default_port)
    if port > MAX_PORT or port in REFUSED_PORTS:
        raise UrlRefused("port")
    return parts[1], port


def _looked_up(host: str, resolve: Resolve, seconds: float) -> tuple[Address, ...]:
    """Every answer, read strictly: one that cannot be read or judged refuses the whole name."""
    texts = answers(host, resolve, seconds)
    found = tuple(address for address in map(read_address, texts[:MAX_ANSWERS]) if address is not None)
    if len(found) != len(texts):
        raise UrlRefused("address")
    return found


def _judged(host: str, port: int, addresses: tuple[Address, ...], allow: Allowed) -> bool:
    """Whether the operator's list was needed; refuses if it was needed and does not help."""
    if allow.host(host, port):
        return True
    inside = [address for address in addresses if not is_public(address)]
    if not all(allow.address(address) for address in inside):
        raise UrlRefused("address")
    return bool(inside)


def _encoded(text: str, also: str) -> str:
    """Percent-encoded once: what is already encoded stays as it is."""
    return quote(STRAY_PERCENT.sub("%25", text), safe=f"%!$&'()*+,;=~-._{also}")


def _assembled(scheme: str, host: str, port: int, path: str, query: str) -> str:
    place = f"[{host}]" if ":" in host else host
    if port != DEFAULT_PORTS[scheme]:
        place = f"{place}:{port}"
    url = f"{scheme}://{place}{path}" + (f"?{query}" if query else "")
    if len(url) > MAX_URL_BYTES:  # encoding makes three characters of a byte
        raise UrlRefused("too_long")
    return url
