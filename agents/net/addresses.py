"""Which IP addresses are plainly public, from the registries of special-purpose addresses; and what operators allow.

Pure: it looks nothing up. `ipaddress.is_global` is not asked: it lets transition forms, multicast and others pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

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
    """None for anything but an address in plain form; a zone (`%eth0`) is a local matter and not plain."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Allowed:
    """What an operator lets through although it is not public: names, `name:port`, `*.suffix`, and networks."""

    hosts: frozenset[str]
    suffixes: tuple[str, ...]
    networks: tuple[Network, ...]

    def host(self, name: str, port: int) -> bool:
        place = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        return name in self.hosts or place in self.hosts or name.endswith(self.suffixes)

    def address(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def allowed(hosts: Sequence[str] | None = None, networks: Sequence[str] | None = None) -> Allowed:
    """What is given, or else what the settings say."""
    names = getattr(settings, "LQOPS_NET_ALLOW_HOSTS", []) if hosts is None else hosts
    ranges = getattr(settings, "LQOPS_NET_ALLOW_NETWORKS", []) if networks is None else networks
    return _parsed(tuple(names), tuple(ranges))


@lru_cache(maxsize=32)
def _parsed(names: tuple[str, ...], ranges: tuple[str, ...]) -> Allowed:
    entries = [name.strip().lower() for name in names]
    wide = [entry for entry in entries if entry.strip("*.") == "" or "*" in entry.removeprefix("*.")]
    if wide:
        raise ImproperlyConfigured(
            f"LQOPS_NET_ALLOW_HOSTS holds {wide[0]!r}: write an exact host name, or *. and a suffix."
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
        raise ImproperlyConfigured(f"LQOPS_NET_ALLOW_NETWORKS holds {text!r}: {error}.") from None
