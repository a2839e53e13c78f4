"""Mailbox sensors: new messages of an IMAP folder by their UIDs, read-only and over TLS.

The server's address passes the gate that all outgoing addresses pass. The folder is opened with EXAMINE and messages
are fetched with PEEK: none is marked as read. What is there at the first look is not reported.
"""

import asyncio
import imaplib
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import EmailPolicy
from ssl import SSLContext, SSLError
from threading import Timer
from time import monotonic
from typing import Any, Final

from agents.definitions.schema import Mailbox as MailboxSource
from agents.net import UrlRefused, check_host
from agents.net.client import public_tls
from agents.sensors.poll import Poll
from agents.sensors.sensing import Failed
from agents.skills.handles import destination_of_host
from agents.text.formats.html import html_text

OPERATION_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 30.0  # after which no further message is read
MOST_SECONDS: Final = 60.0  # of a connection, however slowly the server sends
MOST_BYTES: Final = 8 * 1024 * 1024  # of all its answers
MOST_MESSAGES: Final = 50  # in one look; the rest comes with the next
MESSAGE_BYTES: Final = 64 * 1024  # of a message that are read
TEXT_CHARS: Final = 8_000
HEADER_CHARS: Final = 500
PARSED_CHARS: Final = 2_000  # of a header: the time that parsing takes grows with their square
MOST_PARTS: Final = 300
UNREADABLE: Final = "(The message cannot be read: it is damaged.)"
ERROR_CHARS: Final = 200
_BOUNDARY: Final = re.compile(rb"[\r\n]--")
_UID: Final = re.compile(rb"UID (\d+)")


class TooLarge(Exception):
    """The server sends more than was asked for."""


class _Connection(imaplib.IMAP4_SSL):
    """A connection to a checked address, with the certificate checked for the host, and bounded answers.

    A server may answer with any number of lines, and a byte at a time: their sum and the whole time are limited, too.
    """

    def __init__(self, host: str, port: int, addresses: tuple[str, ...], tls: SSLContext) -> None:
        self._addresses = addresses
        self._tls = tls
        self._bytes_left = MOST_BYTES
        self._end: Timer | None = None
        super().__init__(host, port, ssl_context=tls, timeout=OPERATION_SECONDS)

    def _create_socket(self, timeout: float | None) -> socket.socket:
        for address in self._addresses[:-1]:
            with suppress(OSError):
                return self._secured(address, timeout)
        return self._secured(self._addresses[-1], timeout)

    def _secured(self, address: str, timeout: float | None) -> socket.socket:
        connected = socket.create_connection((address, self.port), timeout)
        secured = self._tls.wrap_socket(connected, server_hostname=self.host, do_handshake_on_connect=False)
        self._end_in_time(secured)
        try:
            secured.do_handshake()
        except OSError:
            secured.close()
            raise
        return secured

    def _end_in_time(self, connected: socket.socket) -> None:
        """Break the connection when its time is over: a thread that waits for an answer gets an error."""
        if self._end is not None:
            self._end.cancel()
        self._end = Timer(MOST_SECONDS, _break, [connected])
        self._end.daemon = True
        self._end.start()

    def read(self, size: int) -> bytes:
        if size > 2 * MESSAGE_BYTES:
            raise TooLarge
        return self._counted(super().read(size))

    def readline(self) -> bytes:
        return self._counted(super().readline())

    def _counted(self, received: bytes) -> bytes:
        self._bytes_left -= len(received)
        if self._bytes_left < 0:
            raise TooLarge
        return received

    def shutdown(self) -> None:
        if self._end is not None:
            self._end.cancel()
        super().shutdown()


def _break(connected: socket.socket) -> None:
    with suppress(OSError):  # it is closed
        socket.socket.shutdown(connected, socket.SHUT_RDWR)  # not that of TLS, which another thread uses


class Mailbox(Poll):
    async def look(self) -> tuple[Any, str]:
        source = self.spec.source.imap
        if source is None:  # the schema sees to it
            raise Failed("the sensor has no mailbox")
        given = {"password": source.password}
        resolved = await self.with_secrets(given, lambda: destination_of_host(source.host, source.port))
        password = str(resolved["password"])
        return await asyncio.get_running_loop().run_in_executor(
            self.services.threads, new_messages, source, password, self.cursor.get("uids")
        ), ""

    async def sample(self) -> list[Any]:
        """Return the newest message, if there is one."""
        (_, uids, _), _ = await self.look()
        self.cursor["uids"] = {**uids, "last": max(uids["last"] - 1, 0)}
        (messages, *_), _ = await self.look()
        return list(messages)

    async def hand_in(self, payload: Any, digest: str, due: float) -> bool:
        messages, uids, problem = payload
        self.cursor["uids"] = uids
        return await self.hand_in_reading(
            messages, occurrence=self.occurrence(), unchanged=not messages, problem=problem, due=due
        )


