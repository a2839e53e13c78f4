"""check_url: decides whether lqops may fetch a URL, and returns the addresses to connect to.

An odd URL is refused, not repaired: two programs that repair it differently see two hosts. A caller connects to
`CheckedUrl.addresses` and nothing else, and checks again for each redirect and each reconnect.
"""

import queue
import re
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote

import idna
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from agents.exceptions import LqopsError

# --- Errors: one stable reason each. Texts quote no path, query, header or body, which may hold secrets ---

REFUSALS = {
    "too_long": "The address is longer than 8 KiB: shorten it, or send the data in the body.",
    "characters": "The address holds a space, a control character or a backslash: percent-encode it.",
    "malformed": "The address is not of the form scheme://host/path: write it in full.",
    "scheme": "The scheme is not allowed here: use http or https (streams: ws or wss).",
    "credentials": "The address contains a user name or password: remove it and pass a header instead.",
    "port": "The port is not a plain number from 1 to 65535, or belongs to a service that is not a web server: "
    "use the port of the web site.",
    "host_form": "The host is not in plain form: write a full domain name, or an IP address in its usual form.",
    "host_idna": "The host is not a valid international name: write it as registered, or in its xn-- form.",
    "host_local": "The host is inside a private network: only the configuration can allow it (LQOPS_NET_ALLOW_HOSTS).",
    "address": "The host is, or resolves to, an address that is not public: only the configuration can allow it "
    "(LQOPS_NET_ALLOW_HOSTS or LQOPS_NET_ALLOW_NETWORKS).",
    "no_address": "The host name has no address: check its spelling, or try again later.",
    "lookup_timeout": "The DNS lookup took too long: try again later.",
    "redirect_host": "The server redirects to another host, which is not allowed here: use the final address.",
    "redirect_body": "The server redirects a request with a body to another host: use the final address.",
}

FAILURES = {
    "deadline": "The response was not complete in the time allowed: try again later, or allow more time.",
    "too_large": "The response is larger than allowed: request less, or allow more bytes.",
    "ratio": "The response decompresses to far more than was sent: it is not read.",
    "encoding": "The response is damaged, or compressed in a way that was not requested.",
    "headers": "The response has too many or too large headers.",
    "redirects": "There are more redirects than allowed: use the final address.",
    "connect": "Could not connect to the host.",
    "tls": "Could not make a secure connection: the certificate or the handshake was not accepted.",
    "connection": "The connection broke before the response was complete.",
    "protocol": "The response is not valid HTTP, or is incomplete.",
    "request": "The request could not be written as HTTP: check the method and the headers.",
    "json": "The response is not JSON, or is nested too deeply.",
}


class UrlRefused(LqopsError):
    """The URL may not be fetched. `reason` is a key of REFUSALS."""

    code = "url_refused"
    http_status = 400

    def __init__(self, reason: str) -> None:
        super().__init__(f"{REFUSALS[reason]} [{reason}]")
        self.reason = reason


class FetchFailed(LqopsError):
    """The fetch was tried and gave no usable response. `reason` is a key of FAILURES."""

    code = "fetch_failed"
    http_status = 502

    def __init__(self, reason: str) -> None:
        super().__init__(f"{FAILURES[reason]} [{reason}]")
        self.reason = reason


# --- Public addresses, and what operators allow besides ---
#
# From the registries of special-purpose addresses. `ipaddress.is_global` is not used: it accepts transition forms,
# multicast and others.

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NOT_PUBLIC_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers; also a metadata service
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's host agent, on a public number
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; also a metadata service
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # sink for private reverse lookups
        "192.52.193.0/24",  # multicast tunnelling
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # sink for private reverse lookups
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Only 2000::/3 is handed out as public unicast: loopback, mapped, compatible, NAT64, ULA, link-local, site-local,
# multicast and discard addresses are outside it. What is special within it:
PUBLIC_V6 = IPv6Network("2000::/3")
NOT_PUBLIC_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "2620:4f:8000::/48",  # sink for private reverse lookups
        "3ffe::/16",  # handed back
        "3fff::/20",  # documentation
    )
)
ISATAP = (0x00005EFE, 0x02005EFE)  # third word of an address that tunnels to the IPv4 address in its fourth


def is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_V4)
    if address not in PUBLIC_V6 or (int(address) >> 32) & 0xFFFFFFFF in ISATAP:
        return False
    return not any(address in network for network in NOT_PUBLIC_V6)


