"""Where a secret may be sent: hosts as an admin names them, and the destinations of requests. Pure.

shop.example.org          this host, on any port, over an encrypted connection
*.shop.example.org        the hosts below it
shop.example.org:8443     this port alone
http://10.1.2.3:8080      also without encryption, where no certificate can be had
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

MOST_CHARS: Final = 200
MAX_PORT: Final = 65_535
RECORDED_CHARS: Final = 128
EXPECTED: Final = (
    "a host such as shop.example.org, *.shop.example.org, shop.example.org:8443, or http://10.1.2.3:8080 for one that "
    "is reached without encryption; international names in their xn-- form"
)
_ENTRY: Final = re.compile(
    r"(?P<plain>http://)?(?P<host>\[[0-9a-f:.]+\]|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_NUMBERS: Final = re.compile(r"[0-9.]+")


class BadHost(ValueError):
    """What was given names no host that a secret can be bound to; the message says what does."""


@dataclass(frozen=True)
class Destination:
    """A host that a request leads to, in the form in which the URL gate looks it up. Without a port: any."""

    host: str
    port: int | None = None
    encrypted: bool = True

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'' if self.encrypted else 'http://'}{host}{f':{self.port}' if self.port else ''}"

    @property
    def recorded(self) -> str:
        """The host for the audit log, whose details hold no `*`; of a very long name the end."""
        return self.host.removeprefix("*")[-RECORDED_CHARS:]


@dataclass(frozen=True)
class _Host:
    """A host that a secret is bound to."""

    name: str  # begins with a dot if it stands for the hosts below
    port: int | None
    may_be_plain: bool

    def covers(self, destination: Destination) -> bool:
        is_there = destination.host.endswith(self.name) if self.name.startswith(".") else destination.host == self.name
        return is_there and self.port in {None, destination.port} and (destination.encrypted or self.may_be_plain)


def host_checked(text: str) -> str:
    """Return a host in the form in which it is kept; BadHost if it is none."""
    given = text.strip().lower().rstrip("/")
    if len(given) > MOST_CHARS or _read(given) is None:
        raise BadHost(f"{text[:MOST_CHARS]!r} is not {EXPECTED}.")
    return given


def is_bound(hosts: Iterable[str], destination: Destination) -> bool:
    """Tell whether one of the hosts that a secret is bound to covers a destination. What cannot be read covers none."""
    return any(host.covers(destination) for host in map(_read, hosts) if host is not None)


def _read(entry: str) -> _Host | None:
    found = _ENTRY.fullmatch(entry)
    if found is None or int(found["port"] or 1) > MAX_PORT:
        return None
    name = found["host"].strip("[]")
    if name.startswith("*."):
        if "." not in name[2:]:
            return None  # a whole top-level domain
        name = name[1:]
    elif ":" in name or _NUMBERS.fullmatch(name):
        try:
            name = ip_address(name).compressed
        except ValueError:
            return None
    return _Host(name, int(found["port"]) if found["port"] else None, may_be_plain=bool(found["plain"]))
