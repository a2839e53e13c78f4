"""Mails: EML, as they are sent, and MSG, as Outlook saves them."""

import email.policy
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage, Message
from email.parser import BytesParser, HeaderParser
from typing import Any

from agents.exceptions import Invalid
from agents.text.formats.decoding import decode
from agents.text.formats.html import html_text
from agents.text.formats.kinds import READ
from agents.text.formats.limits import MAX_HEADER_CHARS, MAX_NAMED_ATTACHMENTS

HEADERS = ("From", "To", "Cc", "Date", "Subject")
_ENCRYPTED = "The mail is encrypted. Open it in your mail program and save its text, or its attachments, without."


@dataclass(frozen=True)
class MailAttachment:
    """A file in a mail. Without data it is only named."""

    name: str
    media_type: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class Mail:
    """What is read of a mail. `headers` are those of HEADERS that it has."""

    headers: dict[str, str]
    body: str = ""
    attachments: list[MailAttachment] = field(default_factory=list)

    def text(self) -> str:
        """Return the headers, the names of the attachments and the body."""
        lines = [f"{name}: {value}" for name, value in self.headers.items() if value]
        if self.attachments:
            names = [one.name for one in self.attachments[:MAX_NAMED_ATTACHMENTS]]
            more = len(self.attachments) - len(names)
            lines.append(f"Attachments: {', '.join(names)}{f' and {more:,} more' if more else ''}")
        return "\n".join(lines) + f"\n\n{self.body.strip()}"


def _on_one_line(text: object) -> str:
    return " ".join(str(text or "").split())


# --- EML ---

_SIGNS = {*(name.lower() for name in HEADERS), "received", "message-id", "mime-version", "return-path"}
_ENCRYPTED_TYPES = {"multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"}


def read_eml(data: bytes) -> Mail:
    message = BytesParser(_class=EmailMessage, policy=email.policy.default).parsebytes(data)
    if _SIGNS.isdisjoint(name.lower() for name in message.keys()):  # noqa: SIM118 a message is no mapping
        raise Invalid(f"It is called EML, but it is no mail: it has no header such as From. {READ}")
    if any(len(value) > MAX_HEADER_CHARS for _, value in message.raw_items()):
        raise Invalid(f"The mail has a header of more than {MAX_HEADER_CHARS:,} characters. Save its text instead.")
    if message.get_content_type() in _ENCRYPTED_TYPES and "signed" not in str(message.get("Content-Type", "")):
        raise Invalid(_ENCRYPTED)
    body = message.get_body(("plain", "html"))
    headers = {name: _header(message, name) for name in HEADERS}
    return Mail(headers, _body_text(body) if body else "", list(_attachments(message)))


def _header(message: EmailMessage, name: str) -> str:
    """Return a header as it is meant, or as it stands there if it cannot be parsed."""
    with suppress(Exception):
        return _on_one_line(message.get(name))
    return _on_one_line(next((value for key, value in message.raw_items() if key.lower() == name.lower()), ""))


def _body_text(part: Message) -> str:
    payload = part.get_payload(decode=True)
    text = _decoded(payload if isinstance(payload, bytes) else b"", part.get_content_charset())
    return html_text(text) if part.get_content_type() == "text/html" else text


def _decoded(data: bytes, charset: str | None) -> str:
    """Return the text in its declared encoding; if that is missing or unknown, in the one that fits."""
    with suppress(LookupError, UnicodeError):
        return data.decode(charset or "", "replace")
    with suppress(Invalid):
        return decode(data)
    return data.decode("utf-8", "replace")


def _attachments(message: EmailMessage) -> Iterator[MailAttachment]:
    for part in message.iter_attachments():
        kind = part.get_content_type()
        if kind == "message/rfc822":
            inner = part.get_payload(0)
            name = part.get_filename() or f"{inner.get('Subject') or 'message'}.eml"  # type: ignore[union-attr]
            yield MailAttachment(_on_one_line(name), kind, inner.as_bytes())  # type: ignore[union-attr]
        else:
            payload = part.get_payload(decode=True)
            name = _on_one_line(part.get_filename()) or f"unnamed ({kind})"
            yield MailAttachment(name, kind, payload if isinstance(payload, bytes) else b"")