def read_address(text: str) -> Address | None:
    """Parse an address in plain form. None for anything else, and for addresses with a zone (`%eth0`)."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Allowed:
    """Places that an operator allows although they are not public: names, `name:port`, `*.suffix`, networks."""

    hosts: frozenset[str]
    suffixes: tuple[str, ...]
    networks: tuple[Network, ...]

    def host(self, name: str, port: int) -> bool:
        place = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        return name in self.hosts or place in self.hosts or name.endswith(self.suffixes)

    def address(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


@lru_cache(maxsize=32)
def _parsed(names: tuple[str, ...], ranges: tuple[str, ...]) -> Allowed:
    """Parse the allow-lists of the settings."""
    entries = [name.strip().lower() for name in names]
    wide = [entry for entry in entries if entry.strip("*.") == "" or "*" in entry.removeprefix("*.")]
    if wide:
        raise ImproperlyConfigured(
            f"LQOPS_NET_ALLOW_HOSTS contains {wide[0]!r}: write an exact host name, or *. and a suffix."
        )
    return Allowed(
        hosts=frozenset(entry for entry in entries if not entry.startswith("*.")),
        suffixes=tuple(entry[1:] for entry in entries if entry.startswith("*.")),
        networks=tuple(_network(text) for text in ranges),
    )


def _network(text: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise ImproperlyConfigured(f"LQOPS_NET_ALLOW_NETWORKS contains {text!r}: {error}.") from None


# --- Host names in canonical form: lower-case ASCII, as DNS sees them ---
#
# A name that another program could read as a different host is refused.

NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*", re.ASCII)
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
TOP_LEVEL = re.compile(r"[a-z]{2,63}|xn--[a-z0-9-]+", re.ASCII)
OTHER_DOTS = re.compile("[\u3002\uff0e\uff61\u2024\ufe52]")
JOINERS = "\u200c\u200d"  # some scripts and emoji need them between characters
MAX_NAME = 253

# Names of private networks: reserved, never delegated, or known as metadata services.
LOCAL_SUFFIXES = (
    "alt", "arpa", "cluster", "consul", "corp", "docker", "domain", "home", "i2p", "internal", "intra", "intranet",
    "invalid", "kube", "lan", "local", "localdomain", "localdomain6", "localhost", "mail", "onion", "private", "svc",
    "test", "workgroup",
    "metadata.goog", "metadata.packet.net", "metadata.platformequinix.com", "metadata.tencentyun.com",
)  # fmt: skip


def canonical_host(host: str, port: int, allow: Allowed) -> tuple[str, Address | None]:
    """Return the host in the form that is looked up and sent, and its address if it is a literal."""
    if host.startswith("["):
        address = _literal(host[1:-1], 6)
        return address.compressed, address
    name = _ascii(host)
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise UrlRefused("host_form")
    last = name.rpartition(".")[2]
    if NUMBER.fullmatch(last):
        # Dotted decimal only: programs read short, octal, hexadecimal and padded forms differently.
        return name, _literal(name, 4)
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
    # Some programs replace compatibility forms (full-width, circled, ligatures) and others do not.
    lowered = host.lower()
    is_plain = all(unicodedata.normalize("NFKC", text) == text for text in (host, lowered))
    if not is_plain or OTHER_DOTS.search(host):
        raise UrlRefused("host_idna")
    try:
        return idna.encode(lowered, strict=True).decode("ascii")
    except UnicodeError:
        raise UrlRefused("host_idna") from None


def _refuse_odd_punycode(label: str) -> None:
    """Refuse a label in DNS form that is not the only encoding of a visible name."""
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        is_same = decoded.encode("punycode").decode("ascii") == label[4:]
    except (UnicodeError, ValueError, OverflowError):
        raise UrlRefused("host_idna") from None
    is_invisible = any(unicodedata.category(character)[0] in "CZ" for character in decoded if character not in JOINERS)
    is_plain = unicodedata.normalize("NFKC", decoded) == decoded and not OTHER_DOTS.search(decoded)
    if not is_same or decoded.isascii() or is_invisible or not is_plain:
        raise UrlRefused("host_idna")


def _literal(text: str, version: int) -> Address:
    address = read_address(text)
    if address is None or address.version != version:
        raise UrlRefused("host_form")
    return address


def _refuse_local(name: str, last: str) -> None:
    if "." not in name:
        raise UrlRefused("host_local")
    if any(name == suffix or name.endswith(f".{suffix}") for suffix in LOCAL_SUFFIXES):
        raise UrlRefused("host_local")
    if not TOP_LEVEL.fullmatch(last):
        raise UrlRefused("host_form")


# --- DNS lookups. Nothing is cached: every connection looks the name up again ---

Resolve = Callable[[str], list[str]]

LOOKUP_SECONDS = 5.0
MAX_ANSWERS = 64
# A lookup cannot be cancelled, only abandoned; this bounds how many may hang at a time.
_LOOKUPS = threading.BoundedSemaphore(64)


def system_resolve(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _look_up(host: str, resolve: Resolve, seconds: float) -> tuple[Address, ...]:
    """Return every address of a name. One that cannot be parsed refuses the whole name.

    Runs in a thread, because the system's resolver has no timeout.
    """
    end = time.monotonic() + seconds
    lookups = _LOOKUPS
    if not lookups.acquire(timeout=seconds):
        raise UrlRefused("lookup_timeout")
    results: queue.SimpleQueue[list[str] | BaseException] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            results.put(list(resolve(host)))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            results.put(error)
        finally:
            lookups.release()

    threading.Thread(target=look_up, name="lookup", daemon=True).start()
    try:
        found = results.get(timeout=max(0.0, end - time.monotonic()))
    except queue.Empty:
        raise UrlRefused("lookup_timeout") from None
    if isinstance(found, OSError | UnicodeError):
        raise UrlRefused("no_address") from None
    if isinstance(found, BaseException):
        raise found
    if not found:
        raise UrlRefused("no_address")
    addresses = tuple(address for address in map(read_address, found[:MAX_ANSWERS]) if address is not None)
    if len(addresses) != len(found):
        raise UrlRefused("address")
    return addresses


# --- check_url ---

MAX_URL_BYTES = 8 * 1024
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?")
AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([1-9][0-9]{0,4}))?")
BAD_CHARACTER = re.compile("[\\s\\\\\x00-\x20\x7f-\xa0\ud800-\udfff]")
STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
MAX_PORT = 65535

# Ports that browsers refuse (mail, file, remote login, names, printing …), then databases, queues and control planes.
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
    """An allowed URL in normal form, with every address that its host had when it was checked."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    query: str
    addresses: tuple[str, ...]

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
    """Return where a URL leads, or raise UrlRefused. Allow-lists that are not given are those of the settings."""
    hosts = settings.LQOPS_NET_ALLOW_HOSTS if allow_hosts is None else allow_hosts
    networks = settings.LQOPS_NET_ALLOW_NETWORKS if allow_networks is None else allow_networks
    allow = _parsed(tuple(hosts), tuple(networks))
    form, scheme, literal, port = _read(url, schemes)
    host, found = _allowed_addresses(literal, port, allow, resolve or system_resolve, lookup_seconds)
    path = _percent_encode(form[3] or "/", "/:@")
    query = _percent_encode((form[4] or "?")[1:], "/:@?[]")
    return CheckedUrl(
        url=_assemble(scheme, host, port, path, query),
        scheme=scheme,
        host=host,
        port=port,
        path=path,
        query=query,
        addresses=tuple(item.compressed for item in found),
    )


