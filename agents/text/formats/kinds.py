"""Kinds of documents that are read, and how a file's kind is told. The one place that lists them."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple

from agents.exceptions import Invalid
from agents.text.formats.archives import archive_names

_OPEN_XML = "application/vnd.openxmlformats-officedocument."


class Kind(StrEnum):
    PDF = "pdf"
    DOCX = "docx"
    XLSX = "xlsx"
    PPTX = "pptx"
    ODT = "odt"
    RTF = "rtf"
    EML = "eml"
    MSG = "msg"
    CSV = "csv"
    HTML = "html"
    MARKDOWN = "markdown"
    TEXT = "text"

    @property
    def label(self) -> str:
        """The name for people."""
        return _FORMATS[self].label

    @property
    def media_type(self) -> str:
        return _FORMATS[self].media_types[0]


class _Format(NamedTuple):
    label: str
    media_types: tuple[str, ...]  # the first is stored
    suffixes: tuple[str, ...]
    is_marked: bool = False  # the first bytes show whether a file is one


_FORMATS = {
    Kind.PDF: _Format("PDF", ("application/pdf",), (".pdf",), is_marked=True),
    Kind.DOCX: _Format("DOCX", (f"{_OPEN_XML}wordprocessingml.document",), (".docx", ".docm"), is_marked=True),
    Kind.XLSX: _Format("XLSX", (f"{_OPEN_XML}spreadsheetml.sheet",), (".xlsx", ".xlsm"), is_marked=True),
    Kind.PPTX: _Format("PPTX", (f"{_OPEN_XML}presentationml.presentation",), (".pptx", ".pptm"), is_marked=True),
    Kind.ODT: _Format("ODT", ("application/vnd.oasis.opendocument.text",), (".odt",), is_marked=True),
    Kind.RTF: _Format("RTF", ("application/rtf", "text/rtf"), (".rtf",), is_marked=True),
    Kind.EML: _Format("EML", ("message/rfc822",), (".eml",)),
    Kind.MSG: _Format("MSG", ("application/vnd.ms-outlook",), (".msg",), is_marked=True),
    Kind.CSV: _Format("CSV", ("text/csv", "text/tab-separated-values"), (".csv", ".tsv")),
    Kind.HTML: _Format("HTML", ("text/html", "application/xhtml+xml"), (".html", ".htm", ".xhtml")),
    Kind.MARKDOWN: _Format("Markdown", ("text/markdown", "text/x-markdown"), (".md", ".markdown")),
    Kind.TEXT: _Format("plain text", ("text/plain",), (".txt",)),
}
_BY_MEDIA_TYPE = {name: kind for kind, one in _FORMATS.items() for name in one.media_types}
_BY_SUFFIX = {suffix: kind for kind, one in _FORMATS.items() for suffix in one.suffixes}


def listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}"


KINDS = listed(kind.label for kind in Kind)
READ = f"lqops reads {KINDS}."
SAVE_AS = f"Save it as one of the kinds that are read: {KINDS}."
OCR = "Run text recognition (OCR) on it first: lqops does none."
PASSWORD = "It is protected by a password. Save it without one."  # noqa: S105 a sentence about one

# First bytes of files that are not read, though some of them may pass for text.
_IMAGE = f"an image. {OCR}"
_PACKED = f"an archive. Unpack it, and add its files one by one. {READ}"
_REFUSED = {
    b"\x89PNG": _IMAGE,
    b"\xff\xd8\xff": _IMAGE,
    b"GIF8": _IMAGE,
    b"II*\x00": _IMAGE,
    b"MM\x00*": _IMAGE,
    b"\x1f\x8b": _PACKED,
    b"7z\xbc\xaf": _PACKED,
    b"Rar!\x1a": _PACKED,
}
_PDF = b"%PDF-"
_RTF = b"{\\rtf"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HTML_STARTS = (b"<!doctype html", b"<html")
_HEAD = 1_024
# Entries that tell what an archive is, and streams that tell what an OLE file is.
_IN_ARCHIVE = {"word/document": Kind.DOCX, "xl/workbook": Kind.XLSX, "ppt/presentation": Kind.PPTX}
_OPEN_DOCUMENT = "content.xml"
_ENCRYPTED = "EncryptedPackage"
_MESSAGE = "__properties_version1.0"


def kind_of(data: bytes, *, name: str, media_type: str) -> Kind:
    """Tell the kind by the first bytes where they show it, else by the name and the media type.

    A document that is called PDF or DOCX and is none is refused.
    """
    declared = _declared_kind(name, media_type)
    found = _kind_by_content(data, declared)
    if found is not None:
        return found
    if declared is not None and _FORMATS[declared].is_marked:
        raise Invalid(
            f"It is called {declared.label}, but its content is not. Save it again as {declared.label}. {READ}"
        )
    looks_like_html = data[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_HTML_STARTS)
    return declared or (Kind.HTML if looks_like_html else Kind.TEXT)


def _declared_kind(name: str, media_type: str) -> Kind | None:
    """The name counts for more than the media type: many senders declare everything as text/plain."""
    by_name = _BY_SUFFIX.get(PurePosixPath(name).suffix.lower())
    return by_name or _BY_MEDIA_TYPE.get(media_type.partition(";")[0].strip().lower())


def _kind_by_content(data: bytes, declared: Kind | None) -> Kind | None:
    for start, what in _REFUSED.items():
        if data.startswith(start):
            raise Invalid(f"It is {what}")
    head = data[:_HEAD]
    if head.lstrip().startswith(_PDF) or (declared == Kind.PDF and _PDF in head):  # a text may mention %PDF- too
        return Kind.PDF
    if data.startswith(_RTF):
        return Kind.RTF
    if data.startswith(_OLE):
        return _ole_kind(data, declared)
    return _archive_kind(data) if data.startswith(_ZIP) else None


def _ole_kind(data: bytes, declared: Kind | None) -> Kind | None:
    """Tell a mail of Outlook from protected and from old files of Office, which have the same first bytes."""
    if _utf16(_MESSAGE) in data:
        return Kind.MSG
    if _utf16(_ENCRYPTED) in data:
        raise Invalid(PASSWORD)
    if declared == Kind.MSG:
        return None
    raise Invalid(f"It is an old Office file (such as DOC, XLS or PPT), which is not read. {SAVE_AS}")


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-le")


def _archive_kind(data: bytes) -> Kind:
    names = archive_names(data)
    for start, kind in _IN_ARCHIVE.items():
        if any(name.startswith(start) for name in names):
            return kind
    # The media type stands at the beginning, unpacked.
    if _OPEN_DOCUMENT in names and Kind.ODT.media_type.encode() in data[:_HEAD]:
        return Kind.ODT
    raise Invalid(f"It is {_PACKED}")
