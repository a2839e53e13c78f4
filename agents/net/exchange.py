"""One fetch from first request to last answer, without the I/O: both clients walk through it.

Owns the rules for redirects, credentials and headers. It checks each hop anew; what connects is `dialing`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext, SSLError
from typing import Any, TypedDict
from urllib.parse import urlencode, urljoin

import httpcore
import httpx

from agents.net.body import ACCEPTED, Body
from agents.net.errors import FetchFailed, UrlRefused
from agents.net.limits import Deadline, Limits
from agents.net.resolving import LOOKUP_SECONDS, Resolve
from agents.net.transport import Reroute
from agents.net.urls import CheckedUrl, check_url, refuse_characters

REDIRECTS = {301, 302, 303, 307, 308}
SEE_OTHER = 303
KEEPS_METHOD = {307, 308}
NO_BODY = {204, 304}
# What another host may see of the caller's headers. A list of secret names would miss the next one that is invented.
HARMLESS = {"accept", "accept-language", "cache-control", "content-language", "content-type", "if-modified-since",
            "if-none-match", "pragma", "range", "user-agent"}  # fmt: skip
# The client decides these: they say where the request goes and where it ends.
OWN = {"accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te",
       "trailer", "transfer-encoding", "upgrade"}  # fmt: skip
LENGTH = re.compile(r"[0-9]+", re.ASCII)


class Options(TypedDict, total=False):
    """What a caller may say about one request."""

    headers: Mapping[str, str]
    params: Mapping[str, str | int | Sequence[str | int]]
    content: bytes | str
    json: Any
    secret_headers: Iterable[str]  # never sent on to another origin, in addition to all that are not known harmless
    limits: Limits


@dataclass(frozen=True)
class Gate:
    """How a client was set up."""

    resolve: Resolve | None
    limits: Limits
    allow_hosts: Sequence[str] | None
    allow_networks: Sequence[str] | None
    cross_host: bool
    tls: SSLContext | None
    reroute: Reroute | None

    def tls_context(self) -> SSLContext:
        return self.tls or _public_tls()


@cache
def _public_tls() -> SSLContext:
    """Checks certificates and names against the public authorities, whatever the environment says."""
    return httpx.create_ssl_context(trust_env=False)


class Exchange:
    def __init__(self, gate: Gate, method: str, url: str, options: Options) -> None:
        self._gate = gate
        self._limits = options.get("limits", gate.limits)
        self._method = method.upper()
        self._url = _with_params(url, options.get("params"))
        self._content, self._headers = _payload(options)
        self._secret = {name.lower() for name in options.get("secret_headers", ())}
        self._checked: CheckedUrl | None = None
        self.deadline = Deadline(self._limits.deadline)
        self.redirects: list[str] = []

    def check(self) -> CheckedUrl:
        """Where the next hop goes. What may not go there with it is gone afterwards."""
        left = self.deadline.left()
        try:
            checked = check_url(
                self._url,
                resolve=self._gate.resolve,
                allow_hosts=self._gate.allow_hosts,
                allow_networks=self._gate.allow_networks,
                lookup_seconds=min(LOOKUP_SECONDS, left),
            )
        except UrlRefused:
            self.deadline.left()  # a lookup cut short by the deadline is the deadline's doing
            raise
        if self._checked is not None and checked.origin != self._checked.origin:
            self._leave(self._checked, checked)
        self._checked = checked
        return checked

    def _leave(self, old: CheckedUrl, new: CheckedUrl) -> None:
        if new.host != old.host and not self._gate.cross_host:
            raise UrlRefused("redirect_host")
        if self._content:
            raise UrlRefused("redirect_body")
        kept = HARMLESS - self._secret
        self._headers = {name: value for name, value in self._headers.items() if name in kept}

    def request(self, checked: CheckedUrl) -> httpx.Request:
        own = {"accept-encoding": ACCEPTED, "connection": "close"}
        return httpx.Request(self._method, checked.url, headers={**self._headers, **own}, content=self._content)

    def take_head(self, response: httpx.Response, checked: CheckedUrl) -> Body | None:
        """The body to be read, or None if there is another hop."""
        fields = response.headers.raw
        size = sum(len(name) + len(value) for name, value in fields)
        if len(fields) > self._limits.max_headers or size > self._limits.max_header_bytes:
            raise FetchFailed("headers")
        location = response.headers.get("location")
        if response.status_code in REDIRECTS and location is not None:
            self._follow(response.status_code, location, checked)
            return None
        if self._method != "HEAD" and response.status_code not in NO_BODY:
            self._refuse_length(response.headers.get("content-length", ""))
        return Body(response.headers.get("content-encoding", ""), self._limits, self.deadline)

    def _follow(self, status: int, location: str, checked: CheckedUrl) -> None:
        if len(self.redirects) == self._limits.max_redirects:
            raise FetchFailed("redirects")
        self.redirects.append(checked.url)
        refuse_characters(location)  # before joining, which would strip some of them
        try:
            self._url = urljoin(checked.url, location)
        except ValueError:
            raise UrlRefused("malformed") from None
        if status == SEE_OTHER or (status not in KEEPS_METHOD and self._method == "POST"):
            self._method = "HEAD" if self._method == "HEAD" else "GET"
            self._content = b""
            self._headers.pop("content-type", None)

    def _refuse_length(self, declared: str) -> None:
        if LENGTH.fullmatch(declared) and float(declared) > self._limits.max_bytes:
            raise FetchFailed("too_large")


def _with_params(url: str, params: Mapping[str, str | int | Sequence[str | int]] | None) -> str:
    if not params:
        return url
    base = url.partition("#")[0]
    return f"{base}{'&' if '?' in base else '?'}{urlencode(params, doseq=True)}"


def _payload(options: Options) -> tuple[bytes, dict[str, str]]:
    headers = {"user-agent": "lqops", "accept": "*/*"}
    content = options.get("content", b"")
    if "json" in options:
        content = json.dumps(options["json"], ensure_ascii=False)
        headers["content-type"] = "application/json"
    given = {name.lower(): value for name, value in options.get("headers", {}).items()}
    headers |= {name: value for name, value in given.items() if name not in OWN}
    return content.encode() if isinstance(content, str) else content, headers


@contextmanager
def failures() -> Iterator[None]:
    """Errors of the connection, in our words: theirs may quote the request."""
    try:
        yield
    except (TimeoutError, httpcore.TimeoutException, httpx.TimeoutException):
        raise FetchFailed("deadline") from None
    except (httpcore.ConnectError, httpx.ConnectError) as error:
        secure = any(isinstance(cause, SSLError) for cause in error.args)
        raise FetchFailed("tls" if secure else "connect") from None
    except (httpcore.RemoteProtocolError, httpx.RemoteProtocolError):
        raise FetchFailed("protocol") from None
    except (httpcore.ProtocolError, httpx.ProtocolError, UnicodeError):
        raise FetchFailed("request") from None
    except (httpcore.NetworkError, httpx.HTTPError, OSError):
        raise FetchFailed("connection") from None