def origin_of(url: str, *, schemes: tuple[str, ...] = tuple(DEFAULT_PORTS)) -> tuple[str, str, int]:
    """Return scheme, host and port as `check_url` reads them, without a lookup; UrlRefused if it would refuse them."""
    _, scheme, literal, port = _read(url, schemes)
    return scheme, name_of(literal, port), port


def name_of(host: str, port: int) -> str:
    """Return a host as `check_url` and `check_host` read it, without a lookup; UrlRefused if they would refuse it."""
    refuse_characters(host)
    allow = _parsed(tuple(settings.LQOPS_NET_ALLOW_HOSTS), tuple(settings.LQOPS_NET_ALLOW_NETWORKS))
    return canonical_host(host, port, allow)[0]


def check_host(host: str, port: int, *, resolve: Resolve | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the host in its usual form and the addresses to connect to, for a protocol other than HTTP.

    Raises UrlRefused. The caller connects with TLS, and checks the certificate for the host.
    """
    refuse_characters(host)
    allow = _parsed(tuple(settings.LQOPS_NET_ALLOW_HOSTS), tuple(settings.LQOPS_NET_ALLOW_NETWORKS))
    name, found = _allowed_addresses(host, port, allow, resolve or system_resolve, LOOKUP_SECONDS)
    return name, tuple(item.compressed for item in found)


def _allowed_addresses(
    literal: str, port: int, allow: Allowed, resolve: Resolve, seconds: float
) -> tuple[str, tuple[Address, ...]]:
    host, address = canonical_host(literal, port, allow)
    found = _look_up(host, resolve, seconds) if address is None else (address,)
    if not allow.host(host, port) and not all(is_public(item) or allow.address(item) for item in found):
        raise UrlRefused("address")
    return host, found


def _read(url: str, schemes: tuple[str, ...]) -> tuple[re.Match[str], str, str, int]:
    """Return the parts of a URL, its scheme, its host as it is written, and its port."""
    refuse_characters(url)
    form = FORM.fullmatch(url)
    if form is None:
        raise UrlRefused("malformed")
    scheme = form[1].lower()
    if scheme not in schemes or scheme not in DEFAULT_PORTS:
        raise UrlRefused("scheme")
    literal, port = _split(form[2], DEFAULT_PORTS[scheme])
    return form, scheme, literal, port


def refuse_characters(url: str) -> None:
    """Refuse characters that some programs strip or read as a slash, so that they see another host."""
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


def _percent_encode(text: str, also_safe: str) -> str:
    """Percent-encode once: what is already encoded stays."""
    return quote(STRAY_PERCENT.sub("%25", text), safe=f"%!$&'()*+,;=~-._{also_safe}")


def _assemble(scheme: str, host: str, port: int, path: str, query: str) -> str:
    place = f"[{host}]" if ":" in host else host
    if port != DEFAULT_PORTS[scheme]:
        place = f"{place}:{port}"
    url = f"{scheme}://{place}{path}" + (f"?{query}" if query else "")
    if len(url) > MAX_URL_BYTES:  # encoding makes three characters of a byte
        raise UrlRefused("too_long")
    return url
