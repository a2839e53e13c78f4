"""The proxy of the environment for a model server: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in capitals or not.

Only model servers are reached through a proxy: the operator declares their addresses. What documents, skills and
sensors name goes through agents.net, which connects to the address that it has checked and uses no proxy.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from agents.providers.base import Fault, ProviderError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Proxy:
    """A proxy, and the variable that names it. Its password stands in no message."""

    host: str
    port: int
    variable: str
    auth: tuple[str, str] | None = None


def proxy_for(url: str) -> Proxy | None:
    """Return the proxy for an address; None without one, for what NO_PROXY names, and for this machine."""
    target = urlsplit(url)
    host = target.hostname or ""
    address = getproxies_environment().get(target.scheme, "")
    if not address or _is_this_machine(host):
        return None
    if proxy_bypass(f"{host}:{target.port or DEFAULT_PORTS[target.scheme]}"):
        return None
    return _read(address, f"{target.scheme.upper()}_PROXY")


def _is_this_machine(host: str) -> bool:
    """Return True for loopback: a proxy elsewhere cannot reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _read(address: str, variable: str) -> Proxy:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        port = parts.port or DEFAULT_PORTS["http"]
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise ProviderError(
            f"{variable} does not name a proxy that can be used: set it to http://host:port, or name the model's host "
            "in NO_PROXY.",
            fault=Fault.NOT_SERVED,
            contacted=False,
        )
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return Proxy(parts.hostname, port, variable, auth)