def new_messages(
    source: MailboxSource, password: str, kept: dict[str, int] | None
) -> tuple[list[dict[str, Any]], dict[str, int], str]:
    """Return messages that came after the last one known, oldest first, where to go on, and a problem."""
    try:
        host, addresses = check_host(source.host, source.port)
        connection = _Connection(host, source.port, addresses, public_tls())
    except UrlRefused as error:
        raise Failed(str(error)) from None
    except SSLError:
        raise Failed("no secure connection to the mail server: its certificate was not accepted") from None
    except (OSError, imaplib.IMAP4.error, TooLarge):
        raise Failed("the mail server cannot be reached") from None
    try:
        return _read(connection, source, password, kept)
    except TooLarge:
        raise Failed("the mail server sends more than was asked for") from None
    except imaplib.IMAP4.error as error:
        raise Failed(f"the mail server refuses: {str(error)[:ERROR_CHARS]}") from None
    except (OSError, EOFError, ValueError):
        raise Failed("the connection to the mail server broke") from None
    finally:
        connection.shutdown()


def _read(
    connection: _Connection, source: MailboxSource, password: str, kept: dict[str, int] | None
) -> tuple[list[dict[str, Any]], dict[str, int], str]:
    end = monotonic() + LOOK_SECONDS
    connection.login(_quoted(source.user), password)
    status, said = connection.select(_quoted(source.folder), readonly=True)
    if status != "OK":
        raise Failed(f"the folder {source.folder} cannot be opened: {_text(said)[:ERROR_CHARS]}")
    validity = _number(connection, "UIDVALIDITY")
    last = _last_uid(connection)
    if kept is None:
        return [], {"validity": validity, "last": last}, ""
    if kept["validity"] != validity:
        problem = "the mail server has numbered its messages anew: those since the last look are not reported"
        return [], {"validity": validity, "last": last}, problem
    uids = [uid for uid in _search(connection, kept["last"]) if uid > kept["last"]][:MOST_MESSAGES]
    messages: list[dict[str, Any]] = []
    read = kept["last"]
    for uid in uids:
        if monotonic() > end:
            break
        messages += _fetch(connection, uid)
        read = uid
    return messages, {"validity": validity, "last": read}, ""


def _number(connection: _Connection, name: str) -> int:
    _, said = connection.response(name)
    return int(_text(said) or 0)


def _last_uid(connection: _Connection) -> int:
    """Return the highest UID in use: the one before UIDNEXT or, if the server does not say, that of all messages."""
    if following := _number(connection, "UIDNEXT"):
        return following - 1
    return max(_search(connection, 0), default=0)


def _search(connection: _Connection, after: int) -> list[int]:
    _, found = connection.uid("SEARCH", f"UID {after + 1}:*")
    return sorted(int(word) for part in found if part for word in part.split())


def _fetch(connection: _Connection, uid: int) -> Iterator[dict[str, Any]]:
    _, parts = connection.uid("FETCH", str(uid), f"(UID RFC822.SIZE BODY.PEEK[]<0.{MESSAGE_BYTES}>)")
    for part in parts:
        if isinstance(part, tuple) and (named := _UID.search(part[0])) and int(named[1]) == uid:
            yield {"uid": uid, **_summary(part[1])}


class _ShortHeaders(EmailPolicy):
    """Parses the beginning of a header, in a message and in its parts."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:PARSED_CHARS])


_POLICY: Final[Any] = _ShortHeaders()


def _summary(data: bytes) -> dict[str, Any]:
    """Return the summary of a message. One that cannot be parsed does not stop those after it."""
    try:
        return _shown(message_from_bytes(_beginning(data), policy=_POLICY))
    except Exception:  # noqa: BLE001 the parser raises errors of any kind
        names = ("from", "to", "subject", "date", "id")
        return {**dict.fromkeys(names, ""), "text": UNREADABLE, "files": []}


def _beginning(data: bytes) -> bytes:
    """Return a message up to its last part that is parsed."""
    for number, boundary in enumerate(_BOUNDARY.finditer(data)):
        if number == MOST_PARTS:
            return data[: boundary.start()]
    return data


def _shown(message: EmailMessage) -> dict[str, Any]:
    headers = {name: str(message.get(name, ""))[:HEADER_CHARS] for name in ("from", "to", "subject", "date")}
    attached = [str(part.get_filename() or "")[:HEADER_CHARS] for part in message.iter_attachments()][:50]
    return {
        **headers,
        "id": str(message.get("message-id", ""))[:HEADER_CHARS],
        "text": _body(message),
        "files": attached,
    }


def _body(message: EmailMessage) -> str:
    try:
        part = message.get_body(("plain", "html"))
        content = str(part.get_content()) if part is not None else ""
    except (LookupError, ValueError, AttributeError):  # an unknown encoding, or a damaged part
        return ""
    is_html = part is not None and part.get_content_subtype() == "html"
    return (html_text(content[: 4 * TEXT_CHARS]) if is_html else content).strip()[:TEXT_CHARS]


def _quoted(folder: str) -> str:
    escaped = folder.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(said: list[Any] | None) -> str:
    first = (said or [None])[0]
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else ""
