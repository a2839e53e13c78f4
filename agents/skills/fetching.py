"""`context.fetch`: the way of a skill to the web, through the URL gate, and only to hosts that the call names.

These are the hosts of its address arguments, which approvers see, and the hosts that the skill declares. For a skill in
a process of its own the worker fetches: one line of JSON asks, one answers.
"""

import json
import logging
import re
import socket
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedRWPair
from typing import Any, Final

from agents.exceptions import Invalid, LqopsError, OutcomeUnknown
from agents.net import FetchFailed, Limits, SafeClient
from agents.net.client import CLIENT_HEADERS
from agents.skills.limits import MAX_RESULT_BYTES
from agents.skills.risk import host_of, is_at
from agents.skills.skill import Skill
from agents.types import Fetched

logger = logging.getLogger(__name__)

SECONDS: Final = 20.0
MOST_FETCHES: Final = 50  # of one call
MAX_HEADERS: Final = 20
MAX_REQUEST_BYTES: Final = 1_000_000
READS: Final = frozenset({"GET", "HEAD"})
METHODS: Final = READS | {"POST", "PUT", "PATCH", "DELETE"}
NEVER_SENT: Final = frozenset({"connect", "tls", "request"})  # failures before any byte of the request was sent
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]{0,4096}")


def check_headers(headers: Mapping[str, str], *, own: frozenset[str] = frozenset()) -> None:
    """Refuse headers that cannot be sent, and those that lqops sets: the client's and `own`."""
    if len(headers) > MAX_HEADERS:
        raise Invalid(f"The request has {len(headers)} headers; the limit is {MAX_HEADERS}.")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise Invalid(f"The header {name[:64]!r} cannot be sent: one line of plain ASCII, at most 4096 characters.")
        if name.lower() in CLIENT_HEADERS | own:
            raise Invalid(f"The header {name} is set by lqops; omit it.")


class Fetcher:
    """Fetches for one call of a skill. A request that may have taken effect without an answer raises OutcomeUnknown."""

    def __init__(
        self, skill: Skill, arguments: Mapping[str, Any], *, check: Callable[[str], None] | None = None
    ) -> None:
        """`check`, of a call with secrets, refuses addresses that they may not go to."""
        self._skill = skill
        self._check_secrets = check
        self._hosts = frozenset(skill.hosts) | _hosts_in(skill, arguments)
        self._left = MOST_FETCHES

    def __call__(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, content: bytes | str = b""
    ) -> Fetched:
        """Send one request and return its answer. Redirects are followed for GET and HEAD, within the host."""
        self._check(url, method)
        check_headers(headers or {})
        limits = Limits(deadline=SECONDS, max_bytes=MAX_RESULT_BYTES // 2, max_redirects=5 if method in READS else 0)
        try:
            answer = SafeClient(limits=limits, cross_host=False).request(
                method, url, headers=headers or {}, content=content, secret=headers or {} if self._check_secrets else ()
            )
        except FetchFailed as failed:
            if method in READS or failed.reason in NEVER_SENT:
                raise
            raise OutcomeUnknown(f"The {method} was sent and may have taken effect. {failed}") from None
        return Fetched(answer.status, answer.url, dict(answer.headers), answer.content)

    def _check(self, url: str, method: str) -> None:
        name = self._skill.name
        if method not in (METHODS if self._skill.side_effects else READS):
            raise Invalid(f"{name} may not send {method}: {', '.join(sorted(METHODS))} for skills with side effects.")
        if not is_at(url, self._hosts):
            known = ", ".join(sorted(self._hosts)) or "none"
            raise Invalid(
                f"{name} may fetch from hosts of its address arguments and from those that it declares with hosts=; "
                f"in this call: {known}."
            )
        if self._check_secrets is not None:
            self._check_secrets(url)
        if not self._left:
            raise Invalid(f"{name} has fetched {MOST_FETCHES} times in this call; that is the limit.")
        self._left -= 1


def _hosts_in(skill: Skill, arguments: Mapping[str, Any]) -> frozenset[str]:
    given = (arguments.get(name) for name in skill.addresses)
    return frozenset(host for address in given if isinstance(address, str) and (host := host_of(address)))


# --- For a process of its own ---


class Desk:
    """Answers the requests of one process, in a thread, until its end of the connection is closed."""

    def __init__(self, fetch: Callable[..., Fetched]) -> None:
        self._fetch = fetch
        self.unknown: OutcomeUnknown | None = None  # a request that may have taken effect

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as lines:
            try:
                while (asked := _line(lines)) is not None:
                    lines.write(json.dumps(self._answer(asked)).encode() + b"\n")
                    lines.flush()
            except OSError:  # the process has ended
                return

    def _answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            content = b64decode(asked["content"], validate=True)
            found = self._fetch(asked["url"], method=asked["method"], headers=asked["headers"], content=content)
        except OutcomeUnknown as unknown:
            self.unknown = unknown
            return {"error": str(unknown)}
        except LqopsError as error:
            return {"error": str(error)}
        except Exception as error:
            logger.exception("an isolated skill asked for something that cannot be fetched")
            return {"error": f"this cannot be fetched ({type(error).__name__})"}
        return {
            "status": found.status,
            "url": found.url,
            "headers": dict(found.headers),
            "content": b64encode(found.content).decode(),
        }


def _line(lines: BufferedRWPair) -> dict[str, Any] | None:
    """Read a request, which may be anything. None at the end, and for what is none."""
    line = lines.readline(MAX_REQUEST_BYTES)
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return asked if isinstance(asked, dict) else None


@contextmanager
def fetch_desk(fetch: Callable[..., Fetched]) -> Iterator[tuple[Desk, int]]:
    """Serve a process that is given this descriptor. A request that is under way at the end is left to its deadline."""
    here, there = socket.socketpair()
    desk = Desk(fetch)
    with there:
        threading.Thread(target=desk.serve, args=(here,), name="skill-fetch", daemon=True).start()
        yield desk, there.fileno()