# --- MSG ---
#
# An OLE file: one stream for each text of the mail, named by the number and the type of the property that it holds, and
# a table for those of fixed length. Attachments are folders of the same form.

_SUBJECT, _BODY, _HTML, _TRANSPORT_HEADERS = "0037", "1000", "1013", "007D"
_SENDER_NAME, _SENDER_ADDRESS, _SENDER_SMTP = "0C1A", "0C1F", "5D01"
_TO, _CC = "0E04", "0E03"
_ATTACHMENT, _FILE_NAMES, _FILE_TYPE, _FILE_DATA = "__attach_version1.0_#", ("3707", "3704", "3001"), "370E", "3701"
_UNICODE, _ANSI, _BINARY = "001F", "001E", "0102"
_TABLE, _TABLE_HEADER, _ROW = "__properties_version1.0", 32, struct.Struct("<HHI8s")
_SENT, _CODE_PAGE, _BODY_CODE_PAGE = 0x0039, 0x3FFD, 0x3FDE
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_UTF_8 = 65_001


def read_msg(data: bytes) -> Mail:
    import olefile

    with olefile.OleFileIO(data) as ole:
        return _OutlookMail(ole).mail()


class _OutlookMail:
    def __init__(self, ole: Any) -> None:
        self._ole = ole
        table = self._stream([], _TABLE)[_TABLE_HEADER:]
        rows = _ROW.iter_unpack(table[: len(table) // _ROW.size * _ROW.size])
        self._fixed = {number: value for _, number, _, value in rows}

    def mail(self) -> Mail:
        sent = HeaderParser(policy=email.policy.compat32).parsestr(self._text([], _TRANSPORT_HEADERS))
        address = self._text([], _SENDER_SMTP) or self._text([], _SENDER_ADDRESS)
        name = self._text([], _SENDER_NAME)
        known = {
            "From": f"{name} <{address}>" if name and address else name or address,
            "To": self._text([], _TO),
            "Cc": self._text([], _CC),
            "Date": self._sent_at(),
            "Subject": self._text([], _SUBJECT),
        }
        headers = {key: _on_one_line(value or sent.get(key)) for key, value in known.items()}
        if not any(headers.values()) and not self._body():
            raise Invalid("The MSG holds no mail: it is damaged. Save it again in Outlook.")
        return Mail(headers, self._body(), list(self._attachments()))

    def _body(self) -> str:
        plain = self._text([], _BODY)
        if plain.strip():
            return plain
        page = self._stream([], f"__substg1.0_{_HTML}{_BINARY}")
        return html_text(self._decoded(page, _BODY_CODE_PAGE) if page else self._text([], _HTML))

    def _attachments(self) -> Iterator[MailAttachment]:
        folders = dict.fromkeys(path[0] for path in self._ole.listdir() if path[0].startswith(_ATTACHMENT))
        for folder in folders:
            name = next(filter(None, (self._text([folder], one) for one in _FILE_NAMES)), "unnamed")
            data = self._stream([folder], f"__substg1.0_{_FILE_DATA}{_BINARY}")
            yield MailAttachment(_on_one_line(name), self._text([folder], _FILE_TYPE), data)

    def _text(self, folder: list[str], number: str) -> str:
        found = self._stream(folder, f"__substg1.0_{number}{_UNICODE}")
        if found:
            return found.decode("utf-16-le", "replace").rstrip("\x00")
        return self._decoded(self._stream(folder, f"__substg1.0_{number}{_ANSI}"), _CODE_PAGE).rstrip("\x00")

    def _stream(self, folder: list[str], name: str) -> bytes:
        path = [*folder, name]
        if self._ole.get_type(path) != _STREAM:
            return b""
        return bytes(self._ole.openstream(path).read())

    def _decoded(self, data: bytes, code_page: int) -> str:
        number = struct.unpack_from("<I", self._fixed.get(code_page, bytes(8)))[0]
        return _decoded(data, "utf-8" if number == _UTF_8 else f"cp{number}")

    def _sent_at(self) -> str:
        ticks = struct.unpack("<Q", self._fixed.get(_SENT, bytes(8)))[0]  # of 100 nanoseconds
        with suppress(OverflowError):
            return f"{_EPOCH + timedelta(microseconds=ticks // 10):%a, %d %b %Y %H:%M:%S +0000}" if ticks else ""
        return ""


_STREAM = 2  # as olefile names it
